package txn

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/wal"
)

// openStillFull opens what a killed process leaves of a store on a full disk, which is full still.
func openStillFull(t *testing.T, disk *crashfs.Disk, o Options) *Store {
	t.Helper()
	used := disk.Used()
	again := imageOf(t, disk).Disk(crashfs.Options{})
	again.SetCapacity(max(used, again.Used()))
	disk.SetCapacity(0)
	o.FS = again
	s := mustOpen(t, o)
	return s
}

// untilFull commits until the disk is.
func untilFull(t *testing.T, s *Store, change func(tx *Tx, i int) error) (commits int) {
	t.Helper()
	for i := 0; ; i++ {
		tx, err := s.Begin(nil, true)
		require.NoError(t, err)
		tx.SetDurability(NoSync)
		if err = change(tx, i); err == nil {
			err = tx.Commit(NoSync)
		}
		if err != nil {
			tx.Rollback()
			require.ErrorIs(t, err, ErrNoSpace)
			require.NoError(t, s.Failed())
			return i
		}
	}
}

// fullOptions have everything in the log.
func fullOptions(disk *crashfs.Disk) Options {
	o := testOptions(disk)
	o.CacheBytes, o.CheckpointBytes, o.SegmentSize = 64<<20, 64<<20, 1<<20
	return o
}

// fullStore is a store with an empty tree 9.
func fullStore(t *testing.T) (*Store, *crashfs.Disk, Options) {
	t.Helper()
	disk := crashfs.New(crashfs.Options{})
	o := fullOptions(disk)
	s := mustOpen(t, o)
	t.Cleanup(func() {
		disk.SetCapacity(0)
		require.NoError(t, s.Close())
	})
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	return s, disk, o
}

// TestLeavesOfTheLogOnADiskThatIsStillFull: the next open copies them, and room for that is kept.
func TestLeavesOfTheLogOnADiskThatIsStillFull(t *testing.T) {
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	o := fullOptions(disk)
	s := openTest(t, "/a.ebb", o)
	appendRows(t, s, 0, 100)
	disk.SetCapacity(disk.Used() + 6<<20)
	n := 100 + 1000*untilFull(
		t,
		s,
		func(tx *Tx, i int) error { return tx.Apply(CatalogTree, inOrder(100+1000*i, 1000), nil) },
	)
	require.Greater(t, n, 10_000)
	require.NoError(t, s.Sync())
	again := openStillFull(t, disk, o)
	requireRows(t, again, n)
	require.False(t, again.logOrder)
	require.NoError(t, again.Close())
}

// TestHolesBetweenReferencedValuesOnADiskThatIsStillFull: pages that the log names lie close together,
// and what replay finds free between them are holes.
func TestHolesBetweenReferencedValuesOnADiskThatIsStillFull(t *testing.T) {
	racetest.OneGoroutine(t)
	s, disk, o := fullStore(t)
	disk.SetCapacity(disk.Used() + 24<<20)
	rnd := rand.New(rand.NewPCG(1, 2))
	rows := uint64(0)
	for full := false; !full; {
		tx := begin(t, s, true)
		_, err := tx.Put(9, fmt.Appendf(nil, "large %08d", rows), make([]byte, s.logRefFrom()), 0)
		for range 8 {
			if err == nil {
				_, err = tx.Put(9, fmt.Appendf(nil, "key %016x", rnd.Uint64()), make([]byte, 900), 0)
			}
		}
		if err == nil {
			err = tx.Commit(Sync)
		}
		if err == nil {
			rows += 9
			continue
		}
		tx.Rollback()
		require.ErrorIs(t, err, ErrNoSpace)
		full = true
	}
	require.NoError(t, s.Failed())
	again := openStillFull(t, disk, o)
	require.False(t, again.logOrder)
	view(t, again, func(tx *Tx) { require.Equal(t, rows, tx.Rows(9)) })
	require.NoError(t, again.Close())
}

