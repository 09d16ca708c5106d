package kv_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/kv"
)

// TestCountRangeCountsAsARangeDoes: for random bounds in a tree of several levels, with changes that
// are not committed yet.
func TestCountRangeCountsAsARangeDoes(t *testing.T) {
	racetest.OneGoroutine(t)
	db := openTest(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	key := func() []byte { return fmt.Appendf(nil, "%06d", rnd.IntN(30_000)) }
	count := func(tx *kv.Tx, lo, hi []byte) {
		t.Helper()
		want := int64(0)
		for range tx.Scan(kv.ScanOptions{Lower: lo, Upper: hi, KeysOnly: true}) {
			want++
		}
		got, err := tx.CountRange(lo, hi)
		require.NoError(t, err)
		require.Equal(t, want, got, "[%q, %q)", lo, hi)
	}
	look := func(tx *kv.Tx) {
		t.Helper()
		for range 20 {
			count(tx, key(), key())
		}
		count(tx, nil, key())
		count(tx, key(), nil)
		count(tx, nil, nil)
	}
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		count(tx, nil, nil)
		count(tx, nil, key())
		return nil
	}))
	for range 4 {
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			for range 5000 {
				if err := tx.Put(key(), []byte("a value of some bytes")); err != nil {
					return err
				}
			}
			look(tx)
			if err := tx.DeleteRange([]byte("010000"), []byte("011000")); err != nil {
				return err
			}
			look(tx)
			return nil
		}))
		require.NoError(t, db.View(func(tx *kv.Tx) error { look(tx); return nil }))
	}
}

func TestCountRangeCountsExpiredRows(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	require.NoError(t, db.PutTTL([]byte("a"), nil, time.Second))
	require.NoError(t, db.Put([]byte("b"), nil))
	clock.move(time.Minute)
	n, err := db.CountRange([]byte("a"), []byte("b"))
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
	n, err = db.CountRange([]byte("b"), []byte("a"))
	require.NoError(t, err)
	require.Zero(t, n)
	_, err = db.CF("absent").CountRange(nil, nil)
	require.ErrorIs(t, err, kv.ErrCFNotFound)
}
