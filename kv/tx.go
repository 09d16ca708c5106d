package kv

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/txn"
)

// Tx is a transaction: one state of the store at one instant, and in a write transaction the
// changes made to it. Its verbs for keys and ranges mean the family "default". It belongs to one
// goroutine at a time.
type Tx struct {
	// It always holds that
	//
	//	(1) inner is nil exactly if the transaction has ended; ended then says what its calls
	//	    return.
	//	(2) the fields of a write transaction are used between enter and leave, or before the Tx is
	//	    published: Shutdown may end it from another goroutine. A read transaction is touched by
	//	    its owner alone; see DB.cut.
	//	(3) over is set exactly if a write transaction has ended: see hasEnded.

	verbs

	db         *DB
	writable   bool
	managed    bool // ended by View or Update, not by the user
	durability Durability
	nowMs      int64 // its instant, if timed: a one-shot read asks the clock only if it meets an expiry
	timed      bool
	noted      bool // it met an expired key
	held       int  // changes of indexes that are held back: see held.go

	mu    sync.Mutex // held during each call of a write transaction
	over  atomic.Bool
	inner *txn.Tx
	own   txn.Tx // memory of inner, if it is a read transaction
	ended error
	dead  error // a fault that the room below does not know of
	seq   uint64

	failed  error          // first error of a range
	handles map[string]*CF // families asked for
	// how often this transaction changed the catalog; handles resolve again when it moves
	catalog  uint32
	onCommit []func()
	onDamage func(Damage) bool // of a read transaction; nil: damage ends what meets it
}

// Savepoint is a place in a write transaction that RollbackTo goes back to.
type Savepoint struct {
	tx       *Tx
	inner    txn.Savepoint
	onCommit int
}

func newTx(db *DB) *Tx {
	tx := &Tx{db: db}
	tx.verbs.tx, tx.verbs.name = tx, cf.Default
	return tx
}

// start begins the transaction below. On an error the Tx is as it was.
func (tx *Tx) start(ctx context.Context, writable bool) error {
	db := tx.db
	if err := db.state(writable); err != nil {
		return err
	}
	if ctx == nil {
		ctx = context.Background()
	}
	if ctx.Done() != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	tx.writable, tx.durability = writable, db.durability
	if !writable {
		return tx.startRead(false)
	}
	if err := tx.beginWrite(ctx); err != nil {
		db.leave() // It has waited, and Close counts those who wait.
		return err
	}
	return nil
}

// beginWrite begins the write transaction below, also once more, when the first has ended before
// anyone saw it.
func (tx *Tx) beginWrite(ctx context.Context) error {
	inner, err := tx.db.store.Begin(ctx, true)
	if err != nil {
		return fromBelow(err)
	}
	tx.inner = inner
	tx.setDurability()
	return nil
}

// setDurability tells the room below what the commit is going to wait for.
func (tx *Tx) setDurability() {
	if tx.durability == NoSync {
		tx.inner.SetDurability(txn.NoSync)
	} else {
		tx.inner.SetDurability(txn.Sync)
	}
}

// startRead begins a read transaction, which waits for nobody. A brief one is that of a one-shot
// call.
func (tx *Tx) startRead(brief bool) error {
	if err := tx.db.store.BeginRead(&tx.own, brief); err != nil {
		return fromBelow(err)
	}
	tx.inner = &tx.own
	return nil
}

// end lets go of the transaction below. The caller holds mu, or is alone.
func (tx *Tx) end(why error) {
	tx.seq = tx.inner.Seq()
	tx.inner.Rollback()
	if err := tx.inner.Err(); errors.Is(err, txn.ErrUnknown) {
		why = fromBelow(err)
	}
	tx.inner, tx.ended = nil, why
	if tx.writable {
		tx.over.Store(true)
		tx.db.writer.CompareAndSwap(tx, nil)
	}
	tx.db.leave()
}

