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

// Tx is a transaction: a snapshot of the store at one instant and, in a write transaction, the
// changes made to it. Its methods for keys and ranges use the family "default". It belongs to one
// goroutine at a time.
type Tx struct {
	// Invariants:
	//
	//	(1) inner is nil exactly if the transaction has ended.
	//	(2) the fields of a write transaction are used between enter and leave, or before the Tx is
	//	    published: Shutdown may end it from another goroutine. Only its owner uses a read
	//	    transaction; see DB.readersEnded.
	//
	// Its size is much of what a View costs: what reads seldom use is in txState.

	verbs
	*txState

	db           *DB
	inner        *txn.Tx
	readTx       txn.Tx         // memory of inner in a read transaction
	handles      map[string]*CF // families that CF returned
	nowMs        int64          // its instant, if timed: see instant
	timed        bool
	writable     bool
	managed      bool // ended by View or Update, not by the user
	foundExpired bool // it found an expired key
	// number of catalog changes by this transaction; a handle resolves again when it has changed
	catalog uint32
}

// txState is the state of a write transaction, and of a read transaction that needs some: see own.
type txState struct {
	failed   error             // first error of a range, or what made the transaction dead
	dead     bool              // by a memory fault or damage, which inner does not record
	onDamage func(Damage) bool // of a read transaction; nil: damage is an error

	mu           sync.Mutex  // held during each call of a write transaction, of which all else is
	over         atomic.Bool // set exactly if it has ended: see hasEnded
	ended        error       // of its calls, once it has ended
	seq          uint64      // once it has ended
	durability   Durability
	buffering    []*familyView // families that buffer changes: see indexbuffer.go
	bufferedRows int           // their buffered index changes
	onCommit     []func()
	dropping     txn.TreeID // the partition for which OnDrop runs, or 0
	expiring     expiring   // calls of OnExpireTx
}

// unused is the state that read transactions share which need none: it stays zero.
var unused txState

// own returns the state for a change.
func (tx *Tx) own() *txState {
	if tx.txState == &unused {
		tx.txState = new(txState)
	}
	return tx.txState
}

// Savepoint marks a state of a write transaction for RollbackTo.
type Savepoint struct {
	tx       *Tx
	inner    txn.Savepoint
	onCommit int
	during   uint64 // the call of OnExpireTx that took it, or 0
}

// newTx returns a Tx for a write transaction, or for one-shot reads and writes.
func newTx(db *DB) *Tx {
	tx := &struct { // A second allocation would be a tenth of an Update of one put.
		Tx
		state txState
	}{}
	return tx.init(db, &tx.state)
}

func (tx *Tx) init(db *DB, state *txState) *Tx {
	tx.db, tx.txState, tx.verbs.tx, tx.verbs.name = db, state, tx, cf.Default
	return tx
}

// start begins the inner write transaction. On an error the Tx is unchanged.
func (tx *Tx) start(ctx context.Context) error {
	if err := tx.db.state(true); err != nil {
		return err
	}
	if ctx.Done() != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	tx.writable, tx.durability = true, tx.db.durability
	return tx.beginWrite(ctx)
}

// startWrite starts a write transaction of a caller. It calls begun, unless nil, with the writer lock
// held and before it reads the clock.
func (tx *Tx) startWrite(ctx context.Context, begun func()) error {
	if err := tx.start(ctx); err != nil {
		return err
	}
	if begun != nil {
		begun()
	}
	tx.instantOrEnd()
	if err := tx.evictBefore(ctx); err != nil {
		return err
	}
	tx.db.clock.stamp(tx.inner) // A large transaction logs the mark first, before it commits.
	return nil
}

// beginWrite begins the inner write transaction.
func (tx *Tx) beginWrite(ctx context.Context) error {
	inner, err := tx.db.store.Begin(ctx, true)
	if err != nil {
		tx.db.notifyShutdown() // Close counts waiting writers as open transactions.
		return fromBelow(err)
	}
	tx.inner = inner
	inner.SetDurability(txn.Durability(tx.durability)) // of the same values
	return nil
}