// TestRowsInOrderOnADiskThatIsStillFull: replay in key order takes no more pages than to put them one
// by one, whatever comes between.
func TestRowsInOrderOnADiskThatIsStillFull(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, odd := range []string{"none", "large", "twice", "deleted"} {
		t.Run(odd, func(t *testing.T) {
			disk := crashfs.New(crashfs.Options{})
			o := fullOptions(disk)
			s := openTest(t, "/a.ebb", o)
			appendRows(t, s, 0, 101)
			disk.SetCapacity(disk.Used() + 24<<20)
			untilFull(t, s, func(tx *Tx, i int) error {
				key, size := fmt.Appendf(nil, "key %08d", 101+i), 900
				if odd == "large" && i%10 == 0 {
					size = 3000
				}
				_, err := tx.Put(CatalogTree, key, make([]byte, size), 0)
				if err == nil && odd == "twice" && i%10 == 0 {
					_, err = tx.Put(CatalogTree, key, make([]byte, size), 0)
				}
				if err == nil && odd == "deleted" && i%10 == 0 {
					_, err = tx.Delete(CatalogTree, key)
				}
				return err
			})
			require.NoError(t, s.Sync())
			again := openStillFull(t, disk, o)
			require.False(t, again.logOrder)
			require.NoError(t, again.Close())
		})
	}
}

// TestOverwrittenValueOnADiskThatIsStillFull: it takes the room of two, and so does its replay.
func TestOverwrittenValueOnADiskThatIsStillFull(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, d := range []Durability{Sync, NoSync} {
		for _, more := range []int{-1, 0, 1 << 20} {
			s, disk, o := fullStore(t)
			if d == Sync && more >= 0 {
				continue // The log names it.
			}
			for i := range 100 {
				tx := begin(t, s, true)
				tx.SetDurability(d)
				mustPut(t, tx, 9, []byte("key"), bytes.Repeat([]byte{byte(i)}, s.logRefFrom()+more), 0)
				require.NoError(t, tx.Commit(d))
				if more > 0 && i == 40 {
					break
				}
			}
			if more < 0 {
				require.Less(t, s.pg.Alloc.FileBytes(), int64(4<<20))
			}
			disk.SetCapacity(disk.Used())
			again := openStillFull(t, disk, o)
			require.False(t, again.logOrder)
			view(t, again, func(tx *Tx) {
				value, _, found, err := tx.Get(9, []byte("key"))
				require.NoError(t, err)
				require.True(t, found)
				require.Len(t, value, s.logRefFrom()+more)
			})
			require.NoError(t, again.Close())
		}
	}
}

// putRows puts n values of that size, several a transaction, until the disk is full, and says how
// many.
func putRows(t *testing.T, s *Store, id TreeID, prefix string, n, size int) (rows int) {
	t.Helper()
	for rows < n {
		tx, err := s.Begin(nil, true)
		require.NoError(t, err)
		tx.SetDurability(NoSync)
		if _, err = tx.Put(id, fmt.Appendf(nil, "%s %08d", prefix, rows), make([]byte, size), 0); err == nil {
			err = tx.Commit(NoSync)
		}
		tx.Rollback()
		if err != nil {
			require.ErrorIs(t, err, ErrNoSpace)
			require.NoError(t, s.Failed())
			return rows
		}
		rows++
	}
	return rows
}

// TestDeletesOnAFullDiskLeaveRoomForTheCheckpoint that returns the freed space: by Close,
// or by the next open.
func TestDeletesOnAFullDiskLeaveRoomForTheCheckpoint(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, killed := range []bool{true, false} {
		s, disk, o := fullStore(t)
		putRows(t, s, 9, "key", 3000, 900)
		require.NoError(t, s.Checkpoint(t.Context()))
		disk.SetCapacity(disk.Used() + 2<<20)
		n := 3000 + putRows(t, s, 9, "new", 1<<30, 900)
		for i := 0; ; i++ { // each copies a leaf of the last checkpoint
			s.refusal = refusal{} // which waits for no other one
			tx, err := s.Begin(nil, true)
			require.NoError(t, err)
			tx.SetDurability(NoSync)
			if _, err = tx.Delete(9, fmt.Appendf(nil, "key %08d", i*4)); err == nil {
				err = tx.Commit(NoSync)
			}
			tx.Rollback()
			if err != nil {
				require.ErrorIs(t, err, ErrNoSpace)
				require.Greater(t, i, 20)
				break
			}
			n--
		}
		disk.SetCapacity(disk.Used())
		if killed {
			s = openStillFull(t, disk, o)
		} else {
			require.NoError(t, s.Close())
			var err error
			s, err = Open("/a.ebb", o)
			require.NoError(t, err)
			require.True(t, s.Recovery().Clean, "Close had room for its checkpoint")
		}
		view(t, s, func(tx *Tx) { require.EqualValues(t, n, tx.Rows(9)) })
		update(t, s, func(tx *Tx) {
			_, err := tx.DeleteRange(9, []byte("new"), nil)
			require.NoError(t, err)
		})
		require.NoError(t, s.Close())
	}
}

