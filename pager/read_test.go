package pager

import (
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
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
		if err := os.Truncate(b.path, MinPageSize); err != nil {
			t.Skip("an open file cannot be cut short here:", err)
		}
		err = p.Fault(addr)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
		var bad *badfile.Error
		require.ErrorAs(t, err, &bad)
		require.Equal(t, int64(MinPageSize), bad.Off)
	})
}
