package kv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
				contractRow{"family/" + name,
					func(s subject) error { return c.do(s.db.CF("f"), bad.key) }, want},
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
	{"expire/negative", func(s subject) error { return s.db.Expire([]byte("k"), -1) },
		write(kv.ErrInvalidTTL)},
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
		err := s.db.View(func(tx *kv.Tx) error { kept = tx.Cursor(); kept.First(); return nil })
		if err != nil {
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
	db := mustOpenOn(t, fsys, nil, txn.Options{NoDirect: true})
	fill(t, db, "a")
	broken = true
	err := db.Put([]byte("b"), nil)
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
