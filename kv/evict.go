package kv

import (
	"context"
	"errors"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// DB.queue holds expired keys that readers found. Short transactions delete them: the one-shot read
// that fills a batch deletes it, if the writer lock is free; a smaller batch is deleted just before
// the next write transaction begins. So reads cause at most one commit for each batch. A caller
// waits no longer than the deletes take: such a commit does not wait for a sync, and does not begin
// behind one that does.

// batchKeys is the number of keys of an eviction, and by default of a batch of a purge.
const batchKeys = 256

// expiredContext is a context that has ended: no call waits with it.
var expiredContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// evictIdle deletes a batch of queued keys, if there are so many and the writer lock is free.
func (db *DB) evictIdle(now int64) {
	if !db.queue.Holds(batchKeys) || db.clock.jumped.Load() || db.state(true) != nil {
		return
	}
	defer db.notifyShutdown()
	tx, err := db.store.Begin(expiredContext, true)
	if err != nil {
		return
	}
	defer tx.Rollback()
	if db.indexesFlushed(tx) {
		_, _ = db.evict(tx, now)
	}
}

// evictBefore deletes a batch of queued keys before a caller's write transaction, which has begun
// and has not been returned. It commits that transaction and begins it again; if another writer came
// first, the instant is a later one.
func (tx *Tx) evictBefore(ctx context.Context) (err error) {
	db := tx.db
	if db.queue.Len() == 0 || db.clock.jumped.Load() {
		return nil
	}
	back := false
	defer func() {
		if err != nil || !back { // Not back: OnExpire or the clock panicked.
			tx.finish(ErrTxnDone)
		}
	}()
	if !db.indexesFlushed(tx.inner) && !db.queue.Full() { // A full queue loses notes: then wait.
		back = true
		return nil
	}
	deleted, err := db.evict(tx.inner, tx.nowMs)
	if err == nil && !deleted {
		back = true
		return nil
	}
	before := tx.inner.Seq()
	tx.inner.Rollback() // nothing after the commit
	if ctx == nil {
		ctx = context.Background()
	}
	if err := tx.beginWrite(ctx); err != nil {
		return err
	}
	if tx.inner.Seq() != before {
		tx.timed = false
		tx.instant()
	}
	back = true
	return nil
}

// indexesFlushed says whether all commits before tx are visible, so that a commit without a sync
// returns at once.
func (db *DB) indexesFlushed(tx *txn.Tx) bool {
	var seen txn.Tx
	if db.store.BeginRead(&seen, true) != nil {
		return false
	}
	defer seen.Rollback()
	return seen.Seq() == tx.Seq()
}

// evict deletes a batch of queued keys in a fresh transaction, and commits it if it deleted any.
// After an error the transaction can only be rolled back.
func (db *DB) evict(tx *txn.Tx, now int64) (deleted bool, err error) {
	var purged []purgeStep
	now = db.clock.clamp(now)
	err = db.guarded(func() error {
		notes := db.queue.Take(batchKeys)
		for len(notes) > 0 {
			n := 1
			for n < len(notes) && notes[n].Base == notes[0].Base && notes[n].Family == notes[0].Family {
				n++
			}
			f, err := db.names.Lookup(tx, notes[0].Family)
			switch {
			case err == nil && f.Base == notes[0].Base:
				s, err := (ttl.Rows{Tx: tx, Family: f, MaxTxnBytes: db.maxTxnBytes}).Evict(
					now,
					notes[:n],
					db.expireNotifier(f, nil),
				)
				if err != nil {
					return err
				}
				if s.Changed() {
					purged = append(purged, purgeStep{base: f.Base, s: s, how: evicted})
				}
			case err != nil && !errors.Is(err, cf.ErrNotFound):
				return err
			}
			notes = notes[n:]
		}
		if len(purged) == 0 {
			return nil
		}
		db.clock.stamp(tx)
		return tx.Commit(txn.NoSync)
	})
	if err != nil {
		return false, err
	}
	for _, s := range purged {
		db.purged.add(s)
	}
	return len(purged) > 0, nil
}

// expireNotifier returns the function that is called for each key of f before it is deleted: it
// calls the store's OnExpire, then more.
func (db *DB) expireNotifier(f *cf.Family, more func(cf string, key, value []byte) error) ttl.OnExpire {
	if db.onExpire == nil && more == nil {
		return nil
	}
	return func(key, value []byte) error {
		for _, fn := range [...]func(string, []byte, []byte) error{db.onExpire, more} {
			if fn == nil {
				continue
			}
			if err := fn(f.Name, key, value); err != nil {
				return err
			}
		}
		return nil
	}
}