// startRead begins a read transaction; it waits for no lock. at is as for txn.Store.BeginRead.
func (tx *Tx) startRead(at time.Time) error {
	if err := tx.db.store.BeginRead(&tx.readTx, at); err != nil {
		return fromBelow(err)
	}
	tx.inner = &tx.readTx
	return nil
}

// end rolls back and releases the inner transaction. The caller holds mu, or is alone.
func (tx *Tx) end(why error) {
	inner := tx.inner
	inner.Rollback()
	if tx.inner = nil; tx.writable {
		if err := inner.Err(); errors.Is(err, txn.ErrUnknown) {
			why = fromBelow(err)
		}
		tx.seq, tx.ended = inner.Seq(), why
		tx.over.Store(true)
		tx.db.writer.CompareAndSwap(tx, nil)
	}
	tx.db.notifyShutdown()
}

// lock excludes Shutdown from a write transaction.
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

// finish ends the transaction if it is open, and rolls back uncommitted changes.
func (tx *Tx) finish(why error) {
	tx.lock()
	defer tx.unlock() // also when an Events callback of the log panics
	if tx.inner != nil {
		tx.end(why)
	}
}

// alive returns the error of every call on an ended or dead transaction, and, for a write, on one
// that cannot write. The caller has entered.
func (tx *Tx) alive(write bool) error {
	if tx.inner == nil {
		return tx.endErr()
	}
	if !tx.writable && tx.db.readersEnded.Load() {
		return ErrClosed
	}
	if write {
		if err := tx.db.state(true); err != nil && err != ErrClosed { // Shutdown waits for this transaction.
			return err
		}
		if !tx.writable {
			return ErrReadOnlyTxn
		}
	}
	if tx.dead {
		return tx.failed
	}
	return nil
}

// die makes the transaction dead and returns err.
func (tx *Tx) die(err error) error {
	state := tx.own()
	state.failed, state.dead = err, true
	return err
}

// hasEnded says whether the transaction has ended, and its slices are invalid. It takes no lock: a
// cursor calls it for each access to its row.
func (tx *Tx) hasEnded() bool {
	if tx.writable {
		return tx.over.Load()
	}
	return tx.inner == nil || tx.db.readersEnded.Load()
}

// endErr is the error of calls on an ended transaction. On a closed store it wraps both reasons.
func (tx *Tx) endErr() error {
	if tx.writable && tx.ended != ErrTxnDone {
		return tx.ended
	}
	if tx.db.stopping.Load() {
		return &failure{ErrClosed, ErrTxnDone}
	}
	return ErrTxnDone
}

// Commit ends the transaction. When it returns nil for a write transaction, the changes are visible
// and as durable as its Durability demands. After ErrCommitUnknown the next Open decides; after any
// other error the changes are rolled back for good. A transaction with an error (Err) is rolled
// back, and Commit returns that error.
func (tx *Tx) Commit() error {
	if tx.managed {
		if err := tx.check(false); err != nil {
			return err
		}
		return ErrManagedTxn
	}
	return tx.commit(nil)
}

// commit is Commit for every caller. If ctx ends before the log is written, it rolls back.
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
	last, err := tx.runs()
	if err == nil {
		err = tx.inner.Commit(txn.Durability(tx.durability), last...)
	}
	if err != nil {
		return fromBelow(err)
	}
	tx.end(ErrTxnDone)
	return nil
}

// Rollback ends the transaction and undoes its changes. After Commit it does nothing and returns
// ErrTxnDone, so it may be deferred.
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

// check is alive for callers that have not entered.
func (tx *Tx) check(write bool) error {
	tx.lock()
	defer tx.unlock()
	return tx.alive(write)
}

// Savepoint marks the present state of a write transaction. Any number may be open; an unused one
// costs nothing. In a read transaction, or after the end, the result is invalid: RollbackTo returns
// the reason.
func (tx *Tx) Savepoint() Savepoint {
	tx.lock()
	defer tx.unlock()
	if tx.inner == nil || !tx.writable {
		return Savepoint{}
	}
	return tx.savepoint()
}