// lock takes a write transaction from Shutdown.
func (tx *Tx) lock() {
	if tx.writable {
		tx.mu.Lock()
	}
}

func (tx *Tx) unlock() {
	if tx.writable {
		tx.mu.Unlock()
	}
}

// finish ends the transaction if it is still open, and rolls back what was not committed.
func (tx *Tx) finish(why error) {
	tx.lock()
	defer tx.unlock() // also when somebody who is told of the log's groups panics
	if tx.inner != nil {
		tx.end(why)
	}
}

// alive returns what keeps a call from being carried out: the transaction has ended or is dead, or,
// for a write, what forbids it. The caller has entered.
func (tx *Tx) alive(write bool) error {
	if tx.inner == nil {
		return tx.endErr()
	}
	if !tx.writable && tx.db.cut.Load() {
		return ErrClosed
	}
	if write {
		if err := tx.db.state(true); err != nil && err != ErrClosed { // Shutdown waits for us.
			return err
		}
		if !tx.writable {
			return ErrReadOnlyTxn
		}
	}
	return tx.dead
}

// hasEnded says whether calls on the transaction return an error because of its end, and what it
// lent is gone. It takes no lock: a cursor asks at each look at its row.
func (tx *Tx) hasEnded() bool {
	if tx.writable {
		return tx.over.Load()
	}
	return tx.inner == nil || tx.db.cut.Load()
}

// endErr is what calls on a transaction return that has ended. On a closed store that is both
// reasons.
func (tx *Tx) endErr() error {
	if tx.ended == ErrTxnDone && tx.db.stopping.Load() {
		return &failure{ErrClosed, ErrTxnDone}
	}
	return tx.ended
}

// Commit ends the transaction. When it returns nil for a write transaction, the changes are visible
// and as durable as was asked for. After any other error than ErrCommitUnknown nothing of it is
// there, now or later; ErrCommitUnknown leaves it to the next Open. A transaction with an error
// (Err) is rolled back, and that error returned.
func (tx *Tx) Commit() error {
	if tx.managed {
		if err := tx.check(false); err != nil {
			return err
		}
		return ErrManagedTxn
	}
	return tx.commit(nil)
}

// commit is Commit for every caller. A ctx that ends before the log is written rolls back.
func (tx *Tx) commit(ctx context.Context) error {
	defer tx.finish(ErrTxnDone)
	if err := tx.commitBelow(ctx); err != nil {
		return err
	}
	if tx.writable {
		for _, fn := range tx.onCommit {
			fn()
		}
	}
	return nil
}

func (tx *Tx) commitBelow(ctx context.Context) (err error) {
	defer tx.leave(tx.enter(), &err)
	if err := tx.alive(false); err != nil {
		return err
	}
	if !tx.writable {
		return nil
	}
	if err := tx.err(); err != nil {
		return err
	}
	if tx.durability > NoSync {
		return invalid("Durability %d", tx.durability)
	}
	if ctx != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	tx.db.clock.stamp(tx.inner)
	d := txn.Sync
	if tx.durability == NoSync {
		d = txn.NoSync
	}
	if err := tx.inner.Commit(d); err != nil {
		return fromBelow(err)
	}
	tx.end(ErrTxnDone)
	return nil
}

// Rollback ends the transaction and undoes its changes. After Commit it returns ErrTxnDone and does
// nothing, so it may be deferred.
func (tx *Tx) Rollback() error {
	tx.lock()
	ended := tx.inner == nil
	tx.unlock()
	switch {
	case ended:
		return tx.endErr()
	case tx.managed:
		return ErrManagedTxn
	}
	tx.finish(ErrTxnDone)
	return nil
}

// check is alive for calls that do nothing else under the lock.
func (tx *Tx) check(write bool) error {
	tx.lock()
	defer tx.unlock()
	return tx.alive(write)
}

