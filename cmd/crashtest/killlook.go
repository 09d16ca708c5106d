package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// claims is what must be true of a store, as its writer told it.
type claims struct {
	acked  uint64 // every commit up to this one is there
	begun  uint64 // none after it
	purged uint64 // nothing is there that had expired at this commit
}

// found is what a look at a store has found.
type found struct {
	replayed int  // commits that recovery found in logs
	expired  int  // keys that are gone for having expired
	inFlight bool // a commit had begun and was not acknowledged,
	there    bool // and is there
}

// look opens a store and holds it against the model, which it brings to the commit that the store
// is at.
func (m *killModel) look(path string, c claims) (f found, err error) {
	// A child that began a commit had a store: it may be empty, but not gone.
	db, err := openKilled(
		path,
		m.seed,
		&kv.Options{MustExist: c.begun > 0, Clock: func() time.Time { return longAgo }},
	)
	if err != nil {
		return f, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	f.replayed = int(db.RecoveryInfo().CommitsReplayed)
	seq, err := storedSeq(db)
	if err != nil {
		return f, err
	}
	if seq < c.acked || seq > c.begun {
		return f, fmt.Errorf("store is at commit %d, acknowledged %d, begun %d", seq, c.acked, c.begun)
	}
	f.inFlight = c.begun > c.acked
	f.there = f.inFlight && seq == c.begun
	m.bring(seq)
	f.expired, err = m.compare(db, killTime(c.begun), killTime(c.purged))
	for p := range db.Check(context.Background()) {
		err = errors.Join(err, fmt.Errorf("check: %v", p))
	}
	return f, err
}

// bring takes the model to commit seq, also from a later one.
func (m *killModel) bring(seq uint64) {
	if seq < m.seq {
		*m = *newKillModel(m.seed)
	}
	for m.seq < seq {
		m.step(m.seq + 1)
	}
}
