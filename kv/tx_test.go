package kv_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

func TestPutGetDelete(t *testing.T) {
	db := openTest(t)
	key := []byte("k")
	_, err := db.Get(key)
	require.ErrorIs(t, err, kv.ErrNotFound)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, db.Put(key, []byte("v")))
	value, err := db.Get(key)
	require.NoError(t, err)
	require.Equal(t, "v", string(value))
	value, err = db.GetAppend([]byte("<"), key)
	require.NoError(t, err)
	require.Equal(t, "<v", string(value))
	size, err := db.Size(key)
	require.NoError(t, err)
	require.Equal(t, 1, size)
	require.NoError(t, db.Delete(key))
	require.NoError(t, db.Delete(key), "an absent key is no error")
	found, err := db.Has(key)
	require.NoError(t, err)
	require.False(t, found)
	_, err = db.Size(key)
	require.ErrorIs(t, err, kv.ErrNotFound)
	dst, err := db.GetAppend([]byte("<"), key)
	require.ErrorIs(t, err, kv.ErrNotFound)
	require.Equal(t, "<", string(dst))
}

func TestEmptyValueIsNotNil(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.Put([]byte("a"), nil))
	require.NoError(t, db.Put([]byte("b"), []byte{}))
	for _, key := range []string{"a", "b"} {
		value, err := db.Get([]byte(key))
		require.NoError(t, err)
		require.NotNil(t, value)
		require.Empty(t, value)
	}
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		value, err := tx.Get([]byte("a"))
		require.NoError(t, err)
		require.NotNil(t, value)
		for _, value := range tx.All() {
			require.NotNil(t, value)
		}
		for _, value := range tx.Scan(kv.ScanOptions{KeysOnly: true}) {
			require.Nil(t, value)
		}
		c := tx.Cursor()
		require.True(t, c.First())
		require.NotNil(t, c.Value())
		return nil
	}))
}

func TestLargestKeyAndLargeValues(t *testing.T) {
	for _, size := range []int{4096, 16384, 65536} {
		db := openOn(t, vfs.NewMemory(), &kv.Options{PageSize: size})
		require.Equal(t, size/4, db.MaxKeySize())
		key := bytes.Repeat([]byte("k"), size/4)
		value := bytes.Repeat([]byte("v"), 3*size+1)
		require.NoError(t, db.Put(key, value))
		got, err := db.Get(key)
		require.NoError(t, err)
		require.True(t, bytes.Equal(value, got))
		require.ErrorIs(t, db.Put(append(key, 'k'), nil), kv.ErrKeyTooLarge)
	}
}

func TestUpdateRollsBackOnError(t *testing.T) {
	db := openTest(t)
	mine := errors.New("mine")
	require.Equal(t, mine, db.Update(func(tx *kv.Tx) error {
		require.NoError(t, tx.Put([]byte("k"), []byte("v")))
		return mine
	}))
	require.Empty(t, rows(t, db, "default"))
}

// TestPanicInCallbackRollsBack: a panic, and the end of the goroutine, leave no transaction and no
// lock behind.
func TestPanicInCallbackRollsBack(t *testing.T) {
	db := openTest(t)
	call := map[string]func(func(*kv.Tx) error) error{"View": db.View, "Update": db.Update}
	for name, run := range call {
		t.Run(name, func(t *testing.T) {
			require.PanicsWithValue(t, "mine", func() {
				_ = run(func(tx *kv.Tx) error {
					_ = tx.Put([]byte("k"), []byte("v"))
					panic("mine")
				})
			})
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = run(func(tx *kv.Tx) error {
					_ = tx.Put([]byte("k"), []byte("v"))
					runtime.Goexit()
					return nil
				})
			}()
			<-done
			require.Zero(t, db.Stats().Readers)
			require.NoError(t, db.Put([]byte("next"), nil))
		})
	}
	require.Equal(t, []string{"next="}, rows(t, db, "default"))
}

func TestPanicInRangeBodyGoesOnUnchanged(t *testing.T) {
	db := openTest(t)
	fill(t, db, "a", "b")
	require.PanicsWithError(t, "mine", func() {
		_ = db.Update(func(tx *kv.Tx) error {
			for range tx.All() {
				panic(errors.New("mine"))
			}
			return nil
		})
	})
	require.NoError(t, db.Put([]byte("c"), nil))
}

func TestManagedTransactionRefusesToEnd(t *testing.T) {
	db := openTest(t)
	for _, run := range []func(func(*kv.Tx) error) error{db.View, db.Update} {
		var kept *kv.Tx
		require.NoError(t, run(func(tx *kv.Tx) error {
			require.ErrorIs(t, tx.Commit(), kv.ErrManagedTxn)
			require.ErrorIs(t, tx.Rollback(), kv.ErrManagedTxn)
			kept = tx
			_, err := tx.Has([]byte("still usable"))
			return err
		}))
		require.ErrorIs(t, kept.Commit(), kv.ErrTxnDone)
		require.ErrorIs(t, kept.Rollback(), kv.ErrTxnDone)
	}
}

