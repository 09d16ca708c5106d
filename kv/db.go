package kv

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// DB is an open store. It is safe for concurrent use. A method without a comment is that of Tx with
// the same name, in a transaction of its own, with the same errors. Those for keys use the family
// "default": a read uses the newest visible snapshot and returns copies; a write has the store's
// durability, may share its transaction with concurrent writes, and waits for other writers without
// bound.
type DB struct {
	oneShot

	// Set by Open, then read-only.
	store       *txn.Store
	readOnly    bool
	durability  Durability
	log         *slog.Logger
	recovery    RecoveryInfo
	placeholder *cf.Family // default family of a read-only store that has none yet; else nil

	onExpire   func(cf string, key, value []byte) error
	onExpireTx func(tx *Tx, cf string, key, value []byte) error
	onDrop     func(tx *Tx, cf string, from, to time.Time) error
	onPurge    func(cf string, r PurgeResult, took time.Duration, err error)
	maxKey     int        // bytes
	auto       *autoPurge // nil: none

	clock  clock
	names  cf.Names
	queue  ttl.Queue // expired keys that readers found
	purged purgeCounts
	pool   sync.Pool // *Tx of one-shot calls
	ranges sync.Pool // *Cursor of ranges that have ended

	writes writeQueue // one-shot writes that wait for the writer lock

	// The open write transaction of Update or Begin, or the one for which OnExpireTx runs, if any. It
	// becomes nil under the lock of that transaction.
	writer atomic.Pointer[Tx]

	// stopping is set by Shutdown, and by Close once the store is closed: no transaction begins any
	// more. readersEnded is set when Shutdown stops waiting for readers: every later call of a read
	// transaction returns ErrClosed.
	stopping, readersEnded atomic.Bool
	txEnded                chan struct{} // a transaction ended while stopping; holds one token
	closed                 chan struct{} // closed with the store

	closeMu sync.Mutex // held during a close; guards last and the close of closed
	last    Stats
}

// View runs fn in a read transaction and ends it. It returns the error of fn unchanged, else
// Tx.Err. fn must not keep the transaction or slices that it returned.
func (db *DB) View(fn func(*Tx) error) error {
	tx, err := db.begin(context.Background(), false)
	if err != nil {
		return err
	}
	tx.managed = true
	defer tx.finish(ErrTxnDone)
	if fn == nil {
		return invalid("the callback is nil")
	}
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Err()
}

// Update runs fn in a write transaction and commits it. If fn returns an error, panics or ends its
// goroutine, or if a range failed (Tx.Err), the transaction is rolled back. Update returns the
// error unchanged; a panic propagates.
//
// There is one write transaction at a time, which holds the writer lock: Update waits for it without
// bound. A call that needs the lock deadlocks inside fn, and in any goroutine that has the write
// transaction open itself, unless its context ends: Update, a one-shot write, Apply, Backup, BulkLoad,
// Check, Checkpoint, Compact, PurgeExpired and DropExpired if a key or a partition is due, and
// Shutdown. Inside fn use the methods of Tx. Close returns ErrTxnsOpen there.
func (db *DB) Update(fn func(*Tx) error) error { return db.UpdateContext(context.Background(), fn) }

// UpdateContext is Update with waits that end with ctx, until the commit starts to write its log
// record; after that ctx has no effect.
func (db *DB) UpdateContext(ctx context.Context, fn func(*Tx) error) error {
	if fn == nil {
		if err := db.state(true); err != nil {
			return err
		}
		return invalid("the callback is nil")
	}
	tx, err := db.begin(ctx, true)
	if err != nil {
		return err
	}
	tx.managed = true
	defer tx.finish(ErrTxnDone)
	if err := fn(tx); err != nil {
		return err
	}
	return tx.commit(ctx)
}

// Begin starts a transaction that the caller ends by Commit or Rollback. Until then it holds its
// snapshot and, if writable, the writer lock (see Update). ctx bounds the wait for the lock.
func (db *DB) Begin(ctx context.Context, writable bool) (*Tx, error) { return db.begin(ctx, writable) }

// background is ctx, or context.Background instead of nil.
func background(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}

// begin starts a transaction of a caller.
func (db *DB) begin(ctx context.Context, writable bool) (*Tx, error) {
	ctx = background(ctx)
	if !writable {
		return db.beginRead(ctx)
	}
	tx := newTx(db)
	if err := tx.startWrite(ctx, nil); err != nil {
		return nil, err
	}
	db.writer.Store(tx)
	// Shutdown sets stopping, then ends the writer that it finds. A writer that it did not find
	// sees stopping here.
	if db.stopping.Load() {
		tx.finish(ErrClosed)
		return nil, ErrClosed
	}
	return tx, nil
}

