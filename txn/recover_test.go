package txn

import (
	"fmt"
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
				s, err := Open("/a.ebb", testOptions(killed))
				require.NoError(t, err)
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
