package kv

import (
	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/ttl"
)

// Options.OnExpireTx runs in the middle of a call, in these places:
//
//	purge      Rows.Purge deletes one key after the other, and calls it behind each
//	eviction   Rows.Evict does the same, in a transaction of its own
//	write      a put or delete of one key first deletes the expired row that it finds there
//
// The row is deleted first, and for good. So every call of the callback finds what any later
// transaction will find, a key is reported once, and a callback may write the key again. A purge
// looks each key of its batch up again when its turn comes.
//
// All of it is one transaction: a crash leaves the row and what hangs on it, or neither.

// maxExpireDepth bounds callbacks within callbacks: each may write a key whose row is expired, too. A
// stack of so many takes some megabytes.
const maxExpireDepth = 1000

// expiring is the state of OnExpireTx in a transaction. Its owner's goroutine uses it.
type expiring struct {
	calls  uint64 // so far
	during uint64 // the number of the call that runs, or 0
	depth  int    // calls that run, each within the one before
}

// callOnExpireTx calls OnExpireTx. The caller has entered; the callback runs without the lock, since
// it uses the transaction. Shutdown may end the transaction meanwhile.
func (tx *Tx) callOnExpireTx(name string, key, value []byte) error {
	if tx.expiring.depth >= maxExpireDepth {
		return invalid("%d calls of OnExpireTx, each within another", maxExpireDepth)
	}
	if tx.db.writer.CompareAndSwap(nil, tx) { // else it is there already
		defer tx.db.writer.CompareAndSwap(tx, nil)
		if tx.db.readersEnded.Load() { // Shutdown has not found it.
			return ErrClosed
		}
	}
	before, managed := tx.expiring, tx.managed
	calls := before.calls + 1
	tx.expiring, tx.managed = expiring{calls: calls, during: calls, depth: before.depth + 1}, true
	defer func() {
		before.calls = tx.expiring.calls
		tx.expiring, tx.managed = before, managed
	}()
	if err := tx.unlocked(func() error { return tx.db.onExpireTx(tx, name, key, value) }); err != nil {
		return err
	}
	return tx.alive(true)
}

// unlocked runs fn in the middle of a call without the lock of the call.
func (tx *Tx) unlocked(fn func() error) error {
	tx.unlock()
	defer tx.lock() // also after a panic: leave unlocks
	return fn()
}

// expireCallbacks are the callbacks of a purge or an eviction of f; more is that of one purge. The
// caller has entered.
func (tx *Tx) expireCallbacks(f *cf.Family, more func(string, []byte, []byte) error) (c ttl.Callbacks) {
	c.Before = tx.db.expireNotifier(f, more)
	if tx.db.onExpireTx != nil {
		c.After = func(key, value []byte) error { return tx.callOnExpireTx(f.Name, key, value) }
	}
	return c
}

// expireOld deletes the row of key, and calls OnExpireTx, if the row is expired. A write of one key
// calls it before its decisions: the callback may write the key. After an error, or a panic of the
// callback, the row is there again, and nothing that the callback did. The caller has entered, and is
// ready to write.
func (v *familyView) expireOld(key []byte) (err error) {
	tx := v.tx
	if tx.db.onExpireTx == nil || v.fam.NoTrees() || !v.rows().HasExpiries() {
		return nil
	}
	_, expiry, found, err := v.rows().Info(key)
	if err != nil || !found || expiry == 0 || !tx.db.clock.hides(tx.instant(), expiry) {
		return v.below(err)
	}
	value, _, _, err := v.rows().Get(key)
	if err != nil {
		return v.below(err)
	}
	start := tx.savepoint()
	done := false
	defer func() {
		if !done && tx.inner != nil && tx.inner.Err() == nil {
			if undo := tx.rollbackTo(start); err == nil {
				err = undo
			}
		}
	}()
	if err := v.below(v.rows().Delete(key)); err != nil {
		return err
	}
	if err := tx.callOnExpireTx(v.fam.Name, key, value); err != nil {
		return err
	}
	done = true
	return v.ready(true)
}
