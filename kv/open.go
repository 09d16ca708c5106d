package kv

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/openhook"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// Open opens the store at path, and creates it if it is absent. An empty file counts as absent; with
// ReadOnly or MustExist, as damaged. nil options mean: every commit is durable, and an idle store
// has no goroutine. The log files lie beside the main file, under the same name with a suffix. Open
// resolves symbolic links. Errors:
// ErrInvalidOptions, ErrInvalidPath; fs.ErrNotExist for a missing directory, and for a
// missing file with ReadOnly or MustExist; fs.ErrPermission; ErrLocked; ErrNotDatabase; ErrVersion;
// ErrCorrupt; ErrNoSpace; or the I/O error itself. An Open that fails leaves no new files behind.
func Open(path string, opts *Options) (*DB, error) {
	at := path
	if path != "" {
		if abs, err := filepath.Abs(path); err == nil { // The process may change its directory.
			at = vfs.Follow(abs)
		}
	}
	return open(vfs.OS, at, path, opts, defaultTuning)
}

// defaultTuning has the settings that stores of a simulated disk do without: there the same calls
// make the same writes.
var defaultTuning = openhook.Tuning{Engine: txn.Options{PackAfter: 15 * time.Second}}

// OpenMemory opens a new store in memory, which Close discards. It is the same engine on another
// file system.
func OpenMemory(opts *Options) (*DB, error) {
	const name = "memory.ebb"
	return open(vfs.NewMemory(), name, name, opts, defaultTuning)
}

func init() {
	openhook.Open = func(fs vfs.FS, path string, opts any, tune openhook.Tuning) (any, error) {
		return open(fs, path, path, opts.(*Options), tune)
	}
	openhook.Pack = func(db any) error { return fromBelow(db.(*DB).store.Pack(context.Background())) }
}

// open opens the store at path; errors name it as shown.
func open(fs vfs.FS, path, shown string, opts *Options, tune openhook.Tuning) (*DB, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if err := checkPath(path); err != nil {
		return nil, err
	}
	store, err := txn.Open(path, o.below(fs, tune.Engine))
	if err != nil {
		return nil, &openError{shown, path, fromBelow(err)}
	}
	db := newDB(store, o, tune)
	if err := db.guarded(db.initStore); err != nil {
		return nil, &openError{shown, path, fromBelow(errors.Join(err, store.Close()))}
	}
	if r := db.recovery; db.log != nil && !r.Clean {
		db.log.Info("store was not closed cleanly, log replayed",
			"commits", r.CommitsReplayed, "bytes", r.BytesReplayed, "dropped", r.BytesDropped)
	}
	db.auto.start()
	return db, nil
}

func checkPath(path string) error {
	if path == "" || strings.IndexByte(path, 0) >= 0 {
		return fmt.Errorf("%w: empty, or with a NUL byte", ErrInvalidPath)
	}
	return nil
}

// newDB wraps an open store. The caller runs initStore next.
func newDB(store *txn.Store, o Options, tune openhook.Tuning) *DB {
	db := &DB{store: store, readOnly: o.ReadOnly, durability: o.Durability, log: o.Logger}
	db.maxKey = store.PageSize() / 4
	db.onExpire, db.onExpireTx, db.onDrop = o.OnExpire, o.OnExpireTx, o.OnDrop
	if o.Events != nil {
		db.onPurge = o.Events.Purge
	}
	db.oneShot = oneShot{db: db, name: cf.Default}
	db.txEnded = make(chan struct{}, 1)
	db.closed = make(chan struct{})
	db.pool.New = func() any { return newTx(db) }
	db.ranges.New = func() any { return new(Cursor) }
	store.OnClose(db.clock.closing)
	db.clock.now, db.clock.system = o.Clock, o.Clock == nil
	if o.Clock == nil {
		db.clock.now = db.clock.systemNow
	}
	step := o.MaxClockStep
	if step == 0 {
		step = defaultMaxClockStep
	}
	db.clock.maxStep = ttl.Milliseconds(step)
	db.clock.onStep = func(back time.Duration) {
		if o.Logger != nil {
			o.Logger.Warn("clock was set back, the store follows it", "by", back)
		}
		if o.Events != nil && o.Events.ClockStep != nil {
			o.Events.ClockStep(back)
		}
	}
	db.clock.onJump = func(forward time.Duration) {
		if o.Logger != nil {
			o.Logger.Warn("clock has jumped forward, expired keys are hidden but not deleted", "by", forward)
		}
	}
	switch start := time.Now(); {
	case tune.Monotonic != nil:
		db.clock.watch(func(time.Time) int64 { return tune.Monotonic().Milliseconds() })
	case db.clock.system:
		db.clock.watch(func(at time.Time) int64 { return at.Sub(start).Milliseconds() })
	}
	if o.AutoPurge != nil {
		db.auto = &autoPurge{db: db, o: *o.AutoPurge}
	}
	db.recovery = RecoveryInfo(store.Recovery())
	return db
}

// initStore reads the clock mark, and creates the default family of a new store. A store lacks that
// family only after a crash between its creation and this commit: the next initStore repairs it. A
// read-only open treats such a store as empty.
func (db *DB) initStore() error {
	tx, err := db.store.Begin(context.Background(), false)
	if err != nil {
		return err
	}
	db.clock.start(tx.Mark())
	defer tx.Rollback() // also after a fault
	_, err = cf.Lookup(tx, cf.Default)
	tx.Rollback()
	if db.readOnly && errors.Is(err, ErrCorrupt) {
		return nil // Calls on that family return the error; other families stay readable.
	}
	if !errors.Is(err, cf.ErrNotFound) || db.readOnly {
		if db.readOnly && errors.Is(err, cf.ErrNotFound) {
			db.placeholder, err = &cf.Family{Name: cf.Default}, nil
		}
		return err
	}
	tx, err = db.store.Begin(context.Background(), true)
	if err != nil {
		return err
	}
	defer tx.Rollback() // likewise
	if _, err := cf.Create(tx, cf.Default, cf.Options{}); err != nil {
		return err
	}
	return tx.Commit(txn.Sync)
}
