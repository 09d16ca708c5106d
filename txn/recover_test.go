package txn

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestRecoveryBesideAFileNamedLikeASegmentFarAhead: recovery names the segment behind all that it
// finds in a meta page, which has room for so many. Without a bound it wrote a page that no Open
// takes, and removed the log.
func TestRecoveryBesideAFileNamedLikeASegmentFarAhead(t *testing.T) {
	for _, number := range []uint64{1<<33 - 2, 1<<33 - 1, 9_000_000_000, 1 << 34} {
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			disk := crashfs.New(crashfs.Options{})
			s := openTest(t, "/a.ebb", testOptions(disk))
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)); putRow(t, tx, 1) })
			killed := imageOf(t, disk).Disk(crashfs.Options{})
			f, err := killed.Open(fmt.Sprintf("/a.ebb-wal-%06d", number), vfs.Write|vfs.Create)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			for range 2 {
				s := mustOpen(t, testOptions(killed))
				require.Equal(t, 1, rowsOf(t, s)[1])
				require.NoError(t, s.Close())
			}
			s = openTest(t, "/a.ebb", testOptions(killed))
			update(t, s, func(tx *Tx) { putRow(t, tx, 2) })
			require.NoError(t, s.Checkpoint(nil))
			require.Equal(t, 2, rowsOf(t, s)[1])
		})
	}
}

// stuckSegments is a file system on which no log segment from the n-th on can be removed.
type stuckSegments struct {
	vfs.FS
	n int
}

var errStuck = errors.New("not now")

func (f *stuckSegments) Remove(name string) error {
	if strings.Contains(name, "-wal-") {
		if f.n--; f.n < 0 {
			return errStuck
		}
	}
	return f.FS.Remove(name)
}

// TestOpenRemovesTheLogThatItReplayed before it returns. If a segment cannot be removed Open returns
// that error, and a later Open removes the rest.
func TestOpenRemovesTheLogThatItReplayed(t *testing.T) {
	const rows = 10_000
	path, _ := killedWithLog(t, rows)
	segments := func() int {
		names, err := filepath.Glob(path + "-wal-*")
		require.NoError(t, err)
		return len(names)
	}
	all := segments()
	require.Greater(t, all, 4)
	o := testOptions(vfs.OS)
	o.Inline, o.CacheBytes = false, 64<<20
	for _, removed := range []int{0, 2} {
		o.FS = &stuckSegments{vfs.OS, removed}
		_, err := Open(path, o)
		require.ErrorIs(t, err, errStuck)
		require.Equal(t, all-removed, segments())
	}
	o.FS = vfs.OS
	s, err := Open(path, o)
	require.NoError(t, err)
	require.Zero(t, segments())
	require.True(t, s.Recovery().Clean, "a chain without its start is not replayed again")
	tx := begin(t, s, false)
	require.Len(t, contents(t, tx, CatalogTree), rows)
	tx.Rollback()
	require.NoError(t, s.Close())
}
