package kv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// points are the calls on one key that *DB, *Family, *Tx and *CF have in common.
type points interface {
	Get(key []byte) ([]byte, error)
	GetAppend(dst, key []byte) ([]byte, error)
	GetTTL(key []byte) ([]byte, time.Duration, error)
	Has(key []byte) (bool, error)
	Put(key, value []byte) error
	PutTTL(key, value []byte, ttl time.Duration) error
	PutExpireAt(key, value []byte, at time.Time) error
	PutWith(key, value []byte, o kv.PutOptions) (bool, error)
	Delete(key []byte) error
	TTL(key []byte) (time.Duration, error)
	Expiry(key []byte) (time.Time, error)
	Size(key []byte) (int, error)
	Expire(key []byte, ttl time.Duration) error
	ExpireAt(key []byte, at time.Time) error
	Persist(key []byte) error
	Increment(key []byte, delta int64, ttlIfNew time.Duration) (int64, error)
	GetAndExpire(key []byte, ttl time.Duration) ([]byte, error)
	CompareAndSwap(key, old, new []byte, o kv.PutOptions) (bool, error)
	CompareAndDelete(key, old []byte) (bool, error)
}

// A pointCall is one of them.
type pointCall struct {
	name   string
	writes bool
	do     func(p points, key []byte) error
}

// distant is after every clock of these tests.
var distant = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

var pointCalls = []pointCall{
	{"Get", false, func(p points, key []byte) error { _, err := p.Get(key); return err }},
	{"GetAppend", false, func(p points, key []byte) error { _, err := p.GetAppend(nil, key); return err }},
	{"GetTTL", false, func(p points, key []byte) error { _, _, err := p.GetTTL(key); return err }},
	{"Has", false, func(p points, key []byte) error { _, err := p.Has(key); return err }},
	{"TTL", false, func(p points, key []byte) error { _, err := p.TTL(key); return err }},
	{"Expiry", false, func(p points, key []byte) error { _, err := p.Expiry(key); return err }},
	{"Size", false, func(p points, key []byte) error { _, err := p.Size(key); return err }},
	{"Put", true, func(p points, key []byte) error { return p.Put(key, nil) }},
	{"PutTTL", true, func(p points, key []byte) error { return p.PutTTL(key, nil, time.Hour) }},
	{"PutExpireAt", true, func(p points, key []byte) error { return p.PutExpireAt(key, nil, distant) }},
	{"PutWith", true,
		func(p points, key []byte) error { _, err := p.PutWith(key, nil, kv.PutOptions{}); return err }},
	{"Delete", true, func(p points, key []byte) error { return p.Delete(key) }},
	{"Expire", true, func(p points, key []byte) error { return p.Expire(key, time.Hour) }},
	{"ExpireAt", true, func(p points, key []byte) error { return p.ExpireAt(key, distant) }},
	{"Persist", true, func(p points, key []byte) error { return p.Persist(key) }},
	{"Increment", true, func(p points, key []byte) error { _, err := p.Increment(key, 1, 0); return err }},
	{"GetAndExpire", true,
		func(p points, key []byte) error { _, err := p.GetAndExpire(key, time.Hour); return err }},
	{"CompareAndSwap", true, func(p points, key []byte) error {
		_, err := p.CompareAndSwap(key, nil, []byte("new"), kv.PutOptions{})
		return err
	}},
	{"CompareAndDelete", true,
		func(p points, key []byte) error { _, err := p.CompareAndDelete(key, []byte("old")); return err }},
}

// badKeys are refused by every call on one key.
var badKeys = []struct {
	name string
	key  []byte
	err  error
}{
	{"nil_key", nil, kv.ErrKeyEmpty},
	{"empty_key", []byte{}, kv.ErrKeyEmpty},
	{"large_key", largeKey, kv.ErrKeyTooLarge},
}

