package txn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
)

// markOf opens the store and gives its clock mark.
func markOf(t *testing.T, disk *crashfs.Disk) int64 {
	t.Helper()
	s := mustOpen(t, testOptions(disk))
	tx := begin(t, s, false)
	mark := tx.Mark()
	tx.Rollback()
	require.NoError(t, s.Close())
	return mark
}

// TestClockMarkOfACloseOutlivesEveryCrash: Close stores a mark that is newer than that of the last
// commit, with the session's last checkpoint or by itself. It is there after any power cut, also
// one that brings the log back, and after crashes of the recovery from that.
func TestClockMarkOfACloseOutlivesEveryCrash(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	session := func(mark int64, needed bool, fn func(s *Store)) {
		s := mustOpen(t, testOptions(disk))
		s.OnClose(func(int64) (int64, bool) { return mark, needed })
		fn(s)
		require.NoError(t, s.Close())
	}
	images := func(mark int64) (n int) {
		for im := range disk.Images(crashfs.ImageOptions{From: disk.Len()}) {
			cut := im.Disk(crashfs.Options{})
			require.Equal(t, mark, markOf(t, cut), im.Desc())
			onceMore := crashfs.ImageOptions{Profiles: crashfs.None | crashfs.Prefix | crashfs.Kill}
			for again := range cut.Images(onceMore) {
				require.Equal(t, mark, markOf(t, again.Disk(crashfs.Options{})), "%s, then %s",
					im.Desc(), again.Desc())
			}
			n++
		}
		return n
	}
	put := func(s *Store) {
		update(t, s, func(tx *Tx) {
			tx.SetMark(10)
			mustPut(t, tx, CatalogTree, []byte("k"), []byte("v"), 0)
		})
	}
	session(20, false, put)
	require.Greater(t, images(20), 1)
	session(30, true, func(*Store) {})
	require.NotZero(t, images(30))
	session(40, false, func(*Store) {})
	require.NotZero(t, images(30), "nothing was written for what is not needed")
	session(25, true, func(*Store) {})
	require.NotZero(t, images(25), "the clock was set back")
}
