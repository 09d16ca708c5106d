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

// TestAllocations pins what each call costs the garbage collector.
func TestAllocations(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	db := openTest(t)
	for i := range 1000 {
		fill(t, db, fmt.Sprintf("k%05d", i))
	}
	key, above := []byte("k00500"), []byte("k00501")
	count := func(name string, want float64, fn func()) {
		t.Helper()
		require.LessOrEqual(t, testing.AllocsPerRun(200, fn), want, name)
	}
	buf := make([]byte, 0, 64)
	count("db.GetAppend", 0, func() { buf, _ = db.GetAppend(buf[:0], key) })
	count("db.Has", 0, func() { _, _ = db.Has(key) })
	count("db.Get", 1, func() { _, _ = db.Get(key) })
	view := func(*kv.Tx) error { return nil }
	count("View", 1, func() { _ = db.View(view) })
	family := db.CF("default")
	count("family.GetAppend", 0, func() { buf, _ = family.GetAppend(buf[:0], key) })
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		count("tx.Get", 0, func() { _, _ = tx.Get(key) })
		count("tx.GetAppend", 0, func() { buf, _ = tx.GetAppend(buf[:0], key) })
		count("tx.CF", 0, func() { _, _ = tx.CF("default").Has(key) })
		c := tx.Cursor()
		c.First()
		count("cursor step", 0, func() {
			if !c.Next() {
				c.First()
			}
			_ = c.Value()
		})
		count("cursor seek", 0, func() { c.Seek(key) })
		count("range", 3, func() {
			for range tx.All() {
			}
		})
		count("range within bounds", 4, func() {
			for range tx.Scan(kv.ScanOptions{Lower: key, Upper: above}) {
			}
		})
		return nil
	}))
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		require.NoError(t, tx.Put(key, key))
		count("tx.Put", 0, func() { _ = tx.Put(key, key) })
		return nil
	}))
	b := db.NewBatch()
	for i := range 200 {
		b.Put(fmt.Appendf(nil, "k%05d", i*7919%1000), key)
	}
	count("200 puts in a batch", 5, func() { _ = db.Apply(nil, b) })
}