// pointContract is each call with each bad key: on the store, on a family, and in both kinds of
// transactions.
func pointContract() (list []contractRow) {
	for _, bad := range badKeys {
		for _, c := range pointCalls {
			want, inView := everywhere(bad.err), everywhere(bad.err)
			if c.writes {
				want, inView = write(bad.err), write(kv.ErrReadOnlyTxn)
			}
			name := c.name + "/" + bad.name
			list = append(list,
				contractRow{"db/" + name, func(s subject) error { return c.do(s.db, bad.key) }, want},
				contractRow{"family/" + name, func(s subject) error { return c.do(s.db.CF("f"), bad.key) }, want},
				contractRow{"view/" + name, func(s subject) error {
					return s.db.View(func(tx *kv.Tx) error { return c.do(tx, bad.key) })
				}, inView},
				contractRow{"view_of_family/" + name, func(s subject) error {
					return s.db.View(func(tx *kv.Tx) error { return c.do(tx.CF("f"), bad.key) })
				}, inView},
				contractRow{"update/" + name, func(s subject) error {
					return s.db.Update(func(tx *kv.Tx) error { return c.do(tx, bad.key) })
				}, write(bad.err)},
				contractRow{"update_of_family/" + name, func(s subject) error {
					return s.db.Update(func(tx *kv.Tx) error { return c.do(tx.CF("f"), bad.key) })
				}, write(bad.err)},
			)
		}
	}
	return list
}

// lineContract are rows for lines of the contract that are not about one key.
var lineContract = []contractRow{
	{"delete/absent", func(s subject) error { return s.db.Delete([]byte("absent")) }, write(nil)},
	{"delete_range/bounds_crossed",
		func(s subject) error { return s.db.DeleteRange([]byte("y"), []byte("x")) }, write(nil)},
	{"update/changes_nothing",
		func(s subject) error { return s.db.Update(func(*kv.Tx) error { return nil }) },
		write(nil)},
	{"update/callback_error_is_unchanged", func(s subject) error {
		err := s.db.Update(func(*kv.Tx) error { return errRolledBack })
		if errors.Is(err, errRolledBack) && err != errRolledBack {
			return errors.New("it was wrapped")
		}
		return err
	}, write(errRolledBack)},
	{"begin/nil_context", func(s subject) error {
		var none context.Context
		tx, err := s.db.Begin(none, true)
		if err != nil {
			return err
		}
		return tx.Rollback()
	}, write(nil)},
	{"apply/nil_context", func(s subject) error {
		var none context.Context
		return s.db.Apply(none, s.db.NewBatch())
	}, write(nil)},
	{"purge/nil_context", func(s subject) error {
		var none context.Context
		_, err := s.db.PurgeExpired(none, kv.PurgeOptions{})
		return err
	}, write(nil)},
	{"begin/read", func(s subject) error {
		tx, err := s.db.Begin(context.Background(), false)
		if err != nil {
			return err
		}
		return tx.Commit()
	}, read},
	{"begin/write", func(s subject) error {
		tx, err := s.db.Begin(context.Background(), true)
		if err != nil {
			return err
		}
		return tx.Rollback()
	}, write(nil)},
	{"sync", func(s subject) error { return s.db.Sync() }, write(nil)},
	{"checkpoint/nothing_to_write",
		func(s subject) error { return s.db.Checkpoint(context.Background()) }, write(nil)},
	{"check", func(s subject) error {
		for p := range s.db.Check(context.Background()) {
			if p.Kind == "closed" {
				return kv.ErrClosed
			}
			return fmt.Errorf("%v", p)
		}
		return nil
	}, read},
	{"statistics", func(s subject) error {
		if s.db.Stats().PageSize != 4096 || s.db.MaxKeySize() != 1024 || s.db.Path() != path {
			return errors.New("wrong numbers")
		}
		return nil
	}, want{}},
	{"purge/negative_batch", func(s subject) error {
		_, err := s.db.PurgeExpired(context.Background(), kv.PurgeOptions{Batch: -1})
		return err
	}, write(kv.ErrInvalidOptions)},
	{"scan_of_all/negative_limit_in_update", func(s subject) error {
		return s.db.Update(func(tx *kv.Tx) error {
			for range tx.Scan(kv.ScanOptions{Limit: -1}) {
			}
			return nil
		})
	}, write(kv.ErrInvalidOptions)},
	{"put_with/expire_at_past", func(s subject) error {
		_, err := s.db.PutWith([]byte("k"), nil, kv.PutOptions{ExpireAt: time.UnixMilli(1)})
		return err
	}, write(kv.ErrInvalidTTL)},
	{"expire/negative", func(s subject) error { return s.db.Expire([]byte("k"), -1) }, write(kv.ErrInvalidTTL)},
	{"batch/past_expiry", func(s subject) error {
		b := s.db.NewBatch()
		b.PutExpireAt([]byte("k"), nil, time.UnixMilli(1))
		return s.db.Apply(context.Background(), b)
	}, write(kv.ErrInvalidTTL)},
	{"batch/empty_key", func(s subject) error {
		b := s.db.NewBatch()
		b.Delete(nil)
		return s.db.Apply(context.Background(), b)
	}, write(kv.ErrKeyEmpty)},
	{"batch/absent_family", func(s subject) error {
		b := s.db.NewBatch()
		b.CF("absent").Put([]byte("k"), nil)
		return s.db.Apply(context.Background(), b)
	}, write(kv.ErrCFNotFound)},
	{"family/alter_absent", func(s subject) error { return s.db.AlterCF("absent", kv.CFOptions{}) },
		write(kv.ErrCFNotFound)},
	{"family/options", func(s subject) error { _, err := s.db.CFOptions("f"); return err }, read},
	{"family/options_absent",
		func(s subject) error { _, err := s.db.CFOptions("absent"); return err },
		everywhere(kv.ErrCFNotFound)},
	{"family/options_reserved",
		func(s subject) error { _, err := s.db.CFOptions("__x"); return err },
		everywhere(kv.ErrCFReserved)},
	{"family/options_empty_name",
		func(s subject) error { _, err := s.db.CFOptions(""); return err },
		everywhere(kv.ErrCFName)},
	{"family/options_after_the_end", func(s subject) error {
		var kept *kv.Tx
		if err := s.db.View(func(tx *kv.Tx) error { kept = tx; return nil }); err != nil {
			return err
		}
		_, err := kept.CFOptions("f")
		return err
	}, everywhere(kv.ErrTxnDone)},
	{"family/rename_absent", func(s subject) error { return s.db.RenameCF("absent", "x") },
		write(kv.ErrCFNotFound)},
	{"family/rename_to_reserved", func(s subject) error { return s.db.RenameCF("f", "__x") },
		write(kv.ErrCFReserved)},
	{"family/ensure_reserved",
		func(s subject) error { return s.db.EnsureCF("__x", kv.CFOptions{}) },
		write(kv.ErrCFReserved)},
	{"family/drop_reserved", func(s subject) error { return s.db.DropCF("__x") }, write(kv.ErrCFReserved)},
	{"family/name_above_200_bytes",
		func(s subject) error { return s.db.CreateCF(strings.Repeat("x", 201), kv.CFOptions{}) },
		write(kv.ErrCFName)},
	{"family_view_after_the_end", func(s subject) error {
		var kept *kv.CF
		if err := s.db.View(func(tx *kv.Tx) error { kept = tx.CF("f"); return nil }); err != nil {
			return err
		}
		return kept.Put(nil, nil)
	}, everywhere(kv.ErrTxnDone)},
	{"cursor_after_the_end", func(s subject) error {
		var kept *kv.Cursor
		if err := s.db.View(func(tx *kv.Tx) error { kept = tx.Cursor(); kept.First(); return nil }); err != nil {
			return err
		}
		if kept.Next() || kept.First() {
			return errors.New("a row")
		}
		return kept.Err()
	}, everywhere(kv.ErrTxnDone)},
	{"update_after_its_end", func(s subject) error {
		var kept *kv.Tx
		err := s.db.Update(func(tx *kv.Tx) error { kept = tx; return errRolledBack })
		if !errors.Is(err, errRolledBack) {
			return err
		}
		return kept.Put(nil, nil)
	}, write(kv.ErrTxnDone)},
	{"commit_twice", func(s subject) error {
		tx, err := s.db.Begin(context.Background(), true)
		if err != nil {
			return err
		}
		return errors.Join(tx.Commit(), tx.Commit())
	}, write(kv.ErrTxnDone)},
}

