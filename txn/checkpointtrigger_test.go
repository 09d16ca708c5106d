package txn

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// openRoomy is a store with frames for some megabytes, whose log starts no checkpoint.
func openRoomy(t *testing.T) *Store {
	o := testOptions(vfs.NewMemory())
	o.CacheBytes, o.CheckpointBytes = 64<<20, 1<<30
	s := openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	return s
}

// TestCheckpointEndsWithItsFramesBack, and does not leave them to the next transactions, the first of
// which would begin another checkpoint.
func TestCheckpointEndsWithItsFramesBack(t *testing.T) {
	s := openRoomy(t)
	for v := range byte(2) {
		update(t, s, func(tx *Tx) {
			value := bytes.Repeat([]byte{v}, 900)
			for i := range 12_000 {
				mustPut(t, tx, 9, binary.BigEndian.AppendUint32(nil, uint32(i)), value, 0)
			}
		})
		pages := s.pg.Pool.FrameBytes() / int64(s.pg.PageSize())
		require.Greater(t, pages, int64(reclaimStep))
		require.NoError(t, s.Checkpoint(t.Context()))
		require.Less(t, s.pg.Pool.FrameBytes(), int64(256<<10), "of %d pages", pages)
	}
}

// TestLargeFreesReturnTheirPages: a transaction reclaims freed pages before it begins; if it reclaimed
// fewer than it frees, the frames in use would grow without a bound.
func TestLargeFreesReturnTheirPages(t *testing.T) {
	racetest.OneGoroutine(t)
	s := openRoomy(t)
	var most int64
	for v := range byte(racetest.Sample(8, 5)) {
		update(t, s, func(tx *Tx) {
			tx.Savepoint() // pages are copied
			value := bytes.Repeat([]byte{v}, 900)
			for i := range 12_000 {
				mustPut(t, tx, 9, binary.BigEndian.AppendUint32(nil, uint32(i)), value, 0)
			}
		})
		switch v {
		case 0: // pages are new: no other is freed
			require.Greater(t, s.pg.Pool.FrameBytes()/int64(s.pg.PageSize()), int64(reclaimStep))
		case 2: // by now what one transaction frees comes back with the next
			most = s.pg.Pool.FrameBytes()
		}
	}
	require.LessOrEqual(t, s.pg.Pool.FrameBytes(), most)
}

// TestSnapshotsKeepTheirFramesBeyondACheckpoint, which ends nevertheless.
func TestSnapshotsKeepTheirFramesBeyondACheckpoint(t *testing.T) {
	s := openRoomy(t)
	rewrite(t, s, "first")
	snapshot := begin(t, s, false)
	full := s.pg.Pool.FrameBytes()
	require.NoError(t, s.Checkpoint(t.Context()))
	require.GreaterOrEqual(t, s.pg.Pool.FrameBytes(), full)
	requireAll(t, snapshot, "first")
	snapshot.Rollback()
	rewrite(t, s, "second")
	require.NoError(t, s.Checkpoint(t.Context()))
	require.Less(t, s.pg.Pool.FrameBytes(), full/4)
}

// TestFramesBeginACheckpoint as soon as three quarters of them are used, if a quarter would come
// back with it.
func TestFramesBeginACheckpoint(t *testing.T) {
	s := openRoomy(t)
	rewrite(t, s, "first")
	due := func(bound int64) bool {
		s.o.CacheBytes = bound
		defer func() { s.o.CacheBytes = 64 << 20 }()
		return s.checkpointer.due()
	}
	used := s.pg.Pool.FrameBytes()
	require.InDelta(t, used, s.pg.Alloc.DirtyBytes(), float64(used)/8)
	require.False(t, due(2*used))
	require.True(t, due(used+used/4))

	snapshot := begin(t, s, false)
	require.NoError(t, s.Checkpoint(t.Context()))
	require.GreaterOrEqual(t, s.pg.Pool.FrameBytes(), used)
	require.Zero(t, s.pg.Alloc.DirtyBytes())
	require.False(t, due(used), "a snapshot holds them")
	rewrite(t, s, "second")
	require.True(t, due(s.pg.Pool.FrameBytes()))
	snapshot.Rollback()
}

