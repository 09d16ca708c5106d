package pager

import (
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/platformtest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestFaultIsDamageWhereTheFileEnds, and a failed read where it goes on.
func TestFaultIsDamageWhereTheFileEnds(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		if !p.Mapped() {
			require.ErrorIs(t, p.Fault(1<<20), badfile.ErrCorrupt)
			return
		}
		newPage(t, p, 1)
		checkpoint(t, p)
		inFile, err := p.inFile(1, MinPageSize)
		require.NoError(t, err)
		addr := uintptr(unsafe.Pointer(&inFile[0]))
		err = p.Fault(addr)
		require.ErrorIs(t, err, ErrRead)
		require.ErrorIs(t, err, vfs.ErrIO)
		require.NotErrorIs(t, err, badfile.ErrCorrupt)
		require.ErrorContains(t, err, "page 1 of")
		require.ErrorIs(t, p.Fault(addr-2*MinPageSize), badfile.ErrCorrupt, "before the map: nobody knows")
		platformtest.MayRefuse(t, os.Truncate(b.path, MinPageSize), "windows")
		err = p.Fault(addr)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
		var bad *badfile.Error
		require.ErrorAs(t, err, &bad)
		require.Equal(t, int64(MinPageSize), bad.Off)
	})
}

// TestReferenceOfAnotherEpochIsDamage whatever the page was proved for before. Where the file is
// mapped a page that had been read once was given to each who had its number.
func TestReferenceOfAnotherEpochIsDamage(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		ref := newPage(t, p, 1)
		large, _, err := p.NewExtent(nextEpoch(p), 7, make([]byte, 9000), false)
		require.NoError(t, err)
		require.NoError(t, p.Commit(large.Pgid, 3))
		checkpoint(t, p)
		base := p.LastMeta().Epoch
		for range 2 { // unmet, and met
			for _, other := range []Ref{{ref.Pgid, ref.Epoch - 1}, {ref.Pgid, ref.Epoch + 1}} {
				_, err = p.Page(other, base+2)
				require.ErrorIs(t, err, badfile.ErrCorrupt, "%v", other)
				_, _, err = p.Leaf(other, base+2)
				require.ErrorIs(t, err, badfile.ErrCorrupt, "%v", other)
				require.ErrorIs(t, p.ReadCold(other, make([]byte, MinPageSize)), badfile.ErrCorrupt, "%v", other)
			}
			for _, other := range []Ref{{large.Pgid, large.Epoch - 1}, {large.Pgid, large.Epoch + 1}} {
				_, err = p.Extent(other, 9000)
				require.ErrorIs(t, err, badfile.ErrCorrupt, "%v", other)
			}
			_, err = p.Page(ref, base)
			require.NoError(t, err)
			_, err = p.Extent(large, 9000)
			require.NoError(t, err)
		}
	})
}
