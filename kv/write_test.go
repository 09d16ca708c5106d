package kv_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// manyExpiring opens a store with n rows "k000000", "k000001", ... in family "f", of which the i-th
// lives for life(i), or for ever if that is 0.
func manyExpiring(t *testing.T, n int, life func(i int) time.Duration) *kv.DB {
	t.Helper()
	db := openOn(t, vfs.NewMemory(), &kv.Options{CheckpointBytes: 1 << 40})
	require.NoError(t, db.CreateCF("f", kv.CFOptions{}))
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		f := tx.CF("f")
		for i := range n {
			if _, err := f.PutWith(fmt.Appendf(nil, "k%06d", i), []byte("v"),
				kv.PutOptions{TTL: life(i)}); err != nil {
				return err
			}
		}
		return nil
	}))
	return db
}

// loggedBy is what a call adds to the log, in bytes, and in blocks where it waits for a sync.
func loggedBy(t *testing.T, db *kv.DB, call func() error) uint64 {
	t.Helper()
	before := db.Stats().LogBytesWritten
	require.NoError(t, call())
	return db.Stats().LogBytesWritten - before
}

// TestRangeOfExpiriesThatLieTogetherIsCut: a DeleteRange over 80,000 rows with a ttl took half a second
// and 1.5 MB of log, where permanent rows took 0.6 ms and 4 KB: each row of the expiry index was
// deleted by itself, also adjacent ones, as rows with one ttl have that come in the order of their
// keys.
func TestRangeOfExpiriesThatLieTogetherIsCut(t *testing.T) {
	racetest.OneGoroutine(t)
	const n = 40_000
	db := manyExpiring(t, n,
		func(i int) time.Duration { return time.Hour + time.Duration(i/100)*time.Millisecond })
	f := db.CF("f")
	logged := loggedBy(t, db, func() error { return f.DeleteRange([]byte("k005000"), []byte("k035000")) })
	require.Less(t, logged, uint64(16<<10))
	require.Equal(t, kv.FamilyStats{Rows: 10_000, TTLRows: 10_000}, db.Stats().Families["f"])
	logged = loggedBy(t, db, func() error { return f.DeletePrefix([]byte("k004")) })
	require.Less(t, logged, uint64(16<<10))
	require.Equal(t, kv.FamilyStats{Rows: 9_000, TTLRows: 9_000}, db.Stats().Families["f"])
}

// TestRangeOfExpiriesThatLieApartTakesItsOwnRows deletes ranges whose expiry rows are mixed with
// those of other keys, in every density: Check, at the end, proves the indexes row by row.
func TestRangeOfExpiriesThatLieApartTakesItsOwnRows(t *testing.T) {
	racetest.OneGoroutine(t)
	const n = 20_000
	for name, life := range map[string]func(i int) time.Duration{
		"anywhere":    func(i int) time.Duration { return time.Duration(1+i*7919%20011) * time.Minute },
		"all_at_once": func(int) time.Duration { return time.Hour },
		"every_third": func(i int) time.Duration { return time.Duration(i%3/2) * time.Hour },
		"some_elsewhere": func(i int) time.Duration {
			return time.Hour +
				time.Duration(i%500/499)*time.Duration(i)*time.Second
		},
		"in_two_halves": func(i int) time.Duration { return time.Duration(1+i%2) * time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			db := manyExpiring(t, n, life)
			f, gone := db.CF("f"), map[int]bool{}
			for _, r := range [][2]int{{0, 10}, {100, 163}, {100, 300}, {1000, 1065}, {3000, 19_000},
				{2999, 19_990}} {
				require.NoError(t, f.DeleteRange(fmt.Appendf(nil, "k%06d", r[0]),
					fmt.Appendf(nil, "k%06d", r[1])))
				for i := r[0]; i < r[1]; i++ {
					gone[i] = true
				}
				if !racetest.Quick() { // The end of the test checks the store, too.
					checkStore(t, db)
				}
			}
			want := kv.FamilyStats{Rows: int64(n - len(gone))}
			for i := range n {
				if !gone[i] && life(i) != 0 {
					want.TTLRows++
				}
			}
			require.Equal(t, want, db.Stats().Families["f"])
		})
	}
}

