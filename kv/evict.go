package kv

import (
	"context"
	"errors"
	"time"

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
	tx := newTx(db)
	tx.writable, tx.durability = true, NoSync
	if tx.beginWrite(expiredContext) != nil {
		return
	}
	defer tx.finish(ErrTxnDone)
	tx.nowMs, tx.timed = db.clock.clamp(now), true
	if db.allVisible(tx.inner) {
		_, _ = tx.evict()
	}
}

// evictBefore deletes a batch of queued keys before a caller's write transaction, which has begun
// and has not been returned. It commits that transaction as another Tx and begins it again; if another
// writer came first, the instant is a later one.
func (tx *Tx) evictBefore(ctx context.Context) error {
	db := tx.db
	if db.queue.Len() == 0 || db.clock.jumped.Load() {
		return nil
	}
	if !db.allVisible(tx.inner) && !db.queue.Full() { // A full queue loses notes: then wait.
		return nil
	}
	first := newTx(db)
	first.writable, first.durability = true, NoSync
	first.nowMs, first.timed = db.clock.clamp(tx.nowMs), true
	first.inner, tx.inner = tx.inner, nil
	defer first.finish(ErrTxnDone) // unless tx has its inner transaction back
	tx.ended = ErrTxnDone          // if it does not begin again
	deleted, err := first.evict()
	if err == nil && !deleted {
		tx.inner, first.inner = first.inner, nil
		return nil
	}
	first.finish(ErrTxnDone) // After an error its batch stays: no call fails because of an eviction.
	if err := tx.beginWrite(ctx); err != nil {
		return err
	}
	if tx.inner.Seq() != first.seq {
		tx.timed = false
		tx.instantOrEnd()
	}
	return nil
}

// allVisible says whether all commits before tx are visible, so that a commit without a sync
// returns at once.
func (db *DB) allVisible(tx *txn.Tx) bool {
	var seen txn.Tx
	if db.store.BeginRead(&seen, time.Time{}) != nil {
		return false
	}
	defer seen.Rollback()
	return seen.Seq() == tx.Seq()
}

// evict deletes a batch of queued keys in a fresh transaction, and commits it if it deleted any.
// After an error the transaction can only be rolled back.
func (tx *Tx) evict() (deleted bool, err error) {
	var purged []purgeStep
	notes := tx.db.queue.Take(batchKeys)
	for len(notes) > 0 {
		n := 1
		for n < len(notes) && notes[n].Base == notes[0].Base && notes[n].Family == notes[0].Family {
			n++
		}
		s, err := tx.evictSome(notes[:n])
		if err != nil {
			return false, err
		}
		if s.Changed() {
			purged = append(purged, purgeStep{base: notes[0].Base, s: s, how: evicted})
		}
		notes = notes[n:]
	}
	if len(purged) == 0 {
		return false, nil
	}
	if err := tx.commit(nil); err != nil {
		return false, err
	}
	tx.db.purged.add(purged...)
	return true, nil
}

// evictSome deletes queued keys of one family, if it is still the one that the readers saw.
func (tx *Tx) evictSome(notes []ttl.Note) (s ttl.PurgeStats, err error) {
	defer tx.leave(tx.enter(), &err)
	if err := tx.alive(true); err != nil {
		return ttl.PurgeStats{}, err
	}
	f, err := tx.db.names.Lookup(tx.inner, notes[0].Family)
	if errors.Is(err, cf.ErrNotFound) || (err == nil && f.Base != notes[0].Base) {
		return ttl.PurgeStats{}, nil
	}
	if err != nil {
		return ttl.PurgeStats{}, tx.below(err)
	}
	rows := ttl.Rows{Tx: tx.inner, Family: f}
	s, err = rows.Evict(tx.nowMs, notes, tx.expireCallbacks(f, nil))
	return s, tx.below(err)
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
