package txn

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
)

// TestDroppedTreeOnADiskThatIsStillFull: a checkpoint that is refused for want of space has given
// the tree's pages back, which no checkpoint had reached.
func TestDroppedTreeOnADiskThatIsStillFull(t *testing.T) {
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	o := fullOptions(disk)
	s := openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(8)); require.NoError(t, tx.Create(9)) })
	disk.SetCapacity(disk.Used() + 8<<20)
	putRows(t, s, 9, "key", 2000, 900)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Drop(9)) })
	// What a checkpoint does before it finds no room for the free map.
	require.NoError(t, s.checkpointer.reclaimTrees(nil))
	require.NoError(t, s.lockWriter(nil))
	reclaimEverything(t, s)
	require.NoError(t, s.w.saveTrees())
	s.unlockWriter()
	disk.SetCapacity(disk.Used() + 2<<20)
	n := putRows(t, s, 8, "key", 1<<30, 900)
	require.Greater(t, n, 1000)
	require.Zero(t, s.Stats().Checkpoints)
	require.NoError(t, s.Sync())
	again := openStillFull(t, disk, o)
	require.NoError(t, again.Close())
}

// TestShapeOnADiskThatIsStillFull: to make or drop a tree takes no page, but what the next open
// writes of it does.
func TestShapeOnADiskThatIsStillFull(t *testing.T) {
	racetest.OneGoroutine(t)
	for name, op := range map[string]func(tx *Tx) error{
		"create": func(tx *Tx) error { return tx.Create(10) },
		"drop":   func(tx *Tx) error { return tx.Drop(9) },
	} {
		t.Run(name, func(t *testing.T) {
			s, disk, o := fullStore(t)
			putRows(t, s, 9, "key", 1000, 900)
			require.NoError(t, s.Close()) // cuts the file
			s, err := Open("/a.ebb", o)
			require.NoError(t, err)
			disk.SetCapacity(disk.Used() + 256<<10 + 64<<10) // the log's first segment, and the slack
			tx := begin(t, s, true)
			if err = op(tx); err == nil {
				err = tx.Commit(Sync)
			}
			tx.Rollback()
			require.NoError(t, err)
			disk.SetCapacity(disk.Used())
			again := openStillFull(t, disk, o)
			require.NoError(t, again.Close())
		})
	}
}

// TestManyTreesOnADiskThatIsStillFull: the table of the trees that deletes have changed has its
// room before they are committed, however many there are. Else no checkpoint had room for it any
// more, nor had the next open.
func TestManyTreesOnADiskThatIsStillFull(t *testing.T) {
	racetest.OneGoroutine(t)
	const trees = 6000
	s, disk, o := fullStore(t)
	update(t, s, func(tx *Tx) {
		for i := range trees {
			require.NoError(t, tx.Create(TreeID(100+i)))
			for _, key := range []string{"a", "b"} {
				mustPut(t, tx, TreeID(100+i), []byte(key), []byte("v"), 0)
			}
		}
	})
	require.NoError(t, s.Checkpoint(t.Context()))
	disk.SetCapacity(disk.Used() + 6<<20)
	putRows(t, s, 9, "key", 1<<30, 900)
	disk.SetCapacity(disk.Used())
	s.checkpointer.retryAt.Store(math.MaxInt64) // no checkpoint but this one's own
	refused := 0
	for i := 0; i < trees; {
		s.refusal = refusal{} // likewise
		tx, err := s.Begin(nil, true)
		require.NoError(t, err)
		if _, err = tx.Delete(TreeID(100+i), []byte("a")); err == nil {
			err = tx.Commit(NoSync)
		}
		tx.Rollback()
		if err == nil {
			i++
			continue
		}
		require.ErrorIs(t, err, ErrNoSpace)
		if refused++; refused == 2 { // The next open has room for what was not refused, and a checkpoint has.
			again := openStillFull(t, disk, o)
			view(t, again, func(tx *Tx) { require.EqualValues(t, 1, tx.Rows(TreeID(100+i-1))) })
			require.NoError(t, again.Close())
		}
		disk.SetCapacity(disk.Used())
		require.NoError(t, s.Checkpoint(t.Context()))
	}
	require.Greater(t, refused, 2)
	require.Less(t, refused, trees/10)
}

// treesOfOneRow makes that many trees, from 100 on, and has them in the table.
func treesOfOneRow(t *testing.T, s *Store, trees int) {
	t.Helper()
	update(t, s, func(tx *Tx) {
		for i := range trees {
			require.NoError(t, tx.Create(TreeID(100+i)))
			mustPut(t, tx, TreeID(100+i), []byte("a"), []byte("v"), 0)
		}
	})
	require.NoError(t, s.Checkpoint(t.Context()))
}

