package kv_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// sameAsGet compares GetMany of some keys with as many calls of Get.
func sameAsGet(t *testing.T, v *kv.CF, keys [][]byte) {
	t.Helper()
	got := make([][]byte, len(keys))
	require.NoError(t, v.GetMany(keys, func(i int, value []byte) bool {
		require.Nil(t, got[i], "key %d comes twice", i)
		require.NotNil(t, value)
		got[i] = value
		return true
	}))
	for i, key := range keys {
		want, err := v.Get(key)
		if errors.Is(err, kv.ErrNotFound) {
			require.Nil(t, got[i], "%q", key)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, got[i], "%q", key)
	}
}

// TestGetManyGetsWhatGetDoes: keys that are there, absent, expired, large, empty, asked for twice, and
// written by the transaction itself; while a reader stays on its snapshot, and after a checkpoint.
func TestGetManyGetsWhatGetDoes(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	rnd := rand.New(rand.NewPCG(3, 4))
	key := func() []byte {
		return fmt.Appendf(nil, "%s%05d", []string{"", "long prefix "}[rnd.IntN(2)], rnd.IntN(6000))
	}
	keys := func(n int) (some [][]byte) {
		for range n {
			some = append(some, key())
		}
		if n > 2 {
			some[n-1] = some[0]
		}
		return some
	}
	look := func(tx *kv.Tx) {
		t.Helper()
		for _, n := range []int{0, 1, 15, 16, 17, 63, 64, 100, 1100} {
			sameAsGet(t, tx.CF("default"), keys(n))
		}
	}
	var held *kv.Tx
	for round := range 12 {
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			for range 1500 {
				k, size := key(), rnd.IntN(120)
				if rnd.IntN(200) == 0 {
					size = 3000 + rnd.IntN(20_000)
				}
				switch rnd.IntN(5) {
				case 0:
					require.NoError(t, tx.Delete(k))
				case 1:
					require.NoError(t, tx.PutTTL(k, make([]byte, size),
						time.Duration(1+rnd.IntN(8))*time.Second))
				default:
					require.NoError(t, tx.Put(k, make([]byte, size)))
				}
			}
			look(tx)
			return nil
		}))
		clock.move(time.Second)
		switch round % 4 {
		case 0:
			tx := beginTx(t, db, false)
			held = tx
		case 2:
			require.NoError(t, db.Checkpoint(t.Context()))
		case 3:
			look(held)
			require.NoError(t, held.Rollback())
		}
		require.NoError(t, db.View(func(tx *kv.Tx) error { look(tx); return nil }))
	}
}

func TestGetManyOfOneShotsCopies(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	require.NoError(t, db.Put([]byte("a"), []byte("1")))
	require.NoError(t, db.Put([]byte("empty"), nil))
	require.NoError(t, db.PutTTL([]byte("due"), []byte("2"), time.Second))
	clock.move(time.Minute)
	keys := [][]byte{[]byte("absent"), []byte("a"), []byte("due"), []byte("empty"), []byte("a")}
	values, err := db.GetMany(keys)
	require.NoError(t, err)
	require.Equal(t, [][]byte{nil, []byte("1"), nil, {}, []byte("1")}, values)
	values[1][0] = 'x'
	require.Equal(t, "1", string(values[4]))
	values, err = db.CF("default").GetMany(nil)
	require.NoError(t, err)
	require.Empty(t, values)
}

func TestGetManyErrors(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.Put([]byte("a"), nil))
	never := func(int, []byte) bool { t.Error("called"); return false }
	tx := beginTx(t, db, false)
	require.ErrorIs(t, tx.GetMany([][]byte{[]byte("a"), nil}, never), kv.ErrKeyEmpty)
	require.ErrorIs(t, tx.GetMany([][]byte{[]byte("a"), largeKey}, never), kv.ErrKeyTooLarge)
	require.ErrorIs(t, tx.CF("absent").GetMany(nil, never), kv.ErrCFNotFound)
	require.NoError(t, tx.Rollback())
	require.ErrorIs(t, tx.GetMany(nil, never), kv.ErrTxnDone)
	_, err := db.CF("absent").GetMany(nil)
	require.ErrorIs(t, err, kv.ErrCFNotFound)
}

// TestGetManyCallsBackOutsideOfTheTransaction: the function may stop the call, use the transaction, and
// end the family.
func TestGetManyCallsBackOutsideOfTheTransaction(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.CreateCF("f", kv.CFOptions{}))
	var keys [][]byte
	for i := range 40 {
		keys = append(keys, fmt.Appendf(nil, "%02d", i))
		require.NoError(t, db.CF("f").Put(keys[i], keys[i]))
	}
	tx := beginTx(t, db, true)
	f, calls := tx.CF("f"), 0
	require.NoError(t, f.GetMany(keys, func(int, []byte) bool { calls++; return calls < 3 }))
	require.Equal(t, 3, calls)
	require.NoError(t, f.GetMany(keys, func(i int, value []byte) bool {
		require.Equal(t, keys[i], value, "a value stays valid beside changes")
		require.NoError(t, f.Put(keys[i], []byte("new")))
		return true
	}))
	require.ErrorIs(t, f.GetMany(keys, func(i int, _ []byte) bool {
		if i == 0 {
			require.NoError(t, tx.DropCF("f"))
		}
		return true
	}), kv.ErrCFDropped)
	require.NoError(t, tx.Rollback())
}

func TestGetManyAllocatesNothing(t *testing.T) {
	db := openTest(t)
	var keys [][]byte
	for i := range 100 {
		keys = append(keys, fmt.Appendf(nil, "%02d", i))
		require.NoError(t, db.Put(keys[i], keys[i]))
	}
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		sum := 0
		allocs := testing.AllocsPerRun(20, func() {
			if err := tx.GetMany(keys, func(_ int,
				value []byte) bool {
				sum += len(value)
				return true
			}); err != nil {
				t.Error(err)
			}
		})
		require.Zero(t, allocs)
		return nil
	}))
}

// TestGetManyOfKeysBesideThePrefixOfABranch: the separators of a branch begin with m0, and a key that
// does not follows one whose bytes behind that are the same. It is in another child. The store is one
// whose keys GetMany looks up together.
func TestGetManyOfKeysBesideThePrefixOfABranch(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 3000 {
			require.NoError(t, tx.Put(fmt.Appendf(nil, "m%05d", i), make([]byte, 500)))
		}
		for _, key := range []string{"ax0050", "zx2950"} {
			require.NoError(t, tx.Put([]byte(key), []byte(key)))
		}
		return nil
	}))
	keys := [][]byte{[]byte("m00050"), []byte("ax0050"), []byte("m02950"), []byte("zx2950"), []byte("m")}
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		sameAsGet(t, tx.CF("default"), keys)
		return nil
	}))
}
