package kv_test

import (
	"fmt"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
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