// TestRowsInOrderBeginACheckpointEarly: their leaves will be written as they are. Leaves with rows
// at random will change again.
func TestRowsInOrderBeginACheckpointEarly(t *testing.T) {
	racetest.OneGoroutine(t)
	const bound = 4 << 20 // of the log
	value := bytes.Repeat([]byte{7}, 100)
	key := func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }
	for name, c := range map[string]struct {
		put   func(tx *Tx, from, n int)
		early bool
	}{
		"one by one": {func(tx *Tx, from, n int) {
			for i := from; i < from+n; i++ {
				mustPut(t, tx, 9, key(i), value, 0)
			}
		}, true},
		"in batches": {func(tx *Tx, from, n int) {
			changes := make([]Change, n)
			for i := range changes {
				changes[i] = Change{Key: key(from + i), Value: value}
			}
			require.NoError(t, tx.Apply(9, changes, nil))
		}, true},
		"at random": {func(tx *Tx, from, n int) {
			for i := from; i < from+n; i++ {
				mustPut(t, tx, 9, key(i*7919%100_003), value, 0)
			}
		}, false},
		"a queue": {func(tx *Tx, from, n int) { // never much at a time
			for i := from; i < from+n; i++ {
				mustPut(t, tx, 9, key(i), value, 0)
				mustDelete(t, tx, 9, key(i-1000))
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(vfs.NewMemory())
			o.CacheBytes, o.CheckpointBytes = 64<<20, bound
			s := openTest(t, "/a.ebb", o)
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
			before := s.log.End()
			for n := 0; s.checkpointer.count.Load() == 0; n += 500 {
				update(t, s, func(tx *Tx) { c.put(tx, n, 500) })
				if s.log.End() > before+2*bound {
					t.Fatal("no checkpoint")
				}
			}
			logged := int64(s.log.End() - before)
			if c.early {
				require.InDelta(t, bound/4, logged, bound/8)
				require.Zero(t, s.checkpointer.filledBytes.Load())
			} else {
				require.Greater(t, logged, int64(bound))
			}
		})
	}
}

// TestFilledLeavesThatAreGivenUpCountForNothing: those of a rolled back transaction.
func TestFilledLeavesThatAreGivenUpCountForNothing(t *testing.T) {
	s := openRoomy(t)
	tx := begin(t, s, true)
	for i := range 1000 {
		mustPut(t, tx, 9, binary.BigEndian.AppendUint64(nil, uint64(i)), make([]byte, 100), 0)
	}
	require.NotZero(t, tx.w.filled)
	tx.Rollback()
	require.Zero(t, s.checkpointer.filledBytes.Load())
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, 9, []byte("a"), nil, 0)
	})
	require.Zero(t, s.checkpointer.filledBytes.Load())
}

// TestLogBudgetIsOfPagesInUse: it was half of the length of the file. A store that had grown once,
// or whose rows were all deleted, had a long log, beside which the file grew further.
func TestLogBudgetIsOfPagesInUse(t *testing.T) {
	s := openRoomy(t)
	rewrite(t, s, "first")
	require.NoError(t, s.Checkpoint(t.Context()))
	full := s.checkpointer.usedBytes.Load()
	require.Greater(t, full, int64(3<<20))
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Clear(9)) })
	require.NoError(t, s.Checkpoint(t.Context()))
	require.Less(t, s.checkpointer.usedBytes.Load(), full/8)
	require.Greater(t, s.pg.Alloc.FileBytes(), full/2)

	s.o.CheckpointBytes = 0
	for _, c := range []struct{ captured, used, bound, spare int64 }{ // MiB
		{0, 0, 4, 1}, {16, 16, 8, 2}, {64, 64, 32, 8}, {200, 200, 100, 16}, {4 << 10, 4 << 10, 256, 16},
		{0, 16, 24, 6}, {0, 50, 64, 16}, {60, 80, 60, 15}, {100, 140, 70, 16}, {60, 40, 20, 5}, // has grown
	} {
		s.checkpointer.usedBytes.Store(c.used << 20)
		s.checkpointer.capturedBytes.Store(c.captured << 20)
		require.Equal(t, c.bound<<20, s.checkpointer.logBound(), c)
		require.Equal(t, c.spare<<20, int64(s.checkpointer.spareSegments())*s.segment, c)
	}
	s.o.CheckpointBytes = 4 * s.segment
	require.Equal(t, 1, s.checkpointer.spareSegments())
}

