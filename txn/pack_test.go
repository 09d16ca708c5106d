package txn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// overwrittenTwice is a store whose rows were all put again after its last checkpoint.
func overwrittenTwice(t *testing.T, o Options) *Store {
	o.SmallGroups, o.CacheBytes, o.CheckpointBytes = true, 16<<20, 1<<30
	s := openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	rewriteInSteps(t, s, "first")
	require.NoError(t, s.Checkpoint(t.Context()))
	rewriteInSteps(t, s, "second")
	return s
}

// packed is the room that a packed store has at most: that of its pages, of the reserve, and what is not
// worth packing.
func packed(s *Store) int64 {
	_ = s.lockWriter(nil)
	defer s.unlockWriter()
	return int64(s.pg.Alloc.UsedPages()+128)*int64(s.pg.PageSize()) + packLeast
}

// TestAPackedStoreHasRoomForItsPages: files that nothing was written to any more stayed up to four times
// as long as their rows until they were closed.
func TestAPackedStoreHasRoomForItsPages(t *testing.T) {
	racetest.OneGoroutine(t)
	s := overwrittenTwice(t, testOptions(crashfs.New(crashfs.Options{})))
	require.Greater(t, s.Stats().DiskBytes, 5*packed(s)/4)
	log := s.Stats().LogBytes
	require.True(t, s.checkpointer.worthPacking())
	require.NoError(t, s.Pack(t.Context()))
	require.False(t, s.checkpointer.worthPacking())
	require.LessOrEqual(t, s.Stats().DiskBytes, packed(s))
	require.LessOrEqual(t, s.Stats().LogBytes, min(log, 2*64<<10))
	writes := s.Stats().PagesWritten
	require.NoError(t, s.Pack(t.Context()))
	require.Equal(t, writes, s.Stats().PagesWritten, "there is nothing more to write")
	rewriteInSteps(t, s, "third")
	require.NoError(t, s.Checkpoint(t.Context()))
	view(t, s, func(tx *Tx) { requireAll(t, tx, "third") })
}

// TestAPackKeepsWhatSnapshotsRead: the pages of a snapshot have their room until it ends.
func TestAPackKeepsWhatSnapshotsRead(t *testing.T) {
	racetest.OneGoroutine(t)
	s := overwrittenTwice(t, testOptions(crashfs.New(crashfs.Options{})))
	reader := begin(t, s, false)
	rewriteInSteps(t, s, "third")
	require.NoError(t, s.Pack(t.Context()))
	requireAll(t, reader, "second")
	require.Greater(t, s.Stats().DiskBytes, packed(s))
	reader.Rollback()
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(10)) })
	require.NoError(t, s.Pack(t.Context()))
	require.LessOrEqual(t, s.Stats().DiskBytes, packed(s))
}

// TestAnIdleStoreIsPacked by its timer, which then does not run: nor does one start in a store that
// nothing was committed to.
func TestAnIdleStoreIsPacked(t *testing.T) {
	o := testOptions(vfs.NewMemory())
	o.Inline, o.PackAfter = false, time.Millisecond
	s := overwrittenTwice(t, o)
	eventually := func(is func() bool) { require.Eventually(t, is, time.Minute, time.Millisecond) }
	eventually(func() bool { return s.Stats().DiskBytes <= packed(s) })
	eventually(func() bool { return !s.checkpointer.idle.running.Load() })
	view(t, s, func(tx *Tx) { requireAll(t, tx, "second") })
	s = openTest(t, "/b.ebb", o)
	require.False(t, s.checkpointer.idle.running.Load())
}

// TestASmallCommitPacksNothing: one in a while does not cost a checkpoint each.
func TestASmallCommitPacksNothing(t *testing.T) {
	racetest.OneGoroutine(t)
	s := overwrittenTwice(t, testOptions(crashfs.New(crashfs.Options{})))
	require.NoError(t, s.Pack(t.Context()))
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, 9, []byte("0001"), []byte("small"), 0)
	})
	checkpoints := s.Stats().Checkpoints
	s.checkpointer.idle.volume = s.log.Volume() // as if the timer had fired before
	s.checkpointer.packIfIdle()
	s.checkpointer.background.wait()
	require.Equal(t, checkpoints, s.Stats().Checkpoints)
}

// TestAPackPunchesNoPageThatARecoveryReaches: what it punches, cuts off and removes is of no state that
// recovery could start from.
func TestAPackPunchesNoPageThatARecoveryReaches(t *testing.T) {
	racetest.OneGoroutine(t)
	fs := &watchedFS{FS: crashfs.New(crashfs.Options{})}
	s := overwrittenTwice(t, testOptions(fs))
	punches := 0
	fs.punched = func(off, n int64) {
		punches++
		for id := off / 4096; id < (off+n)/4096; id++ {
			in, err := s.pg.Alloc.InUse(pager.Pgid(id))
			require.NoError(t, err)
			require.False(t, in, "page %d", id)
		}
	}
	for range 3 {
		require.NoError(t, s.Pack(t.Context()))
		rewriteInSteps(t, s, "again")
		deleteHalf(t, s)
	}
	require.Greater(t, punches, 10)
	fs.punched = nil
}