// TestExtentsGivenUpOnADiskThatIsStillFull: the run had their pages back, however many there were.
func TestExtentsGivenUpOnADiskThatIsStillFull(t *testing.T) {
	racetest.OneGoroutine(t)
	s, disk, o := fullStore(t)
	for range 5 {
		require.Equal(t, 200, putRows(t, s, 9, "key", 200, 9000))
		relaxed(t, s, func(tx *Tx) {
			_, err := tx.DeleteRange(9, nil, nil)
			require.NoError(t, err)
		})
	}
	require.Less(t, s.pg.Alloc.FileBytes(), int64(4<<20))
	disk.SetCapacity(disk.Used())
	again := openStillFull(t, disk, o)
	view(t, again, func(tx *Tx) { require.Zero(t, tx.Rows(9)) })
	require.NoError(t, again.Close())
}

// TestLeavesGivenUpOnADiskThatIsStillFull: the run had their pages back, also for values of a page.
func TestLeavesGivenUpOnADiskThatIsStillFull(t *testing.T) {
	racetest.OneGoroutine(t)
	s, disk, o := fullStore(t)
	putRows(t, s, 9, "key", 1<<12, 900) // no more leaves than the hot stack has room for
	relaxed(t, s, func(tx *Tx) {
		_, err := tx.DeleteRange(9, nil, nil)
		require.NoError(t, err)
	})
	putRows(t, s, 9, "key", 900, tree.MaxInline(4096, 0)+1)
	disk.SetCapacity(disk.Used())
	again := openStillFull(t, disk, o)
	view(t, again, func(tx *Tx) { require.EqualValues(t, 900, tx.Rows(9)) })
	require.NoError(t, again.Close())
}

// opensStillFull opens what each kill since then leaves, on a disk that has not a byte more.
func opensStillFull(t *testing.T, disk *crashfs.Disk, o Options, from int, rows int) {
	t.Helper()
	for im := range disk.Images(crashfs.ImageOptions{Profiles: crashfs.Kill, From: from}) {
		d := im.Disk(crashfs.Options{})
		d.SetCapacity(d.Used())
		o := o
		o.FS = d
		s, err := Open("/a.ebb", o)
		require.NoError(t, err, "%v: %v", im, im.Names())
		view(t, s, func(tx *Tx) { require.EqualValues(t, rows, tx.Rows(9)) })
		require.NoError(t, s.Close())
	}
}

// TestKilledCloseOnADiskThatIsStillFull: Close cuts the file, and recovery may start from the state
// before.
func TestKilledCloseOnADiskThatIsStillFull(t *testing.T) {
	racetest.OneGoroutine(t)
	s, disk, o := fullStore(t)
	putRows(t, s, 9, "key", 1000, 900)
	relaxed(t, s, func(tx *Tx) {
		_, err := tx.DeleteRange(9, fmt.Appendf(nil, "key %08d", 500), nil)
		require.NoError(t, err)
	})
	from := disk.Len()
	require.NoError(t, s.Close())
	opensStillFull(t, disk, o, from, 500)
}

// TestKilledFirstChangeOnADiskThatIsStillFull: what it leaves is a segment without a record beside
// a store that was closed.
func TestKilledFirstChangeOnADiskThatIsStillFull(t *testing.T) {
	racetest.OneGoroutine(t)
	s, disk, o := fullStore(t)
	n := putRows(t, s, 9, "key", 1000, 900)
	require.NoError(t, s.Close())
	s, err := Open("/a.ebb", o)
	require.NoError(t, err)
	from := disk.Len()
	require.NoError(t, s.startLog())
	opensStillFull(t, disk, o, from, n)
}

// TestFirstChangeThatHasNoRoomLeavesNoLog: the segment had room, and what the next open needs had
// none.
func TestFirstChangeThatHasNoRoomLeavesNoLog(t *testing.T) {
	s, disk, o := fullStore(t)
	putRows(t, s, 9, "key", 100, 900)
	require.NoError(t, s.Close()) // cuts the file
	s, err := Open("/a.ebb", o)
	require.NoError(t, err)
	disk.SetCapacity(disk.Used() + 256<<10 + 4096)
	tx := begin(t, s, true)
	require.ErrorIs(t, tx.Drop(9), ErrNoSpace)
	tx.Rollback()
	require.NoError(t, s.Failed())
	names, err := wal.Files(disk, "/a.ebb")
	require.NoError(t, err)
	require.Empty(t, names)
	disk.SetCapacity(0)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Drop(9)) })
	require.NoError(t, s.Close())
}
