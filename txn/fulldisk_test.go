package txn

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
)

// openStillFull opens what a killed process leaves of a store on a full disk, which is full still.
func openStillFull(t *testing.T, disk *crashfs.Disk, o Options) *Store {
	t.Helper()
	used := disk.Used()
	again := imageOf(t, disk).Disk(crashfs.Options{})
	again.SetCapacity(max(used, again.Used()))
	disk.SetCapacity(0)
	o.FS = again
	s, err := Open("/a.ebb", o)
	require.NoError(t, err)
	return s
}

// untilFull commits until the disk is.
func untilFull(t *testing.T, s *Store, change func(tx *Tx, i int) error) (commits int) {
	t.Helper()
	for i := 0; ; i++ {
		tx, err := s.Begin(nil, true)
		require.NoError(t, err)
		tx.Aim(NoSync)
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

// TestLeavesOfTheLogOnADiskThatIsStillFull: the next open copies them, and room for that is kept.
func TestLeavesOfTheLogOnADiskThatIsStillFull(t *testing.T) {
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	o := fullOptions(disk)
	s := openTest(t, "/a.ebb", o)
	appendRows(t, s, 0, 100)
	disk.SetCapacity(disk.Used() + 6<<20)
	n := 100 + 1000*untilFull(t, s, func(tx *Tx, i int) error { return tx.Apply(CatalogTree, inOrder(100+1000*i, 1000), nil) })
	require.Greater(t, n, 10_000)
	require.NoError(t, s.Sync())
	again := openStillFull(t, disk, o)
	requireRows(t, again, n)
	require.False(t, again.asLogged)
	require.NoError(t, again.Close())
}

// TestHolesBetweenNamedValuesOnADiskThatIsStillFull: pages that the log names lie close together, and what replay finds free between them are holes.
func TestHolesBetweenNamedValuesOnADiskThatIsStillFull(t *testing.T) {
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	o := fullOptions(disk)
	s := openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	disk.SetCapacity(disk.Used() + 24<<20)
	rnd := rand.New(rand.NewPCG(1, 2))
	rows := uint64(0)
	for full := false; !full; {
		tx, err := s.Begin(nil, true)
		require.NoError(t, err)
		_, err = tx.Put(9, fmt.Appendf(nil, "large %08d", rows), make([]byte, s.nameFrom()), 0)
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
	view(t, again, func(tx *Tx) { require.Equal(t, rows, tx.Rows(9)) })
	require.NoError(t, again.Close())
}

// TestRowsInOrderOnADiskThatIsStillFull: replay makes leaves of them, which takes no more pages than to put them one by one, whatever comes between; or else it does put them one by one.
func TestRowsInOrderOnADiskThatIsStillFull(t *testing.T) {
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
			require.Equal(t, odd == "deleted", again.asLogged, "leaves that rows are deleted from come to have others than they had")
			require.NoError(t, again.Close())
		})
	}
}

// TestOverwrittenValueOnADiskThatIsStillFull: it takes the room of two, and so does its replay.
func TestOverwrittenValueOnADiskThatIsStillFull(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, d := range []Durability{Sync, NoSync} {
		for _, more := range []int{-1, 0, 1 << 20} {
			disk := crashfs.New(crashfs.Options{})
			o := fullOptions(disk)
			s := openTest(t, "/a.ebb", o)
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
			if d == Sync && more >= 0 {
				continue // The log names it.
			}
			for i := range 100 {
				tx, err := s.Begin(nil, true)
				require.NoError(t, err)
				tx.Aim(d)
				_, err = tx.Put(9, []byte("key"), bytes.Repeat([]byte{byte(i)}, s.nameFrom()+more), 0)
				require.NoError(t, err)
				require.NoError(t, tx.Commit(d))
				if more > 0 && i == 40 {
					break
				}
			}
			if more < 0 {
				require.Less(t, s.pg.FileBytes(), int64(4<<20))
			}
			disk.SetCapacity(disk.Used())
			again := openStillFull(t, disk, o)
			require.False(t, again.asLogged)
			view(t, again, func(tx *Tx) {
				value, _, found, err := tx.Get(9, []byte("key"))
				require.NoError(t, err)
				require.True(t, found)
				require.Len(t, value, s.nameFrom()+more)
			})
			require.NoError(t, again.Close())
		}
	}
}