// TestRefusedCallLeavesTheTransactionAsItIs makes every call with invalid arguments within one
// transaction: afterwards the transaction has the same rows as before, and commits.
func TestRefusedCallLeavesTheTransactionAsItIs(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.CreateCF("f", kv.CFOptions{}))
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		require.NoError(t, tx.PutTTL([]byte("k"), []byte("v"), time.Hour))
		for _, bad := range badKeys {
			for _, c := range pointCalls {
				require.ErrorIs(t, c.do(tx, bad.key), bad.err, c.name)
			}
		}
		for _, refused := range []error{
			tx.PutTTL([]byte("k"), []byte("x"), 0), tx.PutTTL([]byte("k"), []byte("x"), -1),
			tx.PutExpireAt([]byte("k"), []byte("x"), time.UnixMilli(1)), tx.Expire([]byte("k"), 0),
		} {
			require.ErrorIs(t, refused, kv.ErrInvalidTTL)
		}
		require.ErrorIs(t, tx.CreateCF("f", kv.CFOptions{}), kv.ErrCFExists)
		require.ErrorIs(t, tx.CreateCF("__f", kv.CFOptions{}), kv.ErrCFReserved)
		require.ErrorIs(t, tx.CreateCF("", kv.CFOptions{}), kv.ErrCFName)
		require.ErrorIs(t, tx.CF("absent").Put([]byte("k"), nil), kv.ErrCFNotFound)
		require.ErrorIs(t, tx.Commit(), kv.ErrManagedTxn)
		left, err := tx.TTL([]byte("k"))
		require.NoError(t, err)
		require.Equal(t, time.Hour, left)
		return nil
	}))
	require.Equal(t, []string{"k=v"}, rows(t, db, "default"))
}