// beginRead is begin for a read transaction.
func (db *DB) beginRead(ctx context.Context) (*Tx, error) {
	if err := db.state(false); err != nil {
		return nil, err
	}
	if ctx.Done() != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	tx, at := new(Tx).init(db, &unused), db.clock.now()
	began := at
	if !db.clock.system {
		began = time.Now()
	}
	if err := tx.startRead(began); err != nil {
		return nil, err
	}
	defer tx.endUntimed()
	tx.nowMs, tx.timed = db.clock.readAt(at), true
	return tx, nil
}

// state returns the error that every call gets in the present state of the store, or nil. Closed
// precedes failed, failed precedes read-only.
func (db *DB) state(write bool) error {
	if db.stopping.Load() {
		return ErrClosed
	}
	if !write {
		return nil
	}
	if err := db.store.Failed(); err != nil {
		return fromBelow(&failure{txn.ErrFailed, err})
	}
	if db.readOnly {
		return ErrReadOnlyDB
	}
	return nil
}

// MaxKeySize returns the length of the longest key in bytes: a quarter of the page size.
func (db *DB) MaxKeySize() int { return db.maxKey }

// Path returns the absolute path of the store's main file at Open, with symbolic links resolved.
func (db *DB) Path() string { return db.store.Path() }

// Sync makes all commits durable that were made with NoSync.
func (db *DB) Sync() error {
	if err := db.state(true); err != nil {
		return err
	}
	defer db.notifyShutdown()
	return fromBelow(db.store.Sync())
}

// Checkpoint writes the newest durable state to the main file, which makes the log before it
// obsolete. The store starts checkpoints by itself as the log grows. ctx bounds the wait for the writer
// lock.
func (db *DB) Checkpoint(ctx context.Context) error {
	if err := db.state(true); err != nil {
		return err
	}
	defer db.notifyShutdown()
	return fromBelow(db.store.Checkpoint(background(ctx)))
}

// Close makes relaxed commits durable, writes a last checkpoint and closes the store. With open
// transactions, the caller's included, it returns ErrTxnsOpen at once and the store stays usable.
// On a closed store it returns nil.
func (db *DB) Close() error { return db.close(db.store.Close) }

func (db *DB) close(below func() error) error {
	db.closeMu.Lock()
	defer db.closeMu.Unlock()
	select {
	case <-db.closed:
		return nil
	default:
	}
	db.auto.stop()
	families, partitions := db.familyStats(false)
	err := below()
	if errors.Is(err, txn.ErrTxnsOpen) {
		db.auto.start()
		return fromBelow(err)
	}
	// After any other error the store below is closed.
	db.last = db.numbers()
	db.last.Families, db.last.Partitions = families, partitions
	db.stopping.Store(true)
	close(db.closed)
	return fromBelow(err)
}

// Shutdown refuses new transactions, waits for the open ones until ctx ends, then ends them, and
// closes the store as Close does. Calls on a transaction that it ended return ErrClosed; its changes
// are rolled back. A bulk load ends at its next row. Shutdown always waits for callbacks of a bulk
// load or a Check. Inside a callback of View or Update it deadlocks, unless ctx ends.
func (db *DB) Shutdown(ctx context.Context) error {
	ctx = background(ctx)
	db.stopping.Store(true)
	for {
		if err := db.Close(); !errors.Is(err, ErrTxnsOpen) {
			return err
		}
		select {
		case <-db.closed:
			return nil
		case <-db.txEnded:
		case <-ctx.Done():
			return db.endTransactions()
		}
	}
}

// endTransactions closes the store with transactions open. A reader inside a call, or with slices,
// keeps the memory that it reads; its next call returns ErrClosed. The writer ends between two
// calls of its own.
func (db *DB) endTransactions() error {
	db.readersEnded.Store(true)
	if tx := db.writer.Load(); tx != nil {
		tx.lock()
		if db.writer.Load() == tx { // else it goes on without a callback, and ends
			tx.end(ErrClosed)
		}
		tx.unlock()
	}
	return db.close(db.store.Abandon)
}

// notifyShutdown notifies a waiting Shutdown that a transaction, or another call that blocks Close, ended.
func (db *DB) notifyShutdown() {
	if db.stopping.Load() {
		select {
		case db.txEnded <- struct{}{}:
		default:
		}
	}
}