func TestBeginCommitRollback(t *testing.T) {
	db := openTest(t)
	tx := beginTx(t, db, true)
	require.True(t, tx.Writable())
	before := tx.Seq()
	require.NoError(t, tx.Put([]byte("k"), []byte("v")))
	_, err := db.Get([]byte("k"))
	require.ErrorIs(t, err, kv.ErrNotFound, "others do not see it yet")
	require.NoError(t, tx.Commit())
	require.Equal(t, before+1, tx.Seq())
	require.ErrorIs(t, tx.Rollback(), kv.ErrTxnDone)

	var none context.Context // means background
	tx, err = db.Begin(none, false)
	require.NoError(t, err)
	require.Equal(t, before+1, tx.Seq())
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, tx.Commit(), kv.ErrTxnDone)

	tx = beginTx(t, db, true)
	require.NoError(t, tx.Delete([]byte("k")))
	require.NoError(t, tx.Rollback())
	require.Equal(t, []string{"k=v"}, rows(t, db, "default"))
}

// TestEndedTransactionIsDone: every object of a transaction returns ErrTxnDone after its end.
func TestEndedTransactionIsDone(t *testing.T) {
	db := openTest(t)
	fill(t, db, "a", "b")
	for _, writable := range []bool{false, true} {
		tx, err := db.Begin(t.Context(), writable)
		require.NoError(t, err)
		family, cursor, all, save := tx.CF("default"), tx.Cursor(), tx.All(), tx.Savepoint()
		require.True(t, cursor.First())
		require.NoError(t, tx.Rollback())

		key := []byte("a")
		_, err = tx.Get(key)
		require.ErrorIs(t, err, kv.ErrTxnDone)
		_, err = family.Get(key)
		require.ErrorIs(t, err, kv.ErrTxnDone)
		_, err = tx.CF("other").Get(key)
		require.ErrorIs(t, err, kv.ErrTxnDone)
		require.ErrorIs(t, tx.Put(nil, nil), kv.ErrTxnDone)
		require.ErrorIs(t, tx.CreateCF("x", kv.CFOptions{}), kv.ErrTxnDone)
		require.ErrorIs(t, tx.RollbackTo(save), kv.ErrTxnDone)
		_, err = tx.ListCFs()
		require.ErrorIs(t, err, kv.ErrTxnDone)
		require.False(t, cursor.Next())
		require.ErrorIs(t, cursor.Err(), kv.ErrTxnDone)
		require.ErrorIs(t, cursor.Delete(), kv.ErrTxnDone)
		for range all {
			t.Error("a range of an ended transaction has a row")
		}
		require.ErrorIs(t, tx.Err(), kv.ErrTxnDone)
		tx.OnCommit(func() { t.Error("OnCommit after the end") })
	}
}

func TestSavepoints(t *testing.T) {
	db := openTest(t)
	other := beginTx(t, db, false)
	defer func() { require.NoError(t, other.Rollback()) }()
	ran := []string{}
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		put := func(k string) {
			require.NoError(t, tx.Put([]byte(k), nil))
			tx.OnCommit(func() { ran = append(ran, k) })
		}
		put("a")
		first := tx.Savepoint()
		put("b")
		require.NoError(t, tx.CreateCF("late", kv.CFOptions{}))
		late := tx.CF("late")
		require.NoError(t, late.Put([]byte("x"), nil))
		second := tx.Savepoint()
		put("c")
		require.NoError(t, tx.RollbackTo(second))
		require.NoError(t, tx.RollbackTo(second), "it may be used again")
		require.NoError(t, tx.RollbackTo(first))
		require.ErrorIs(t, tx.RollbackTo(second), kv.ErrSavepoint, "an earlier one ends the later")
		require.ErrorIs(t, tx.RollbackTo(other.Savepoint()), kv.ErrSavepoint)
		_, err := late.Count()
		require.ErrorIs(t, err, kv.ErrCFDropped)
		_, err = tx.CF("late").Count()
		require.ErrorIs(t, err, kv.ErrCFNotFound)
		require.NoError(t, tx.CreateCF("next", kv.CFOptions{}))
		require.ErrorIs(t, late.Put([]byte("x"), nil), kv.ErrCFDropped, "the next family is another one")
		n, err := tx.CF("next").Count()
		require.NoError(t, err)
		require.Zero(t, n)
		put("d")
		return nil
	}))
	require.Equal(t, []string{"a=", "d="}, rows(t, db, "default"))
	require.Equal(t, []string{"a", "d"}, ran)
	names, err := db.ListCFs()
	require.NoError(t, err)
	require.Equal(t, []string{"default", "next"}, names)
}