// TestRangeWithoutExpiriesCutsOnlyRows: other keys of the family have a ttl, none of the range
// does.
func TestRangeWithoutExpiriesCutsOnlyRows(t *testing.T) {
	db := manyExpiring(t, 20_000, func(i int) time.Duration { return time.Duration(i/10_000) * time.Hour })
	require.Less(t,
		loggedBy(t, db, func() error { return db.CF("f").DeleteRange([]byte("k"), []byte("k01")) }),
		uint64(16<<10))
	require.Equal(t, kv.FamilyStats{Rows: 10_000, TTLRows: 10_000}, db.Stats().Families["f"])
}

// TestClearAndDropCostTheSameWhateverTheyHold measures the log, of families whose rows expire in any
// order.
func TestClearAndDropCostTheSameWhateverTheyHold(t *testing.T) {
	racetest.OneGoroutine(t)
	for name, remove := range map[string]func(db *kv.DB) error{
		"clear":  func(db *kv.DB) error { return db.CF("f").Clear() },
		"drop":   func(db *kv.DB) error { return db.DropCF("f") },
		"range":  func(db *kv.DB) error { return db.CF("f").DeleteRange([]byte("a"), []byte("z")) },
		"prefix": func(db *kv.DB) error { return db.CF("f").DeletePrefix([]byte("k")) },
	} {
		t.Run(name, func(t *testing.T) {
			db := manyExpiring(t, 20_000,
				func(i int) time.Duration { return time.Duration(1+i*7919%20011) * time.Minute })
			require.Less(t, loggedBy(t, db, func() error { return remove(db) }), uint64(16<<10))
			require.Zero(t, db.Stats().Families["f"].TTLRows)
		})
	}
}

