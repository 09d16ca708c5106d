package kv_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/ttl"
)

func TestBatchIsAppliedInOrderAndAgain(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.CreateCF("a", kv.CFOptions{}))
	b := db.NewBatch()
	key := []byte("k1")
	b.Put(key, []byte("v"))
	key[1] = '2' // The batch has its own copy.
	b.Put(key, nil)
	b.Put([]byte("k3"), nil)
	b.Delete([]byte("k3"))
	a := b.CF("a")
	a.Put([]byte("x"), []byte("1"))
	b.CF("a").DeleteRange(nil, []byte("b"))
	require.Equal(t, 6, b.Len())
	for range 2 {
		require.NoError(t, db.Apply(t.Context(), b))
		require.Equal(t, []string{"k1=v", "k2="}, rows(t, db, "default"))
		require.Equal(t, []string{"x=1"}, rows(t, db, "a"))
		require.NoError(t, db.Clear())
	}
	b.Reset()
	require.Zero(t, b.Len())
	a.Put([]byte("y"), nil)
	require.NoError(t, db.Apply(t.Context(), b))
	require.Equal(t, []string{"x=1", "y="}, rows(t, db, "a"))
}

// TestZeroBatchIsReady: Apply checks the length of keys, when the store is known.
func TestZeroBatchIsReady(t *testing.T) {
	db := openTest(t)
	var b kv.Batch
	require.Zero(t, b.Len())
	b.Reset()
	require.NoError(t, db.Apply(t.Context(), &b))
	require.NoError(t, db.Apply(t.Context(), new(kv.Batch)))
	b.Put([]byte("k"), []byte("v"))
	b.CF("default").Put([]byte("l"), []byte("w"))
	require.Equal(t, 2, b.Len())
	require.NoError(t, db.Apply(t.Context(), &b))
	require.Equal(t, []string{"k=v", "l=w"}, rows(t, db, "default"))
	b.Put(make([]byte, db.MaxKeySize()), nil)
	require.NoError(t, db.Apply(t.Context(), &b))
	b.Delete([]byte("k"))
	b.PutTTL(make([]byte, db.MaxKeySize()+1), nil, time.Hour)
	require.ErrorIs(t, db.Apply(t.Context(), &b), kv.ErrKeyTooLarge)
	require.Len(t, rows(t, db, "default"), 3, "all or nothing")
	new(kv.BatchCF).Put([]byte("k"), nil) // of no batch: nothing happens
}

func TestBatchIsAtomic(t *testing.T) {
	db := openTest(t)
	b := db.NewBatch()
	b.Put([]byte("k"), nil)
	b.CF("absent").Put([]byte("k"), nil)
	require.ErrorIs(t, db.Apply(t.Context(), b), kv.ErrCFNotFound)
	b.Reset()
	b.Put([]byte("k"), nil)
	b.Put(nil, nil)
	b.Put(make([]byte, db.MaxKeySize()+1), nil)
	require.ErrorIs(t, db.Apply(t.Context(), b), kv.ErrKeyEmpty, "the first error")
	require.ErrorIs(t, db.Apply(t.Context(), nil), kv.ErrInvalidOptions)
	require.Empty(t, rows(t, db, "default"))
}

// TestBatchDoesWhatTheSameCallsDo: Apply decodes several operations at a time, of one family after
// the other, before it applies them one by one.
func TestBatchDoesWhatTheSameCallsDo(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	open := func() *kv.DB {
		db := openOn(t, vfs.NewMemory(), &kv.Options{Clock: func() time.Time { return now }})
		require.NoError(t, db.CreateCF("usual", kv.CFOptions{DefaultTTL: time.Hour}))
		return db
	}
	batched, called := open(), open()
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		b := batched.NewBatch()
		require.NoError(t, called.Update(func(tx *kv.Tx) error {
			for i := range rng.IntN(100) {
				family := []string{"default", "usual"}[rng.IntN(1+round%2)]
				c, w := tx.CF(family), b.CF(family)
				key := fmt.Appendf(nil, "%04d", rng.IntN(3000))
				if round%3 == 0 {
					key = fmt.Appendf(nil, "%04d", 40*round+i)
				}
				value := make([]byte, rng.IntN(300))
				var err error
				switch n := rng.IntN(20); {
				case n < 10:
					w.Put(key, value)
					err = c.Put(key, value)
				case n < 14:
					ttl := time.Duration(1 + rng.IntN(1e9))
					w.PutTTL(key, value, ttl)
					err = c.PutTTL(key, value, ttl)
				case n < 16:
					at := now.Add(time.Duration(1 + rng.IntN(1e9)))
					w.PutExpireAt(key, value, at)
					err = c.PutExpireAt(key, value, at)
				case n < 19:
					w.Delete(key)
					err = c.Delete(key)
				default:
					w.DeleteRange(key, append(key, '9'))
					err = c.DeleteRange(key, append(key, '9'))
				}
				require.NoError(t, err)
			}
			return nil
		}))
		require.NoError(t, batched.Apply(t.Context(), b))
		now = now.Add(100 * time.Millisecond)
	}
	for _, family := range []string{"default", "usual"} {
		require.Greater(t, len(rows(t, called, family)), 300)
		require.Equal(t, rows(t, called, family), rows(t, batched, family))
		require.Equal(t, expiring(t, called, family), expiring(t, batched, family))
	}
	for p := range batched.Check(t.Context()) {
		require.Fail(t, p.String())
	}
}

