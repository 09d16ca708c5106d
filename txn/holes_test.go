package txn

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// reachable are the pages of the main file that no punch and no write may touch: those of the state
// that recovery would start from, and those that a snapshot reads.
type reachable struct {
	durable, read map[int64]bool
}

// TestPunchesTouchNoPageThatARecoveryReaches: commits, also beside checkpoints, snapshots that are
// held across them, large values, and drops. Neither a punch nor a write touches a page of the
// state that recovery would start from, or of a snapshot.
func TestPunchesTouchNoPageThatARecoveryReaches(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	fs := &watchedFS{FS: crashfs.New(crashfs.Options{})}
	o := testOptions(fs)
	o.SmallGroups, o.CacheBytes, o.CheckpointBytes = true, 16<<20, 1<<30
	s := openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	rewrite(t, s, "first")
	require.NoError(t, s.Checkpoint(t.Context()))
	kept := reachable{durable: used(t, s)}
	punches := 0
	fs.punched = func(off, n int64) {
		punches++
		for id := off / 4096; id < (off+n)/4096; id++ {
			require.False(t, kept.durable[id] || kept.read[id], "page %d", id)
			in, err := s.pg.Alloc.InUse(pager.Pgid(id))
			require.NoError(t, err)
			require.False(t, in, "page %d", id)
		}
	}
	fs.wrote = func(off, n int64) {
		for id := max(off/4096, 2); id < (off+n+4095)/4096; id++ {
			require.False(t, kept.durable[id] || kept.read[id], "page %d", id)
		}
	}
	checkpoint := func(beside, durable func()) {
		require.NoError(t, lock(t.Context(), s.checkpointer.mu))
		defer func() { <-s.checkpointer.mu }()
		c, err := s.checkpointer.capture(t.Context())
		require.NoError(t, err)
		var captured map[int64]bool
		require.NoError(t, s.checkpointer.write(c, hurried{s.checkpointer.newFrameReclaimer(c), func() {
			captured = used(t, s)
			beside()
		}, func() {}}))
		kept.durable = captured
		durable()
		require.NoError(t, s.checkpointer.finish(c))
		require.NoError(t, s.checkpointer.punchHoles(c.pages.Pages, false))
	}
	for i, value := range []string{"second", "third", "fourth", "fifth"} {
		rewriteInSteps(t, s, value)
		var reader *Tx
		checkpoint(func() {
			var err error
			reader, err = s.Begin(t.Context(), false)
			require.NoError(t, err)
			if i%2 == 0 {
				rewriteInSteps(t, s, value)
			}
			putLarge(t, s)
		}, func() {
			kept.read = maps.Clone(kept.durable)
			for _, ref := range s.pg.Alloc.SpacePages() { // no snapshot reads pages of the free map
				delete(kept.read, int64(ref.Pgid))
			}
		})
		deleteHalf(t, s)
		checkpoint(func() {}, func() {})
		requireAll(t, reader, value)
		reader.Rollback()
		kept.read = nil
		rewriteInSteps(t, s, value)
		checkpoint(func() {}, func() {})
	}
	require.Greater(t, punches, 10)
	require.Less(t, s.Stats().DiskBytes, s.Stats().FileBytes)
	fs.wrote, fs.punched = nil, nil
	view(t, s, func(tx *Tx) { requireAll(t, tx, "fifth") })
}

// putLarge puts and deletes values that are written at once.
func putLarge(t *testing.T, s *Store) {
	t.Helper()
	for _, size := range []int{20_000, 70_000} {
		update(t, s, func(tx *Tx) {
			mustPut(t, tx, 9, []byte("large"), make([]byte, size), 0)
		})
	}
	update(t, s, func(tx *Tx) {
		mustDelete(t, tx, 9, []byte("large"))
	})
}

// deleteHalf deletes half of the rows of rewrite.
func deleteHalf(t *testing.T, s *Store) {
	t.Helper()
	update(t, s, func(tx *Tx) {
		_, err := tx.DeleteRange(9, []byte("1000"), []byte("3000"))
		require.NoError(t, err)
	})
}

// TestCloseGivesFreeRunsBack: space of deleted rows that is not enough to compact the file, where no
// checkpoint has freed it yet, and where one has. The reserve stays, for deletes of the next session
// on a disk that is full by then.
func TestCloseGivesFreeRunsBack(t *testing.T) {
	for _, checkpoint := range []bool{false, true} {
		o := testOptions(crashfs.New(crashfs.Options{}))
		o.SmallGroups, o.CacheBytes, o.CheckpointBytes = true, 16<<20, 1<<30
		s := openTest(t, "/a.ebb", o)
		update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
		rewrite(t, s, "first")
		require.NoError(t, s.Checkpoint(t.Context()))
		update(t, s, func(tx *Tx) {
			_, err := tx.DeleteRange(9, []byte("1000"), []byte("1800"))
			require.NoError(t, err)
		})
		if checkpoint {
			require.NoError(t, s.Checkpoint(t.Context()))
		}
		require.False(t, s.checkpointer.worthCompacting())
		require.NoError(t, s.Close())

		s = openTest(t, "/a.ebb", o)
		page := int64(s.pg.PageSize())
		used, stats := int64(s.pg.Alloc.UsedPages()), s.Stats()
		require.Greater(t, stats.FileBytes/page, used+150, "the file is as long as before")
		require.LessOrEqual(t, stats.DiskBytes/page, used+70)
		require.GreaterOrEqual(t, stats.DiskBytes/page, used+36, "the reserve")
		requireSound(t, s)
		checkpoints := s.checkpointer.count.Load()
		require.NoError(t, s.Close())
		require.Equal(t, checkpoints, s.checkpointer.count.Load(), "there is nothing more to free")
	}
}