// TestLoadsAreCheckpointedOnce: the budget of a small store that grows is that of a larger one, or a
// load would write its pages again and again. Overwritten, such a store has a small log.
func TestLoadsAreCheckpointedOnce(t *testing.T) {
	racetest.OneGoroutine(t)
	o := testOptions(vfs.NewMemory())
	o.CacheBytes, o.CheckpointBytes = 64<<20, 0
	s := openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	put := func(from, n int) {
		update(t, s, func(tx *Tx) {
			for i := from; i < from+n; i++ {
				key := binary.BigEndian.AppendUint32(nil, uint32(i*7919%10_007))
				mustPut(t, tx, 9, key, bytes.Repeat([]byte{byte(i)}, 800), 0)
			}
		})
	}
	for i := 0; i < 10_000; i += 500 { // twice the lower bound
		put(i, 500)
	}
	require.Zero(t, s.checkpointer.count.Load())
	require.NoError(t, s.Checkpoint(t.Context()))
	for i := 0; i < 10_000; i += 500 {
		put(i, 500)
	}
	require.EqualValues(t, 3, s.checkpointer.count.Load(), "each of half of the pages")
}

// TestCheckpointHurriesWhenTheLogGrowsBesideIt: without that a log that is filled fast had as much
// beside a checkpoint as before it.
func TestCheckpointHurriesWhenTheLogGrowsBesideIt(t *testing.T) {
	s := openCramped(t)
	grown := s.checkpointer.logGrown()
	require.Greater(t, grown, int64(3<<20))
	r := &frameReclaimer{s: s, began: s.pg.Pool.FrameBytes()}
	s.o.CacheBytes, s.o.CheckpointBytes = 4*r.began, 4*grown
	require.True(t, r.Throttle(0))
	s.o.CheckpointBytes = 4*grown - 4
	require.False(t, r.Throttle(0))
	r.deltas = true
	require.False(t, r.Throttle(0))
	s.checkpointer.endLogPace()
}

// TestCommittersWaitForTheProgressOfACheckpoint, once the log beside it has used half of its budget,
// and go on as it is written, not only when it has ended.
func TestCommittersWaitForTheProgressOfACheckpoint(t *testing.T) {
	s := openCramped(t)
	k := &s.checkpointer
	s.o.Inline, s.o.CheckpointBytes = false, k.logGrown()*3/2 // used: two thirds
	require.NoError(t, k.waitForLog(t.Context()), "no checkpoint is being written")
	k.paceLog(0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, k.waitForLog(ctx), context.Canceled)
	waits := make(chan error)
	go func() { waits <- k.waitForLog(t.Context()) }()
	k.paceLog(0.1)
	require.ErrorIs(t, k.waitForLog(ctx), context.Canceled)
	k.paceLog(0.5)
	require.NoError(t, <-waits)
	require.NoError(t, k.waitForLog(ctx))

	k.paceLog(0)
	go func() { waits <- k.waitForLog(t.Context()) }()
	k.endLogPace()
	require.NoError(t, <-waits)
}

// TestCheckpointsEndTheWaitOfCommitters: a limit that stayed would stop all of them.
func TestCheckpointsEndTheWaitOfCommitters(t *testing.T) {
	s := openCramped(t)
	limit := int64(0)
	checkpointBy(t, s, func() { s.checkpointer.paceLog(0) },
		func() { limit = s.checkpointer.logLimit.Load() })
	require.Positive(t, limit)
	require.Zero(t, s.checkpointer.logLimit.Load())
}
