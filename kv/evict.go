package kv

import (
	"context"
	"errors"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// Expired keys that readers meet are noted in DB.queue and deleted in short transactions of their
// own: a batch by the one-shot read that fills it, if no writer is at work; fewer just before the
// next write transaction begins. So reads make a commit for each batch at most, whatever they meet.
// A caller waits for that no longer than the deletes take: such a commit does not wait for a sync,
// and does not begin behind one that does.

// batchKeys is how many keys an eviction, and by default a batch of a purge, deletes.
const batchKeys = 256

// expiredContext is a context that ends every wait before it begins.
var expiredContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// evictIdle deletes a batch of noted keys, if there are so many, and the writer lock is free.
func (db *DB) evictIdle(now int64) {
	if !db.queue.Holds(batchKeys) || db.clock.jumped.Load() || db.state(true) != nil {
		return
	}
	defer db.leave()
	tx, err := db.store.Begin(expiredContext, true)
	if err != nil {
		return
	}
	defer tx.Rollback()
	if db.indexesFlushed(tx) {
		_, _ = db.evict(tx, now)
	}
}

// evictBefore deletes a batch of noted keys before a write transaction of a user's, which has begun
// but not been seen. It commits in its place and begins it again; then, if another writer came
// first, the instant is a later one.
func (tx *Tx) evictBefore(ctx context.Context) (err error) {
	db := tx.db
	if db.queue.Len() == 0 || db.clock.jumped.Load() {
		return nil
	}
	back := false
	defer func() {
		if err != nil || !back { // Not back: OnExpire or the clock has panicked.
			tx.finish(ErrTxnDone)
		}
	}()
	if !db.indexesFlushed(tx.inner) && !db.queue.Full() { // A full queue loses notes: then rather wait.
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

// indexesFlushed says whether all that was committed before tx is visible, so that a commit without
// a sync returns at once.
func (db *DB) indexesFlushed(tx *txn.Tx) bool {
	var seen txn.Tx
	if db.store.BeginRead(&seen, true) != nil {
		return false
	}
	defer seen.Rollback()
	return seen.Seq() == tx.Seq()
}

// evict deletes a batch of noted keys in a transaction that is fresh, and commits it if there was
// anything to delete. After an error the transaction is only good for a rollback.
func (db *DB) evict(tx *txn.Tx, now int64) (deleted bool, err error) {
	var swept []purgeStep
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
					swept = append(swept, purgeStep{f.Base, s, evicted})
				}
			case err != nil && !errors.Is(err, cf.ErrNotFound):
				return err
			}
			notes = notes[n:]
		}
		if len(swept) == 0 {
			return nil
		}
		db.clock.stamp(tx)
		return tx.Commit(txn.NoSync)
	})
	if err != nil {
		return false, err
	}
	for _, s := range swept {
		db.swept.add(s)
	}
	return len(swept) > 0, nil
}

// expireNotifier is what hears of each key of f that is about to be deleted: the store's function,
// then one more.
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