// TestFateOfTheFailedCommit: the commit whose log bytes may be on disk returns ErrCommitUnknown; the
// next one returns ErrFailed only.
func TestFateOfTheFailedCommit(t *testing.T) {
	broken := false
	fsys := &hookFS{vfs.NewMemory(), func(call, _ string) error {
		if broken && (call == "sync" || call == "syncdata") {
			return errMachine
		}
		return nil
	}}
	db, err := openfs.Open(fsys, path, nil, txn.Options{NoDirect: true})
	require.NoError(t, err)
	fill(t, db, "a")
	broken = true
	err = db.Put([]byte("b"), nil)
	require.ErrorIs(t, err, kv.ErrCommitUnknown)
	require.ErrorIs(t, err, errMachine)
	err = db.Put([]byte("c"), nil)
	require.ErrorIs(t, err, kv.ErrFailed)
	require.ErrorIs(t, err, errMachine)
	require.NotErrorIs(t, err, kv.ErrCommitUnknown)
	require.Error(t, db.Close())
	broken = false
	got := rows(t, openOn(t, fsys, nil), "default")
	require.Contains(t, [][]string{{"a=v-a"}, {"a=v-a", "b="}}, got)
}

// subject is a store in one of four states, with what its rows need.
type subject struct {
	db  *kv.DB
	old *kv.Tx // a read transaction that was begun while the store was healthy; ended if the store is closed
}

// want is what a call returns in each state; nil: no error.
type want struct{ healthy, readOnly, poisoned, closed error }

// everywhere is a call that is refused alike in every state of an open store.
func everywhere(err error) want { return want{err, err, err, kv.ErrClosed} }

// write is a writing call with an argument that is refused, or, with nil, a good one: what is wrong
// with the store comes first.
func write(err error) want { return want{err, kv.ErrReadOnlyDB, kv.ErrFailed, kv.ErrClosed} }

// read is a reading call without fault.
var read = want{nil, nil, nil, kv.ErrClosed}

// glances is a context that ends at the n-th call of Err or Done. waited is called when Done is
// called after an earlier call: the callee waits.
type glances struct {
	context.Context
	cancel func()
	left   int
	waited func()
}

func newGlances(n int) *glances {
	ctx, cancel := context.WithCancel(context.Background())
	return &glances{Context: ctx, cancel: cancel, left: n, waited: func() {}}
}

func (g *glances) look() {
	if g.left--; g.left == 0 {
		g.cancel()
	}
}

func (g *glances) Err() error {
	g.look()
	return g.Context.Err()
}

func (g *glances) Done() <-chan struct{} {
	g.look()
	g.waited()
	return g.Context.Done()
}

// ended says whether the n-th look has come.
func (g *glances) ended() bool { return g.left <= 0 }

// A bounded call takes a context and changes something, or makes something durable.
type boundedCall struct {
	name  string
	waits int // which look at Done is that of the wait for other writers; 0: it does not wait
	do    func(ctx context.Context, db *kv.DB) error
}