func TestOnCommitRunsAfterTheCommitIsVisible(t *testing.T) {
	db := openTest(t)
	ran := 0
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		tx.OnCommit(nil)
		tx.OnCommit(func() {
			ran++
			found, err := db.Has([]byte("k"))
			require.NoError(t, err)
			require.True(t, found)
			require.NoError(t, db.Put([]byte("from OnCommit"), nil), "it may write")
		})
		return tx.Put([]byte("k"), nil)
	}))
	require.Equal(t, 1, ran)
	require.Error(t, db.Update(func(tx *kv.Tx) error {
		tx.OnCommit(func() { ran++ })
		return errors.New("no")
	}))
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		tx.OnCommit(func() { ran++ })
		return nil
	}))
	require.Equal(t, 1, ran)
}

func TestErrorOfARangeStaysOnTheTransaction(t *testing.T) {
	db := openTest(t)
	absent := func(tx *kv.Tx) error {
		for range tx.CF("absent").All() {
			t.Error("a row of an absent family")
		}
		require.ErrorIs(t, tx.Err(), kv.ErrCFNotFound)
		return nil
	}
	require.ErrorIs(t, db.View(absent), kv.ErrCFNotFound)
	require.ErrorIs(t, db.Update(func(tx *kv.Tx) error {
		require.NoError(t, tx.Put([]byte("k"), nil))
		return absent(tx)
	}), kv.ErrCFNotFound)
	require.Empty(t, rows(t, db, "default"), "rolled back")
	require.ErrorIs(t, db.View(func(tx *kv.Tx) error {
		for range tx.Scan(kv.ScanOptions{Limit: -1}) {
			t.Error("a row of a range that is not allowed")
		}
		return nil
	}), kv.ErrInvalidOptions)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		require.ErrorIs(t, tx.Put(nil, nil), kv.ErrKeyEmpty)
		return tx.Put([]byte("k"), nil)
	}), "a validation error of a point call does not stay")
}

func TestDeleteRanges(t *testing.T) {
	keys := []string{"a", "ab", "b", "c", "\xff", "\xff\xff"}
	for _, test := range []struct {
		name string
		run  func(db *kv.DB) error
		want string
	}{
		{"between", func(db *kv.DB) error { return db.DeleteRange([]byte("ab"), []byte("c")) },
			"a c \xff \xff\xff"},
		{"from", func(db *kv.DB) error { return db.DeleteRange([]byte("b"), nil) }, "a ab"},
		{"below", func(db *kv.DB) error { return db.DeleteRange(nil, []byte("b")) }, "b c \xff \xff\xff"},
		{"empty_bounds_do_not_bound", func(db *kv.DB) error {
			return db.DeleteRange([]byte{},
				[]byte{})
		}, ""},
		{"equal_bounds", func(db *kv.DB) error { return db.DeleteRange([]byte("b"), []byte("b")) },
			"a ab b c \xff \xff\xff"},
		{"crossed_bounds", func(db *kv.DB) error {
			return db.DeleteRange([]byte("c"),
				[]byte("a"))
		}, "a ab b c \xff \xff\xff"},
		{"prefix", func(db *kv.DB) error { return db.DeletePrefix([]byte("a")) }, "b c \xff \xff\xff"},
		{"last_prefix", func(db *kv.DB) error { return db.DeletePrefix([]byte("\xff")) }, "a ab b c"},
		{"clear", (*kv.DB).Clear, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			db := openTest(t)
			fill(t, db, keys...)
			require.NoError(t, test.run(db))
			got := []string{}
			require.NoError(t, db.View(func(tx *kv.Tx) error {
				for k := range tx.All() {
					got = append(got, string(k))
				}
				return nil
			}))
			require.Equal(t, test.want, strings.Join(got, " "))
			n, err := db.Count()
			require.NoError(t, err)
			require.Equal(t, int64(len(got)), n)
		})
	}
}

func TestContextBoundsTheWaitForTheWriter(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.Update(func(*kv.Tx) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := db.UpdateContext(ctx, func(*kv.Tx) error {
			t.Error("a second writer beside the first")
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		_, err = db.Begin(ctx, true)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, db.Apply(ctx, db.NewBatch()), context.Canceled)
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, db.UpdateContext(ctx, func(tx *kv.Tx) error {
		cancel()
		return tx.Put([]byte("k"), nil)
	}), context.Canceled)
	require.Empty(t, rows(t, db, "default"))
}

func TestRelaxedCommitsSurviveClose(t *testing.T) {
	fsys := vfs.NewMemory()
	db := openOn(t, fsys, quick)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		tx.SetDurability(kv.NoSync)
		return tx.Put([]byte("k"), []byte("v"))
	}))
	require.NoError(t, db.Sync())
	require.NoError(t, db.Checkpoint(t.Context()))
	require.NoError(t, db.Close())
	db = openOn(t, fsys, nil)
	require.True(t, db.RecoveryInfo().Clean)
	require.Equal(t, []string{"k=v"}, rows(t, db, "default"))
	require.ErrorIs(t, db.Update(func(tx *kv.Tx) error {
		tx.SetDurability(9)
		return tx.Put([]byte("k"), nil)
	}), kv.ErrInvalidOptions)
}