// Savepoint marks the present state of a write transaction. Any number may be open; they cost
// nothing when unused. In a read transaction, and after the end, the result is good for nothing:
// RollbackTo says why.
func (tx *Tx) Savepoint() Savepoint {
	tx.lock()
	defer tx.unlock()
	if tx.inner == nil || !tx.writable {
		return Savepoint{}
	}
	return Savepoint{tx: tx, inner: tx.inner.Savepoint(), onCommit: len(tx.onCommit)}
}

// RollbackTo undoes all that happened since sp, families and OnCommit functions included. sp may be
// used again; later savepoints end, and are ErrSavepoint from then on.
func (tx *Tx) RollbackTo(sp Savepoint) (err error) {
	defer tx.leave(tx.enter(), &err)
	if err := tx.alive(true); err != nil {
		return err
	}
	if sp.tx != tx {
		return ErrSavepoint
	}
	if err := tx.inner.RollbackTo(sp.inner); err != nil {
		return fromBelow(err)
	}
	tx.catalog++ // Families may have come back, or gone.
	clear(tx.onCommit[sp.onCommit:])
	tx.onCommit = tx.onCommit[:sp.onCommit]
	return nil
}

// SetDurability chooses what this transaction's commit waits for. Another value than Sync and
// NoSync makes the commit fail with ErrInvalidOptions.
func (tx *Tx) SetDurability(d Durability) {
	tx.lock()
	defer tx.unlock()
	tx.durability = d
	if tx.inner != nil && tx.writable {
		tx.setDurability()
	}
}

// OnCommit registers a function that runs after the commit is durable (as far as was asked for) and
// visible, in the order of registration, from the goroutine that commits. It may use the store.
// After a rollback, and in a read transaction, it never runs. nil does nothing.
func (tx *Tx) OnCommit(fn func()) {
	tx.lock()
	defer tx.unlock()
	if fn != nil && tx.inner != nil && tx.writable {
		tx.onCommit = append(tx.onCommit, fn)
	}
}

// Now is the instant of this transaction in whole milliseconds: the clock was read once, when it
// began. It stays after the end.
func (tx *Tx) Now() time.Time { return time.UnixMilli(tx.nowMs) }

// instant is the one instant of this transaction in milliseconds.
func (tx *Tx) instant() int64 {
	if !tx.timed {
		tx.nowMs, tx.timed = tx.db.clock.read(), true
	}
	return tx.nowMs
}

// instantOrEnd reads the clock at the begin of a transaction. It is a function of the user's: if it
// panics, nobody else will end the transaction.
func (tx *Tx) instantOrEnd() {
	defer func() {
		if !tx.timed {
			tx.finish(ErrTxnDone)
		}
	}()
	tx.instant()
}

// Seq is the number of the commit whose state the transaction sees; after Commit its own.
func (tx *Tx) Seq() uint64 {
	tx.lock()
	defer tx.unlock()
	if tx.inner == nil {
		return tx.seq
	}
	return tx.inner.Seq()
}

// Writable says whether this is a write transaction.
func (tx *Tx) Writable() bool { return tx.writable }

// Err is the first error met while ranging, or the damage or I/O error that made the transaction
// dead. View, Update and Commit return it even if the caller did not look, and a write transaction
// with an error does not commit. It stays after the end; a range over a transaction that has ended
// is the error ErrTxnDone here.
func (tx *Tx) Err() error {
	tx.lock()
	defer tx.unlock()
	return tx.err()
}

func (tx *Tx) err() error {
	switch {
	case tx.failed != nil:
		return tx.failed
	case tx.dead != nil || tx.inner == nil:
		return tx.dead
	}
	return fromBelow(tx.inner.Err())
}

// fail keeps the first error of a range.
func (tx *Tx) fail(err error) {
	if err == nil {
		return
	}
	tx.lock()
	defer tx.unlock()
	if tx.failed == nil {
		tx.failed = err
	}
}
