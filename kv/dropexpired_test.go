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

// appendRows appends n rows of one timestamp, in one transaction.
func appendRows(t *testing.T, db *kv.DB, ts time.Time, n int) {
	t.Helper()
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		m, value := tx.CF("m"), make([]byte, 100)
		for i := range n {
			if err := m.Append(ts, fmt.Appendf(nil, "series-%07d", i), value); err != nil {
				return err
			}
		}
		return nil
	}))
}

// TestDropCostsTheSameForAnyNumberOfRows: a drop of a large partition writes as many log bytes in its
// commit as one of a small partition, and no page.
func TestDropCostsTheSameForAnyNumberOfRows(t *testing.T) {
	cost := func(rows int) (logged, written uint64) {
		clock := newClock()
		o := &kv.Options{Clock: clock.now, Durability: kv.NoSync, CheckpointBytes: 1 << 40}
		db := mustOpenOn(t, vfs.NewMemory(), o, txn.Options{Inline: true})
		defer func() { require.NoError(t, db.Close()) }()
		require.NoError(t, db.CreateCF("m", kv.CFOptions{Retention: time.Hour, Partition: time.Minute}))
		appendRows(t, db, clock.now(), rows)
		require.NoError(t, db.Checkpoint(t.Context()))
		clock.move(2 * time.Hour)
		before := db.Stats()
		n, err := db.CF("m").DropExpired(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
		after := db.Stats()
		require.Zero(t, after.Families["m"].Rows)
		return after.LogBytesWritten - before.LogBytesWritten, after.PagesWritten - before.PagesWritten
	}
	logged, written := cost(100)
	require.NotZero(t, logged)
	loggedLarge, writtenLarge := cost(50_000)
	require.Equal(t, logged, loggedLarge)
	require.Equal(t, written, writtenLarge)
}

// TestPagesOfDroppedPartitionsComeBackInSteps: TrashTrees counts the partitions whose pages are not
// free yet, and checkpoints free them.
func TestPagesOfDroppedPartitionsComeBackInSteps(t *testing.T) {
	clock := newClock()
	o := &kv.Options{Clock: clock.now, AutoPurge: &kv.AutoPurge{Interval: time.Millisecond}}
	db := mustOpenOn(t, vfs.NewMemory(), o, txn.Options{Inline: true})
	require.NoError(t, db.CreateCF("m", kv.CFOptions{Retention: time.Hour, Partition: time.Minute}))
	for range 3 {
		appendRows(t, db, clock.now(), 20_000)
		clock.move(time.Minute)
	}
	require.NoError(t, db.Checkpoint(t.Context()))
	clock.move(2 * time.Hour)
	require.Eventually(t, func() bool { return db.Stats().Families["m"].PartitionsDropped == 3 },
		time.Minute, time.Millisecond, "AutoPurge drops them")
	before := db.Stats()
	require.Equal(t, 3, before.TrashTrees)
	for steps := 0; db.Stats().TrashTrees > 0; steps++ {
		require.Less(t, steps, 20)
		require.NoError(t, db.Checkpoint(t.Context()))
	}
	require.Greater(t, db.Stats().FreeBytes-before.FreeBytes, int64(3*20_000*100))
	checkStore(t, db)
	require.NoError(t, db.Close())
}

// TestRollingWindowHasASteadySize simulates a hundred days of a partition a day, of which thirty are
// kept: the file stays within 1.4 times the live data of the steady state.
func TestRollingWindowHasASteadySize(t *testing.T) {
	racetest.OneGoroutine(t)
	const days, kept, rows = 100, 30, 4000
	fsys, clock := vfs.NewMemory(), newClock()
	o := &kv.Options{Clock: clock.now, Durability: kv.NoSync, CheckpointBytes: 1 << 20}
	db := mustOpenOn(t, fsys, o, txn.Options{SegmentSize: 64 << 10, Inline: true})
	day := 24 * time.Hour
	require.NoError(t, db.CreateCF("m", kv.CFOptions{Retention: kept * day, Partition: day}))
	for i := range days {
		appendRows(t, db, clock.now(), rows)
		clock.move(day)
		_, err := db.CF("m").DropExpired(t.Context())
		require.NoError(t, err)
		if s := db.Stats(); i > kept+5 {
			live := s.Families["m"].Rows * (8 + 14 + 100)
			require.LessOrEqual(t, s.Families["m"].Rows, int64(rows*(kept+1)))
			require.Less(t, s.FileBytes, live*14/10, "day %d", i)
		}
	}
	require.NoError(t, db.Close())
}

func TestStatsOfPartitions(t *testing.T) {
	db, clock := openTimed(t, kv.Options{}, time.Hour, time.Minute)
	start := clock.now().Truncate(time.Minute)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 100 {
			ts := start.Add(time.Duration(i%2) * time.Minute)
			if err := tx.CF("m").Append(ts, fmt.Append(nil, i), make([]byte, 92)); err != nil {
				return err
			}
		}
		return nil
	}))
	s := db.Stats()
	require.Equal(t, int64(100), s.Families["m"].Rows)
	require.Equal(t, s.Families["m"].Rows, s.Families["m"].TTLRows)
	list := s.Partitions["m"]
	require.Len(t, list, 2)
	for i, p := range list {
		require.Equal(t, start.Add(time.Duration(i)*time.Minute), p.From)
		require.Equal(t, p.From.Add(time.Minute), p.To)
		require.Equal(t, int64(50), p.Rows)
		require.InDelta(t, 50*(8+2+92), p.Bytes, 50)
		list[i].Bytes = 0
	}
	require.NoError(t, db.Close())
	require.Equal(t, list, db.Stats().Partitions["m"])
}