var boundedCalls = []boundedCall{
	{"UpdateContext", 2, func(ctx context.Context, db *kv.DB) error {
		return db.UpdateContext(ctx, putMany(defaultCF, "new", 50))
	}},
	{"Begin", 2, func(ctx context.Context, db *kv.DB) error {
		tx, err := db.Begin(ctx, true)
		if err != nil {
			return err
		}
		return firstError(putMany(defaultCF, "new", 50)(tx), tx.Commit())
	}},
	{"Apply", 2, func(ctx context.Context, db *kv.DB) error {
		b := db.NewBatch()
		for i := range 50 {
			b.Put(fmt.Appendf(nil, "new-%d", i), []byte("v"))
		}
		return db.Apply(ctx, b)
	}},
	{"BulkLoad", 1, func(ctx context.Context, db *kv.DB) error {
		_, err := db.BulkLoad(ctx, "empty", numbered(5000))
		return err
	}},
	{"BulkLoad_with_expiries", 2, func(ctx context.Context, db *kv.DB) error {
		_, err := db.BulkLoad(ctx, "empty_with_ttl", numbered(3000))
		return err
	}},
	{"Checkpoint", 1, func(ctx context.Context, db *kv.DB) error { return db.Checkpoint(ctx) }},
	{"PurgeExpired_in_a_batch", 2, func(ctx context.Context, db *kv.DB) error {
		_, err := db.PurgeExpired(ctx, kv.PurgeOptions{})
		return err
	}},
	{"PurgeExpired_in_a_transaction", 0, func(ctx context.Context, db *kv.DB) error {
		return db.Update(func(tx *kv.Tx) error {
			_, err := tx.PurgeExpired(ctx, kv.PurgeOptions{})
			return err
		})
	}},
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestContextThatEndsAtEachLook ends the context of each call at its n-th check, for every n up to
// the call's last one, on a store without other callers and on one where another writer is open
// until the call waits. The call returns the context's error and nothing has changed, or it
// succeeds, whatever the context says by then.
func TestContextThatEndsAtEachLook(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, call := range boundedCalls {
		for _, busy := range []bool{false, true} {
			if busy && call.waits == 0 {
				continue
			}
			t.Run(call.name+map[bool]string{true: "/busy", false: "/idle"}[busy], func(t *testing.T) {
				refused := 0
				for n := 1; ; n++ {
					ctx := newGlances(n)
					err := call.bounded(t, ctx, busy)
					if !ctx.ended() {
						require.NoError(t, err)
						break
					}
					if err != nil {
						refused++
					}
				}
				if busy || call.name != "Checkpoint" { // With no one to wait for there is nothing to bound.
					require.NotZero(t, refused)
				}
			})
		}
	}
}

// bounded makes the call on a fresh store.
func (c *boundedCall) bounded(t *testing.T, ctx *glances, busy bool) error {
	db := openForCallbacks(t, &kv.Options{})
	require.NoError(t, db.CreateCF("empty", kv.CFOptions{}))
	require.NoError(t, db.CreateCF("empty_with_ttl", kv.CFOptions{DefaultTTL: time.Hour}))
	_, before, err := stored(db)
	require.NoError(t, err)
	checkpoints := db.Stats().Checkpoints
	if busy {
		holder, err := db.Begin(t.Context(), true)
		require.NoError(t, err)
		looks := 0
		ctx.waited = func() {
			if looks++; looks == c.waits {
				_ = holder.Rollback()
			}
		}
		defer func() { _ = holder.Rollback() }()
	}
	err = c.do(ctx, db)
	_, after, lookErr := stored(db)
	require.NoError(t, lookErr)
	if err != nil {
		require.Equal(t, context.Canceled, err)
		require.True(t, before == after, "something has changed, but: %v", err)
		require.Equal(t, checkpoints, db.Stats().Checkpoints)
		return err
	}
	if c.name == "Checkpoint" {
		require.Equal(t, checkpoints+1, db.Stats().Checkpoints)
	} else {
		require.False(t, before == after, "nothing has changed")
	}
	return nil
}

// TestShutdownWhoseContextEndsAtEachLook: a transaction is open until Shutdown waits, or stays open.
// Shutdown succeeds in any case; the context decides whether the transaction may end by itself.
func TestShutdownWhoseContextEndsAtEachLook(t *testing.T) {
	for _, stays := range []bool{false, true} {
		for n := 1; n < 8; n++ {
			if stays && n > 1 {
				break // It would wait for ever.
			}
			fsys := vfs.NewMemory()
			db := openOn(t, fsys, quick)
			fill(t, db, "a")
			tx, err := db.Begin(t.Context(), true)
			require.NoError(t, err)
			require.NoError(t, tx.Put([]byte("b"), nil))
			ctx := newGlances(n)
			committed := false
			ctx.waited = func() {
				if !stays && !committed && !ctx.ended() {
					require.NoError(t, tx.Commit())
					committed = true
				}
			}
			require.NoError(t, db.Shutdown(ctx))
			require.ErrorIs(t, tx.Rollback(), kv.ErrClosed)
			want := []string{"a=v-a"}
			if committed {
				want = append(want, "b=")
			}
			db = openOn(t, fsys, quick)
			require.Equal(t, want, rows(t, db, "default"))
		}
	}
}