func TestConditionalWrites(t *testing.T) {
	db := openTest(t)
	k, v, w := []byte("k"), []byte("v"), []byte("w")
	expect := func(want bool) func(bool, error) {
		return func(got bool, err error) {
			t.Helper()
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	expect(false)(db.PutWith(k, v, kv.PutOptions{IfPresent: true}))
	expect(true)(db.PutWith(k, v, kv.PutOptions{IfAbsent: true}))
	expect(false)(db.PutWith(k, w, kv.PutOptions{IfAbsent: true}))
	expect(true)(db.PutWith(k, w, kv.PutOptions{IfPresent: true}))
	expect(false)(db.CompareAndSwap(k, v, v, kv.PutOptions{}))
	expect(false)(db.CompareAndSwap(k, nil, v, kv.PutOptions{}))
	expect(true)(db.CompareAndSwap(k, w, v, kv.PutOptions{IfPresent: true}))
	expect(false)(db.CompareAndDelete(k, w))
	expect(false)(db.CompareAndDelete(k, nil))
	expect(true)(db.CompareAndDelete(k, v))
	expect(false)(db.CompareAndSwap(k, []byte{}, v, kv.PutOptions{}))
	expect(true)(db.CompareAndSwap(k, nil, nil, kv.PutOptions{IfAbsent: true}))
	expect(true)(db.CompareAndSwap(k, []byte{}, v, kv.PutOptions{}))
	require.Equal(t, []string{"k=v"}, rows(t, db, "default"))
	for _, o := range []kv.PutOptions{{IfAbsent: true, IfPresent: true}} {
		_, err := db.PutWith(k, v, o)
		require.ErrorIs(t, err, kv.ErrInvalidOptions)
	}
	_, err := db.CompareAndSwap(k, v, w, kv.PutOptions{IfAbsent: true})
	require.ErrorIs(t, err, kv.ErrInvalidOptions)
}

func TestIncrement(t *testing.T) {
	db := openTest(t)
	k := []byte("n")
	for _, step := range []struct{ delta, want int64 }{
		{5, 5}, {-7, -2}, {math.MaxInt64, math.MaxInt64 - 2}, {2, math.MaxInt64}, {-1, math.MaxInt64 - 1},
	} {
		sum, err := db.Increment(k, step.delta, 0)
		require.NoError(t, err)
		require.Equal(t, step.want, sum)
	}
	_, err := db.Increment(k, 2, 0)
	require.ErrorIs(t, err, kv.ErrNotCounter)
	value, err := db.Get(k)
	require.NoError(t, err)
	require.Equal(t, "\x7f\xff\xff\xff\xff\xff\xff\xfe", string(value), "nothing changed")
	sum, err := db.Increment([]byte("low"), math.MinInt64, 0)
	require.NoError(t, err)
	require.Equal(t, int64(math.MinInt64), sum)
	_, err = db.Increment([]byte("low"), -1, 0)
	require.ErrorIs(t, err, kv.ErrNotCounter)
	require.NoError(t, db.Put(k, []byte("four")))
	_, err = db.Increment(k, 1, 0)
	require.ErrorIs(t, err, kv.ErrNotCounter)
}

// TestIncrementAsksForTheTTLOfANewKeyOnly: near the largest instant the ttl overflows, which does not
// matter to a present counter.
func TestIncrementAsksForTheTTLOfANewKeyOnly(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	require.NoError(t, db.CreateCF("f", kv.CFOptions{DefaultTTL: time.Hour}))
	f := db.CF("f")
	there, absent := []byte("there"), []byte("absent")
	_, err := f.PutWith(there, make([]byte, 8), kv.PutOptions{NoExpiry: true})
	require.NoError(t, err)
	clock.ms.Store(math.MaxInt64 - 1000)
	for i, ttl := range []time.Duration{0, time.Hour, time.Second} {
		sum, err := f.Increment(there, 1, ttl)
		require.NoError(t, err)
		require.Equal(t, int64(i+1), sum)
		left, err := f.TTL(there)
		require.NoError(t, err)
		require.Equal(t, kv.NoExpiry, left)
	}
	for _, ttl := range []time.Duration{0, time.Hour} {
		_, err = f.Increment(absent, 1, ttl)
		require.ErrorIs(t, err, kv.ErrInvalidTTL)
	}
	_, err = f.Increment(there, 1, -1)
	require.ErrorIs(t, err, kv.ErrInvalidTTL, "the key has no such ttl")
	_, err = f.Increment(absent, 1, time.Second)
	require.NoError(t, err)
}

func TestGetAndExpireKeepsAKeyAlive(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	k := []byte("session")
	require.NoError(t, db.PutTTL(k, []byte("ann"), time.Minute))
	for range 5 {
		clock.move(50 * time.Second)
		value, err := db.GetAndExpire(k, time.Minute)
		require.NoError(t, err)
		require.Equal(t, "ann", string(value))
		left, err := db.TTL(k)
		require.NoError(t, err)
		require.Equal(t, time.Minute, left)
	}
	_, err := db.GetAndExpire(k, 0)
	require.ErrorIs(t, err, kv.ErrInvalidTTL)
	_, err = db.GetAndExpire(k, kv.NoExpiry)
	require.ErrorIs(t, err, kv.ErrInvalidTTL)
	_, err = db.GetAndExpire([]byte("absent"), time.Minute)
	require.ErrorIs(t, err, kv.ErrNotFound)
	clock.move(time.Minute)
	_, err = db.GetAndExpire(k, time.Minute)
	require.ErrorIs(t, err, kv.ErrNotFound, "an expired key does not come back")
}

// TestGetAndExpireReturnsACopy: changes of the caller and of the transaction do not meet.
func TestGetAndExpireReturnsACopy(t *testing.T) {
	db := openTest(t)
	small, large := []byte("small"), []byte("large")
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		require.NoError(t, tx.Put(small, []byte("old")))
		require.NoError(t, tx.Put(large, make([]byte, 50_000)))
		value, err := tx.GetAndExpire(small, time.Hour)
		require.NoError(t, err)
		require.NoError(t, tx.Put(small, []byte("new")))
		require.Equal(t, "old", string(value))
		value, err = tx.GetAndExpire(large, time.Hour)
		require.NoError(t, err)
		value[0] = 1
		return nil
	}))
	value, err := db.Get(large)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 50_000), value)
	empty, err := db.PutWith([]byte("empty"), nil, kv.PutOptions{})
	require.NoError(t, err)
	require.True(t, empty)
	value, err = db.GetAndExpire([]byte("empty"), time.Hour)
	require.NoError(t, err)
	require.NotNil(t, value)
}