// savepoint is Savepoint for a caller that has entered.
func (tx *Tx) savepoint() Savepoint {
	return Savepoint{
		tx:       tx,
		inner:    tx.inner.Savepoint(),
		onCommit: len(tx.onCommit),
		during:   tx.expiring.during,
	}
}

// RollbackTo undoes all changes since sp, families and OnCommit functions included. sp stays valid;
// later savepoints return ErrSavepoint from then on. Within Options.OnExpireTx a savepoint from before
// the callback is ErrSavepoint, too.
func (tx *Tx) RollbackTo(sp Savepoint) (err error) {
	defer tx.leave(tx.enter(), &err)
	if err := tx.alive(true); err != nil {
		return err
	}
	if sp.tx != tx || sp.during < tx.expiring.during {
		return ErrSavepoint
	}
	return tx.rollbackTo(sp)
}

// rollbackTo is RollbackTo for a caller that has entered.
func (tx *Tx) rollbackTo(sp Savepoint) error {
	if err := tx.inner.RollbackTo(sp.inner); err != nil {
		return fromBelow(err)
	}
	tx.catalog++ // The rollback may restore or remove families.
	clear(tx.onCommit[sp.onCommit:])
	tx.onCommit = tx.onCommit[:sp.onCommit]
	return nil
}

// SetDurability sets the durability of this transaction's commit. With a value other than Sync and
// NoSync, Commit returns ErrInvalidOptions.
func (tx *Tx) SetDurability(d Durability) {
	tx.lock()
	defer tx.unlock()
	if tx.inner != nil && tx.writable {
		tx.durability = d
		tx.inner.SetDurability(txn.Durability(d))
	}
}

// OnCommit registers a function that runs once the commit is visible and as durable as demanded, in
// order of registration, in the goroutine that commits. It may use the store. After a rollback, and
// in a read transaction, it never runs. nil does nothing.
func (tx *Tx) OnCommit(fn func()) {
	tx.lock()
	defer tx.unlock()
	if fn != nil && tx.inner != nil && tx.writable {
		tx.onCommit = append(tx.onCommit, fn)
	}
}

// Now returns the instant of this transaction in whole milliseconds: the clock was read once, at
// its begin. It is valid after the end.
func (tx *Tx) Now() time.Time { return time.UnixMilli(tx.nowMs) }

// instant is the instant of this transaction in milliseconds since the Unix epoch.
func (tx *Tx) instant() int64 {
	if !tx.timed {
		tx.nowMs, tx.timed = tx.db.clock.read(), true
	}
	return tx.nowMs
}

// instantOrEnd reads the clock at the begin of a write transaction.
func (tx *Tx) instantOrEnd() {
	defer tx.endUntimed()
	tx.instant()
}

// endUntimed ends a transaction without an instant. The clock and its events are callbacks: if one
// panics, no caller has the transaction to end it.
func (tx *Tx) endUntimed() {
	if !tx.timed {
		tx.finish(ErrTxnDone)
	}
}

// Seq returns the number of the commit that the transaction reads; after Commit, its own.
func (tx *Tx) Seq() uint64 {
	tx.lock()
	defer tx.unlock()
	switch {
	case !tx.writable:
		return tx.readTx.Seq()
	case tx.inner == nil:
		return tx.seq
	}
	return tx.inner.Seq()
}

// Writable says whether this is a write transaction.
func (tx *Tx) Writable() bool { return tx.writable }

// Err returns the first error of a range, or the damage or I/O error that made the transaction
// dead. View, Update and Commit return it too, and a write transaction with an error does not
// commit. It is valid after the end; after a range over an ended transaction it is ErrTxnDone.
func (tx *Tx) Err() error {
	tx.lock()
	defer tx.unlock()
	return tx.err()
}

func (tx *Tx) err() error {
	if tx.failed != nil || tx.inner == nil {
		return tx.failed
	}
	return fromBelow(tx.inner.Err())
}

// fail records the first error of a range.
func (tx *Tx) fail(err error) {
	if err == nil {
		return
	}
	tx.lock()
	defer tx.unlock()
	if tx.failed == nil {
		tx.own().failed = err
	}
}
