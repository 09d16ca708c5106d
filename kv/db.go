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

// DB is an open store. It is safe for concurrent use. Its verbs for keys are one-shot transactions
// on the family "default": a read sees the newest visible state, a write is one commit, which
// others made at the same time may share.
type DB struct {
	oneShot

	// Set by Open, then read-only.
	store      *txn.Store
	readOnly   bool
	durability Durability
	log        *slog.Logger
	recovery   RecoveryInfo
	hollow     *cf.Family // the default family of a store that has none yet; else nil

	onExpire    func(cf string, key, value []byte) error
	onPurge     func(cf string, r PurgeResult, took time.Duration, err error)
	maxTxnBytes int64
	maxKey      int        // bytes
	auto        *autoPurge // nil: none

	clock clock
	names cf.Names
	queue ttl.Queue // expired keys that readers met
	swept purgeCounts
	pool  sync.Pool // *Tx of one-shot calls

	sharing writeQueue // one-shot writes that wait

	writer atomic.Pointer[Tx] // the open write transaction of Update or Begin, if any

	// stopping is set by Shutdown, and by Close once the store is closed: no transaction begins any
	// more. cut is set when Shutdown does not wait for readers any longer: every call of a read
	// transaction returns ErrClosed from then on.
	stopping, cut atomic.Bool
	left          chan struct{} // a transaction ended while stopping; holds one token
	closed        chan struct{} // closed when the store is

	closeMu sync.Mutex // held through a close; guards the closing of closed, and last
	last    Stats
}

// View runs fn in a read transaction and ends it. It returns the error of fn unchanged, else
// Tx.Err. fn must not keep the transaction, or slices got from it.
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
// goroutine, or if a range met an error (Tx.Err), everything is rolled back; the error is returned
// unchanged, the panic goes on.
//
// There is one write transaction at a time: Update waits for the others, without bound. A call that
// needs the writer lock therefore waits for ever inside fn, for the transaction of its own caller,
// unless it has a context that ends: Update, a one-shot write, Apply, BulkLoad, PurgeExpired if
// something is due, Checkpoint, Check, and Shutdown. Tx has verbs of its own for all that belongs
// into a transaction. Close is ErrTxnsOpen there.
func (db *DB) Update(fn func(*Tx) error) error { return db.UpdateContext(context.Background(), fn) }

// UpdateContext is Update whose waits end with ctx, until the commit begins to write its log: from
// there on the outcome is what it is. nil means context.Background.
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

// Begin starts a transaction that is yours to Commit or Rollback; until then it holds its snapshot
// and, if writable, keeps other writers waiting, the calls that Update lists included. ctx bounds
// the wait for other write transactions; nil means context.Background.
func (db *DB) Begin(ctx context.Context, writable bool) (*Tx, error) { return db.begin(ctx, writable) }

// begin starts a transaction for a user.
func (db *DB) begin(ctx context.Context, writable bool) (*Tx, error) {
	tx := newTx(db)
	if err := tx.start(ctx, writable); err != nil {
		return nil, err
	}
	tx.instantOrEnd()
	if !writable {
		return tx, nil
	}
	if err := tx.evictBefore(ctx); err != nil {
		return nil, err
	}
	db.clock.stamp(tx.inner) // What a large transaction logs before it commits begins with the mark.
	db.writer.Store(tx)
	// Shutdown sets stopping first and then ends the writer that it finds. So one that it did not
	// find sees stopping here.
	if db.stopping.Load() {
		tx.finish(ErrClosed)
		return nil, ErrClosed
	}
	return tx, nil
}

// state returns what keeps any call from being carried out. Closed wins over failed, failed over
// read-only.
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

// MaxKeySize is the largest key in bytes: a quarter of the page.
func (db *DB) MaxKeySize() int { return db.maxKey }

// Path is where the store's main file is: the absolute path that it was opened by, or, of a
// symbolic link, that of its file.
func (db *DB) Path() string { return db.store.Path() }

// Sync makes all commits so far durable that asked for NoSync.
func (db *DB) Sync() error {
	if err := db.state(true); err != nil {
		return err
	}
	defer db.leave()
	return fromBelow(db.store.Sync())
}

// Checkpoint writes the newest durable state to the main file, so that the log before it is not
// needed any more. It runs by itself as the log grows. It waits for the open write transaction,
// until ctx ends: a goroutine that has one open itself must not call it without such a context, or
// it waits for ever. nil means context.Background.
func (db *DB) Checkpoint(ctx context.Context) error {
	if err := db.state(true); err != nil {
		return err
	}
	if ctx == nil {
		ctx = context.Background()
	}
	defer db.leave()
	return fromBelow(db.store.Checkpoint(ctx))
}

// Close makes relaxed commits durable, writes a last checkpoint and ends the store. With
// transactions open, those of the caller included, it returns ErrTxnsOpen at once and the store
// stays usable. Closed already: nil.
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
	families := db.familyStats()
	err := below()
	if errors.Is(err, txn.ErrTxnsOpen) {
		db.auto.start()
		return fromBelow(err)
	}
	// Whatever else it met, the store below has ended.
	db.last = db.numbers()
	db.last.Families = families
	db.stopping.Store(true)
	close(db.closed)
	return fromBelow(err)
}

// Shutdown refuses new transactions, waits for the open ones until ctx ends, then ends them, and
// closes the store as Close does. The calls of a transaction that it ended return ErrClosed, and
// nothing of it is committed; a bulk load ends so at its next row. Code of the caller's that a load
// or a Check calls is waited for. nil means context.Background: it waits without bound, inside a
// callback of View or Update for ever.
func (db *DB) Shutdown(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	db.stopping.Store(true)
	for {
		if err := db.Close(); !errors.Is(err, ErrTxnsOpen) {
			return err
		}
		select {
		case <-db.closed:
			return nil
		case <-db.left:
		case <-ctx.Done():
			return db.endTransactions()
		}
	}
}

// endTransactions closes the store under open transactions. Readers that are inside a call, or hold
// slices, keep the memory that they look at; their next call returns ErrClosed. The writer is ended
// between two calls of its own.
func (db *DB) endTransactions() error {
	db.cut.Store(true)
	if tx := db.writer.Load(); tx != nil {
		tx.finish(ErrClosed)
	}
	return db.close(db.store.Abandon)
}

// leave tells a waiting Shutdown that a transaction, or another call that Close minds, has ended.
func (db *DB) leave() {
	if db.stopping.Load() {
		select {
		case db.left <- struct{}{}:
		default:
		}
	}
}