// putOne changes the only row of one of these trees.
func putOne(t *testing.T, s *Store, i int) error {
	t.Helper()
	tx := begin(t, s, true)
	defer tx.Rollback()
	tx.SetDurability(NoSync)
	if _, err := tx.Put(TreeID(100+i), []byte("a"), []byte("w"), 0); err != nil {
		return err
	}
	return tx.Commit(NoSync)
}

// TestFreePagesOnAFullDiskAreRoomForACheckpoint: pages that are free in the file are room for the
// table, as they are for what a commit takes. And the commit after one that finds no room waits for
// a checkpoint, and does.
func TestFreePagesOnAFullDiskAreRoomForACheckpoint(t *testing.T) {
	racetest.OneGoroutine(t)
	const trees = 3000
	s, disk, o := fullStore(t)
	treesOfOneRow(t, s, trees)
	putRows(t, s, 9, "key", 8000, 900)
	require.NoError(t, s.Checkpoint(t.Context()))
	update(t, s, func(tx *Tx) {
		_, err := tx.DeleteRange(9, []byte("key 00000000"), []byte("key 00007000"))
		require.NoError(t, err)
	})
	require.NoError(t, s.Checkpoint(t.Context()))
	free := s.Stats().FreeBytes - (s.Stats().FileBytes - s.Stats().DiskBytes)
	fullToTheEnd(t, s, disk)
	s.checkpointer.retryAt.Store(math.MaxInt64) // no checkpoint for now
	i, err := 0, error(nil)
	for ; i < trees; i++ {
		if err = putOne(t, s, i); err != nil {
			break
		}
		if i%400 == 399 {
			require.NoError(t, openStillFull(t, disk, o).Close())
			disk.SetCapacity(disk.Used())
		}
	}
	require.ErrorIs(t, err, ErrNoSpace)
	require.Greater(t, int64(i)*int64(s.PageSize()), free*4/5)
	again := openStillFull(t, disk, o)
	view(t, again, func(tx *Tx) { require.Equal(t, "w", contents(t, tx, TreeID(100+i-1))["a"]) })
	require.NoError(t, again.Close())
	disk.SetCapacity(disk.Used())

	s.checkpointer.retryAt.Store(0)
	for ; i < trees; i++ {
		if err := putOne(t, s, i); err != nil {
			require.ErrorIs(t, err, ErrNoSpace)
			require.NoError(t, putOne(t, s, i))
		}
	}
}

// slackOf is how many pages the file keeps behind the last one, whatever the disk has.
func slackOf(t *testing.T, s *Store) int64 {
	t.Helper()
	_, err := s.checkpointer.giveSpaceBack()
	require.NoError(t, err)
	return s.pg.Alloc.FileBytes()/int64(s.PageSize()) - int64(s.pg.Alloc.Pages())
}

// TestTableOfLargePagesIsSmall: a large page has more rows of the table than a small one, and fewer
// pages are kept for them.
func TestTableOfLargePagesIsSmall(t *testing.T) {
	racetest.OneGoroutine(t)
	const trees = 3000
	o := fullOptions(crashfs.New(crashfs.Options{}))
	o.PageSize = 16 << 10
	s := openTest(t, "/a.ebb", o)
	treesOfOneRow(t, s, trees)
	least := slackOf(t, s)
	update(t, s, func(tx *Tx) {
		for i := range trees {
			mustPut(t, tx, TreeID(100+i), []byte("a"), []byte("w"), 0)
		}
	})
	more := slackOf(t, s) - least
	require.Positive(t, more)
	require.Less(t, more, int64(trees/minTreeTableRows/2))
	require.NoError(t, s.Close())
}

// TestSubmittedBatchReservesSpaceForItsTrees in the tree table: for one tree, whatever changes there,
// and for each of many.
func TestSubmittedBatchReservesSpaceForItsTrees(t *testing.T) {
	racetest.OneGoroutine(t)
	s, _, _ := fullStore(t)
	treesOfOneRow(t, s, 3000)
	least := slackOf(t, s)
	spaceFor := func(trees int) int64 {
		tx := begin(t, s, true)
		runs := make([]Run, trees)
		for i := range runs {
			key := []byte("0123456789")
			runs[i] = Run{TreeID(100 + i), slices.Repeat([]Change{{Key: key}}, 400/trees)}
		}
		require.True(t, tx.CanSubmitLog(runs))
		tx.Rollback()
		return slackOf(t, s)
	}
	require.Equal(t, least, spaceFor(1))
	require.Greater(t, spaceFor(400), least+100)
}
