package kv_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

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
