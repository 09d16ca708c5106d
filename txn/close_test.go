package txn

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/wal"
)

// closing is a store with rows, the last of which are in the log, and what they are. spare says
// that the next segment is ready.
func closing(t *testing.T, disk *crashfs.Disk, spare bool) (*Store, []string) {
	t.Helper()
	o := testOptions(disk)
	o.LeastRoom = 32 << 10 // A short segment is not used again: there is no next one unless it is asked for.
	s := mustOpen(t, o)
	var want []string
	for i := range 6 {
		key := fmt.Sprint("k", i)
		update(t, s, func(tx *Tx) {
			mustPut(t, tx, CatalogTree, []byte(key), make([]byte, 700), 0)
		})
		want = append(want, key)
		if i == 3 {
			require.NoError(t, s.Checkpoint(t.Context()))
		}
	}
	if spare {
		require.NoError(t, s.log.Prepare())
	}
	files, err := wal.Files(disk, "/a.ebb")
	require.NoError(t, err)
	require.Equal(t, spare, len(files) == 2)
	return s, want
}

// closed is what a Close did, from that moment on, to the disk of a store with these rows.
func closed(t *testing.T, spare bool) (disk *crashfs.Disk, from int, want []string) {
	t.Helper()
	disk = crashfs.New(crashfs.Options{})
	s, want := closing(t, disk, spare)
	from = disk.Len()
	require.NoError(t, s.Close())
	return disk, from, want
}

// TestCloseNeedsNoSegment: the log that ends with a session goes on in no other one. A disk without
// room for a segment does not keep the last checkpoint from being written.
func TestCloseNeedsNoSegment(t *testing.T) {
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	s, want := closing(t, disk, false)
	disk.SetCapacity(disk.Used())
	require.NoError(t, s.Close())
	names, err := wal.Files(disk, "/a.ebb")
	require.NoError(t, err)
	require.Empty(t, names)
	disk.SetCapacity(0)
	s = openTest(t, "/a.ebb", testOptions(disk))
	require.True(t, s.Recovery().Clean)
	for _, key := range want {
		requireRow(t, s, key)
	}
}

func requireRow(t *testing.T, s *Store, key string) {
	t.Helper()
	view(t, s, func(tx *Tx) {
		info, err := tx.Info(CatalogTree, []byte(key))
		require.NoError(t, err)
		require.True(t, info.Found, key)
	})
}

// TestCrashesOfAClose: at every moment, and again while the store is opened after that. Where the
// newest meta page may be in the page cache alone, recovery starts from the one before: the log
// says that it is whole as far as that page knows, although no segment comes after it.
func TestCrashesOfAClose(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, spare := range []bool{true, false} {
		disk, from, want := closed(t, spare)
		fromOlder, clean := 0, 0
		open := func(d *crashfs.Disk) Recovery {
			s := mustOpen(t, testOptions(d))
			require.EqualValues(t, len(want), s.head.seq)
			for _, key := range want {
				requireRow(t, s, key)
			}
			requireSound(t, s)
			got := s.Recovery()
			require.NoError(t, s.Close())
			return got
		}
		for im := range disk.Images(crashfs.ImageOptions{
			Profiles: crashfs.Kill | crashfs.None | crashfs.Prefix, From: from,
		}) {
			d := im.Disk(crashfs.Options{})
			_, gone := d.Stat("/a.ebb-wal-000002")
			got := open(d)
			if gone != nil {
				require.Zero(t, got.CommitsReplayed)
				clean++
			} else {
				require.Equal(t, 2, got.CommitsReplayed, "spare %v: %d %s", spare, im.Point, im.Desc())
				fromOlder++
			}
			for second := range d.Images(crashfs.ImageOptions{Profiles: crashfs.Kill | crashfs.None,
				Every: 3}) {
				open(second.Disk(crashfs.Options{}))
			}
		}
		require.Greater(t, fromOlder, 3, "spare %v", spare)
		require.Positive(t, clean, "spare %v", spare)
	}
}

// TestTornTailOfAClosedLog: the clean meta page knows where the log had ended, so that one which
// has lost its end is not taken for whole.
func TestTornTailOfAClosedLog(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, spare := range []bool{true, false} {
		disk, from, want := closed(t, spare)
		torn, kept := 0, 0
		for im := range disk.Images(crashfs.ImageOptions{Profiles: crashfs.Kill, From: from}) {
			d := im.Disk(crashfs.Options{})
			if !tearLastRecord(t, d, "/a.ebb-wal-000002") {
				continue
			}
			s := mustOpen(t, testOptions(d))
			if s.head.seq == uint64(len(want)) {
				kept++
			} else {
				require.EqualValues(t, len(want)-1, s.head.seq)
				require.Zero(t, kept, "spare %v: the page is there by now: %d %s", spare, im.Point, im.Desc())
				torn++
			}
			requireSound(t, s)
			require.NoError(t, s.Close())
		}
		require.Positive(t, torn, "spare %v", spare)
		require.Positive(t, kept, "spare %v", spare)
	}
}