// TestBatchThatBringsTheFirstExpiries puts some of its own rows again, and deletes others, before
// any index has a row of them.
func TestBatchThatBringsTheFirstExpiries(t *testing.T) {
	db := openTest(t)
	b := db.NewBatch()
	for round := range 3 {
		for i := range 40 {
			switch key := fmt.Appendf(nil, "%02d", i); {
			case round == 0:
				b.PutTTL(key, []byte("first"), time.Hour)
			case i%4 == round:
				b.Put(key, []byte("for ever"))
			case i%4 == 3:
				b.Delete(key)
			}
		}
	}
	require.NoError(t, db.Apply(t.Context(), b))
	require.Len(t, rows(t, db, "default"), 30)
	require.Len(t, expiring(t, db, "default"), 10)
	for p := range db.Check(t.Context()) {
		require.Fail(t, p.String())
	}
}

// expiring lists the keys of a family that expire, in the order in which they do.
func expiring(t *testing.T, db *kv.DB, family string) (list []string) {
	t.Helper()
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		for key, at := range tx.CF(family).Expiring(time.Time{}) {
			list = append(list, fmt.Sprintf("%s %d", key, at.UnixMilli()))
		}
		return nil
	}))
	return list
}

// numbered yields n rows in order.
func numbered(n int) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for i := range n {
			if !yield(fmt.Appendf(nil, "k%08d", i), fmt.Appendf(nil, "%d", i)) {
				return
			}
		}
	}
}

func TestBulkLoad(t *testing.T) {
	fsys := vfs.NewMemory()
	db := openOn(t, fsys, nil)
	const n = 50_000
	loaded, err := db.BulkLoad(t.Context(), "default", numbered(n))
	require.NoError(t, err)
	require.Equal(t, int64(n), loaded)
	_, err = db.BulkLoad(t.Context(), "default", numbered(1))
	require.ErrorIs(t, err, kv.ErrCFNotEmpty)
	_, err = db.BulkLoad(t.Context(), "absent", numbered(1))
	require.ErrorIs(t, err, kv.ErrCFNotFound)
	require.NoError(t, db.Put([]byte("k00000005"), []byte("five")))
	require.NoError(t, db.Close())

	db = openOn(t, fsys, nil)
	i := 0
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		for k, v := range tx.All() {
			want := fmt.Sprintf("k%08d=%d", i, i)
			if i == 5 {
				want = "k00000005=five"
			}
			if got := string(k) + "=" + string(v); got != want {
				return fmt.Errorf("row %d: %s", i, got)
			}
			i++
		}
		return nil
	}))
	require.Equal(t, n, i)
}

// TestBulkLoadKeepsNoSlice: the sequence yields rows of every size in the same two slices, and fills
// them anew for each.
func TestBulkLoadKeepsNoSlice(t *testing.T) {
	sizes := []int{0, 100, 900, 5000, 70_000, 600_000}
	fill := func(value []byte, i int) []byte {
		value = value[:sizes[i%len(sizes)]]
		for j := range value {
			value[j] = byte(i + j)
		}
		return value
	}
	const rows = 300
	for name, o := range map[string]kv.CFOptions{"plain": {}, "expiring": {DefaultTTL: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			db := mustOpen(t, filepath.Join(t.TempDir(), "test.ebb"), &kv.Options{Durability: kv.NoSync})
			require.NoError(t, db.CreateCF("f", o))
			key, value := make([]byte, 8), make([]byte, sizes[len(sizes)-1])
			n, err := db.BulkLoad(t.Context(), "f", func(yield func(key, value []byte) bool) {
				for i := range rows {
					binary.BigEndian.PutUint64(key, uint64(i))
					if !yield(key, fill(value, i)) {
						return
					}
				}
			})
			require.NoError(t, err)
			require.EqualValues(t, rows, n)
			want := make([]byte, len(value))
			for i := range rows {
				got, err := db.CF("f").Get(binary.BigEndian.AppendUint64(nil, uint64(i)))
				require.NoError(t, err)
				require.True(t, bytes.Equal(fill(want, i), got), "row %d", i)
			}
			require.NoError(t, db.Close())
		})
	}
}

