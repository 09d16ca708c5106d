package pager

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// TestTruncatedFileIsNotOpened truncates a file by some pages. A read of a missing page through the
// map is no error: the system ends the process. So Start has to notice the missing pages before any
// read, and its error gives the last page that the meta page counts.
func TestTruncatedFileIsNotOpened(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		var refs []Ref
		for range 20 {
			refs = append(refs, newPage(t, p, 1))
		}
		checkpoint(t, p)
		for _, ref := range refs[:10] {
			require.NoError(t, p.Alloc.Freed(ref.Pgid, 1))
		}
		checkpoint(t, p)
		for _, ref := range refs[:10] {
			require.NoError(t, p.Release(ref.Pgid, 1))
		}
		// The free map goes where these were: no page at the end is read by opening.
		pages, last := checkpoint(t, p).Pages, refs[len(refs)-1]
		require.Less(t, p.Alloc.freeDir().Pgid, last.Pgid)
		require.NoError(t, p.Close())
		f, err := b.fs.Open(b.path, vfs.Write)
		require.NoError(t, err)
		defer func() { require.NoError(t, f.Close()) }()

		require.NoError(t, f.Truncate(int64(pages)*MinPageSize)) // no byte behind the last page is needed
		p, err = b.tryOpen()
		require.NoError(t, err)
		mustPage(t, p, last, last.Epoch)
		require.NoError(t, p.Close())

		for size := int64(pages)*MinPageSize - 1; size >= 2*MinPageSize; size -= MinPageSize / 2 {
			require.NoError(t, f.Truncate(size))
			_, err = b.tryOpen()
			requireBadPage(t, err, Pgid(pages-1))
		}
	})
}
