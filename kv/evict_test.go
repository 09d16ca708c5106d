package kv_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

func TestIteratingOverExpiredKeysIsBounded(t *testing.T) {
	racetest.OneGoroutine(t)
	n := racetest.Sample(100_000, 20_000)
	if racetest.Enabled {
		n = 5_000
	}
	db, clock := openClock(t, kv.Options{})
	fillTTL(t, db, n, time.Second)
	require.NoError(t, db.Put([]byte("z"), nil))
	clock.move(time.Second)
	before := db.Stats().Commits
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		c := tx.Cursor()
		allocs := testing.AllocsPerRun(1, func() { require.True(t, c.First()) })
		require.Equal(t, "z", string(c.Key()))
		require.Less(t, allocs, 5000.0)
		require.False(t, c.Prev())
		return nil
	}))
	require.Equal(t, before, db.Stats().Commits, "a read commits nothing")
	require.LessOrEqual(t, kv.Notes(db), 1024)
	require.NoError(t, db.Put([]byte("y"), nil))
	require.Equal(t, before+2, db.Stats().Commits, "one batch of evictions, and the put")
	require.Equal(t, int64(256), db.Stats().Families["default"].Evicted)
}

// TestOneShotReadsEvictInBatches: 20,000 gets of expired keys, one after the other, made 18,980
// commits, and each of them copied the pages that the one before had copied.
func TestOneShotReadsEvictInBatches(t *testing.T) {
	const n, batch = 2000, 256
	db, clock := openClock(t, kv.Options{})
	fillTTL(t, db, n, time.Second)
	clock.move(time.Second)
	before := db.Stats()
	for i := range n {
		_, err := db.Get(fmt.Appendf(nil, "k%06d", i))
		require.ErrorIs(t, err, kv.ErrNotFound)
	}
	after := db.Stats()
	require.EqualValues(t, n/batch, after.Commits-before.Commits)
	require.EqualValues(t, n/batch*batch, after.Families["default"].Evicted)
	require.EqualValues(t, n%batch, count(t, db), "less than a batch waits")
	require.NoError(t, db.Put([]byte("z"), nil))
	require.EqualValues(t, 1, count(t, db), "the next write takes it along")
	require.EqualValues(t, n/batch+2, db.Stats().Commits-before.Commits)
	require.Zero(t, kv.Notes(db))
}

func TestReadNeverTouchesACallersTransaction(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	require.NoError(t, db.PutTTL([]byte("k"), nil, time.Second))
	clock.move(time.Second)
	tx := beginTx(t, db, true)
	require.NoError(t, tx.Put([]byte("other"), nil))
	for range 3 {
		_, err := tx.Get([]byte("k"))
		require.ErrorIs(t, err, kv.ErrNotFound)
		_, err = db.Get([]byte("k"))
		require.ErrorIs(t, err, kv.ErrNotFound, "also while the writer is busy")
	}
	require.NoError(t, tx.Rollback())
	require.Equal(t, int64(1), count(t, db), "nothing was committed")
}

// TestEvictionIsCheckedAgain: between the note and the eviction the key gets another expiry.
func TestEvictionIsCheckedAgain(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	k := []byte("k")
	require.NoError(t, db.PutTTL(k, nil, time.Second))
	clock.move(time.Second)
	tx := beginTx(t, db, true)
	require.NoError(t, tx.PutTTL(k, []byte("new"), time.Second))
	_, err := db.Get(k)
	require.ErrorIs(t, err, kv.ErrNotFound)
	require.Equal(t, 1, kv.Notes(db))
	require.NoError(t, tx.Commit())
	require.NoError(t, db.Put([]byte("x"), nil))
	value, err := db.Get(k)
	require.NoError(t, err)
	require.Equal(t, "new", string(value))
	require.Zero(t, kv.Notes(db))
	// A clock that was wrong when the key was noted deletes nothing.
	clock.move(time.Hour)
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		_, err := tx.Get(k)
		require.ErrorIs(t, err, kv.ErrNotFound)
		return nil
	}))
	clock.move(-time.Hour)
	require.NoError(t, db.Put([]byte("x"), nil))
	_, err = db.Get(k)
	require.NoError(t, err)
}

// TestTransactionBehindAnEvictionAimsAsAnyOther: the eviction commits in place of the transaction
// and begins it again. A commit without a sync must not write a large value to the main file only,
// nor one that has to be synced.
func TestTransactionBehindAnEvictionAimsAsAnyOther(t *testing.T) {
	for name, put := range map[string]func(db *kv.DB, key, value []byte) error{
		"one_shot": func(db *kv.DB, key, value []byte) error { return db.Put(key, value) },
		"update": func(db *kv.DB, key, value []byte) error {
			return db.Update(func(tx *kv.Tx) error { return tx.Put(key, value) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock, syncs := newClock(), 0
			fsys := &hookFS{vfs.NewMemory(), func(call, name string) error {
				if name == path && (call == "sync" || call == "syncdata") {
					syncs++
				}
				return nil
			}}
			o := &kv.Options{Clock: clock.now, Durability: kv.NoSync, CheckpointBytes: 1 << 30}
			db := mustOpenOn(t, fsys, o, txn.Options{SegmentSize: 64 << 10, Inline: true})
			require.NoError(t, db.PutTTL(small, nil, time.Second))
			clock.move(time.Second)
			require.NoError(t, db.View(func(tx *kv.Tx) error {
				_, err := tx.Get(small)
				require.ErrorIs(t, err, kv.ErrNotFound)
				return nil
			}))
			require.Equal(t, 1, kv.Notes(db))
			syncs = 0
			require.NoError(t, put(db, []byte("large"), make([]byte, 1<<20)))
			require.Zero(t, syncs, "of the main file")
			require.Zero(t, kv.Notes(db))
			require.EqualValues(t, 1, count(t, db))
			checkStore(t, db)
			require.NoError(t, db.Close())
		})
	}
}