// TestBulkLoadBesideOtherWriters: another writer commits between the check of the family and the
// load. The state after that commit decides.
func TestBulkLoadBesideOtherWriters(t *testing.T) {
	const n = 100
	for name, test := range map[string]struct {
		meanwhile func(tx *kv.Tx) error
		want      error
	}{
		"put":  {func(tx *kv.Tx) error { return tx.CF("f").Put(small, nil) }, kv.ErrCFNotEmpty},
		"drop": {func(tx *kv.Tx) error { return tx.DropCF("f") }, kv.ErrCFNotFound},
		"create": {func(tx *kv.Tx) error {
			return errors.Join(tx.DropCF("f"),
				tx.CreateCF("f", kv.CFOptions{}))
		}, nil},
		"alter": {func(tx *kv.Tx) error {
			return tx.AlterCF("f",
				kv.CFOptions{DefaultTTL: time.Hour})
		}, nil},
		"put_after_create": {func(tx *kv.Tx) error {
			return errors.Join(tx.DropCF("f"), tx.CreateCF("f", kv.CFOptions{}), tx.CF("f").Put(small, nil))
		}, kv.ErrCFNotEmpty},
	} {
		t.Run(name, func(t *testing.T) {
			db := openTest(t)
			require.NoError(t, db.CreateCF("f", kv.CFOptions{}))
			tx := beginTx(t, db, true)
			require.NoError(t, test.meanwhile(tx))
			loaded := make(chan error)
			go func() {
				_, err := db.BulkLoad(t.Context(), "f", numbered(n))
				loaded <- err
			}()
			waitFor(t, "the load waits", func() bool { return kv.HasWaiters(db) })
			require.NoError(t, tx.Commit())
			require.ErrorIs(t, <-loaded, test.want)
			if test.want == nil {
				rows, err := db.CF("f").Count()
				require.NoError(t, err)
				require.EqualValues(t, n, rows)
			}
		})
	}
}

func TestBulkLoadThatFailsLeavesNothing(t *testing.T) {
	db := openTest(t)
	for _, test := range []struct {
		name string
		last []byte
		want error
	}{
		{"empty", nil, kv.ErrKeyEmpty},
		{"large", make([]byte, db.MaxKeySize()+1), kv.ErrKeyTooLarge},
		{"below", []byte("a"), kv.ErrKeyOrder},
		{"equal", []byte("k00000999"), kv.ErrKeyOrder},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := db.BulkLoad(t.Context(), "default", func(yield func(k, v []byte) bool) {
				for k, v := range numbered(1000) {
					if !yield(k, v) {
						return
					}
				}
				yield(test.last, nil)
			})
			require.ErrorIs(t, err, test.want)
			require.Empty(t, rows(t, db, "default"))
		})
	}
	require.PanicsWithValue(t, "mine", func() {
		_, _ = db.BulkLoad(t.Context(), "default", func(func(k, v []byte) bool) { panic("mine") })
	})
	_, err := db.BulkLoad(t.Context(), "default", nil)
	require.ErrorIs(t, err, kv.ErrInvalidOptions)
	require.NoError(t, db.Put([]byte("k"), nil), "the writer lock is free")
}

// TestBufferedRowsOfABatchAreBounded for all of its families together: none of them reaches the bound
// alone.
func TestBufferedRowsOfABatchAreBounded(t *testing.T) {
	const families, rowsOfEach = 40, 200 // each row changes two indexes
	db := openTest(t)
	b := db.NewBatch()
	for i := range families {
		name := fmt.Sprint("f", i)
		require.NoError(t, db.Update(func(tx *kv.Tx) error { return tx.CreateCF(name, kv.CFOptions{}) }))
		for j := range rowsOfEach {
			b.CF(name).PutTTL(fmt.Append(nil, j), nil, time.Hour)
		}
	}
	changes, err := kv.BufferedRows(db, b)
	require.NoError(t, err)
	require.LessOrEqual(t, changes, kv.MaxBufferedRows+2*ttl.ApplyRows)
	require.Greater(t, changes, kv.MaxBufferedRows/2)
	require.NoError(t, db.Apply(t.Context(), b))
	for i := range families {
		require.Len(t, expiring(t, db, fmt.Sprint("f", i)), rowsOfEach)
	}
	checkStore(t, db)
}
