package fuzz

import (
	"context"
	"errors"

	"github.com/ebbkv/ebb/kv"
)

// The store deletes expired keys by itself: a purge in a commit for each batch, and an eviction in
// a commit before the next write transaction or behind a read. Which keys go into which commit is
// the store's choice; Options.OnExpire tells of each before the commit, so that the model can be
// told that a commit begins, follow it, and say whether each key had to die.

// heard is told of a key that is about to be deleted for having expired.
func (r *Run) heard(family string, key, value []byte) error {
	if r.amid != nil { // A purge that joins a transaction of the workload's.
		return r.amid.m.dies(family, string(key), string(value), r.amid.now)
	}
	if r.attempt == nil {
		r.begun(r.model.clone())
	}
	return r.attempt.dies(family, string(key), string(value), r.clock.read())
}

// derives says that what hangs on an expired row goes with it, in this session: OnExpireTx is set, and
// draws a number of the sequence of the default family for each row. The order of the rows does not
// matter for that, and no other operation touches what it wrote.
func (r *Run) derives() bool {
	odd := r.sessions
	if len(r.Workload.Ops) > 0 {
		odd += uint64(r.Workload.Ops[0].Arg)
	}
	return odd%2 == 1
}

// heardWithin is told of a key that was deleted for having expired, in the transaction tx.
func (r *Run) heardWithin(tx *kv.Tx, family string, key, value []byte) error {
	if r.within == nil || r.amid != nil { // else the model knows which rows its writes find
		if err := r.heard(family, key, value); err != nil {
			return err
		}
		m := r.attempt
		if r.amid != nil {
			m = r.amid.m
		}
		m.derive()
	}
	_, err := tx.NextSequence()
	return err
}

// derive does to the model what heardWithin does to the store.
func (m *Model) derive() { m.setLast(defaultFamily, m.families[defaultFamily].last+1) }

// finds deletes an expired row in the place of a write.
func (t *tx) finds(family, key string) {
	if f := t.m.families[family]; t.derives && f != nil && f.due(key, t.now) {
		t.m.delete(family, key)
		t.m.derive()
	}
}

// dies deletes a key that must have expired by now.
func (m *Model) dies(family, key, value string, now int64) error {
	f := m.families[family]
	switch {
	case f == nil:
		return wrong("a key of family %q expires, which is not there", family)
	case f.value[key] != value:
		return wrong("%s/%q expires with a value of %d bytes, want %d", family, key, len(value),
			len(f.value[key]))
	case !f.due(key, now):
		return wrong("%s/%q expires at %d, its expiry is %d", family, key, now, f.expiry[key])
	}
	m.delete(family, key)
	return nil
}

// swept notes that what was heard of is committed.
func (r *Run) swept(d kv.Durability) {
	if r.attempt == nil {
		return
	}
	r.committed(r.attempt)
	if d == kv.Sync {
		r.durable(r.newest())
	} else {
		r.Disk.AckedRelaxed(r.newest())
	}
}

// evictNoted has all evicted that readers have found expired: before the next write transaction, by
// commits of their own, each of so many keys.
func (r *Run) evictNoted() error {
	for before := r.newest(); ; before = r.newest() {
		err := r.update(kv.NoSync, func(*tx) error { return errRollback })
		if err != nil || r.newest() == before {
			return err
		}
	}
}

// lookForEviction finds out whether an eviction that was heard of has been committed.
func (r *Run) lookForEviction() {
	if r.attempt == nil {
		return
	}
	tx, err := r.db.Begin(context.Background(), false)
	if err != nil {
		return
	}
	if tx.Seq() == r.newest()+1 {
		r.swept(kv.NoSync)
	}
	_ = tx.Rollback()
}

// evicted is lookForEviction after a read, or after the beginning of a write transaction, which
// tell of none of its errors. If the eviction is not there and the store has failed, only the next
// open tells whether it ever will be; if the store goes on, it never is.
func (r *Run) evicted() error {
	r.lookForEviction()
	if r.attempt == nil {
		return nil
	}
	attempt := r.attempt
	r.attempt = nil
	if r.fault == nil {
		return wrong("an eviction was begun and not committed")
	}
	if err := r.db.Sync(); errors.Is(err, kv.ErrFailed) {
		r.unknown = attempt
		return err
	}
	r.settle(0, r.newest())
	return nil
}
