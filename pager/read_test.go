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

// TestFaultPastTheEndOfTheFileIsCorruption, and a failed read where it goes on.
func TestFaultPastTheEndOfTheFileIsCorruption(t *testing.T) {
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
		require.ErrorIs(t, p.Fault(addr-2*MinPageSize), badfile.ErrCorrupt, "before the map: unknown")
		platformtest.MayRefuse(t, os.Truncate(b.path, MinPageSize), "windows")
		err = p.Fault(addr)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
		var bad *badfile.Error
		require.ErrorAs(t, err, &bad)
		require.Equal(t, int64(MinPageSize), bad.Off)
	})
}

// TestReferenceOfAnotherEpochIsCorruption, also of a verified page. In a mapped file, a page that
// had been read once was returned for each reference to its number.
func TestReferenceOfAnotherEpochIsCorruption(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		ref := newPage(t, p, 1)
		large, _, err := p.NewExtent(nextEpoch(p), 7, make([]byte, 9000), false, AllocPolicy{})
		require.NoError(t, err)
		require.NoError(t, p.Commit(large.Pgid, 3))
		checkpoint(t, p)
		base := p.LastMeta().Epoch
		for range 2 { // cold, and accessed
			for _, other := range []Ref{{ref.Pgid, ref.Epoch - 1}, {ref.Pgid, ref.Epoch + 1}} {
				_, err = p.Reader.Page(other, base+2)
				require.ErrorIs(t, err, badfile.ErrCorrupt, "%v", other)
				_, _, err = p.Reader.Leaf(other, base+2)
				require.ErrorIs(t, err, badfile.ErrCorrupt, "%v", other)
				require.ErrorIs(t, p.Reader.ReadCold(other, make([]byte, MinPageSize)), badfile.ErrCorrupt, "%v", other)
			}
			for _, other := range []Ref{{large.Pgid, large.Epoch - 1}, {large.Pgid, large.Epoch + 1}} {
				_, err = p.Reader.Extent(other, 9000)
				require.ErrorIs(t, err, badfile.ErrCorrupt, "%v", other)
			}
			_, err = p.Reader.Page(ref, base)
			require.NoError(t, err)
			_, err = p.Reader.Extent(large, 9000)
			require.NoError(t, err)
		}
	})
}

// TestCold: a page is cold as long as it is in the file only and has not been read. ReadCold ends
// that.
func TestCold(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		proofs := 0
		p.o.CheckPage = func([]byte, int) error { proofs++; return nil }
		looked, read := newPage(t, p, 'l'), newPage(t, p, 'r')
		require.False(t, p.Reader.Cold(read, 0), "in a frame")
		base := makeDurable(t, p).Epoch
		require.False(t, p.Reader.Cold(read, base-1), "still in a frame, for older snapshots")
		for _, ref := range []Ref{looked, read} {
			p.Pool.ReleaseFrame(ref.Pgid, p.Pool.Owner(ref.Pgid))
			require.True(t, p.Reader.Cold(ref, base))
		}
		_, err := p.Reader.Page(looked, base)
		require.NoError(t, err)
		require.False(t, p.Reader.Cold(looked, base))

		buf := make([]byte, MinPageSize)
		require.NoError(t, p.Reader.ReadCold(read, buf))
		require.Equal(t, byte('r'), buf[MinPageSize-1])
		require.Equal(t, read.Pgid, ReadHeader(buf).Pgid)
		if p.Mapped() {
			require.False(t, p.Reader.Cold(read, base))
			require.Zero(t, proofs, "we wrote them ourselves")
		}
		got, err := p.Reader.Page(read, base)
		require.NoError(t, err)
		require.Equal(t, buf, got)

		p.invalidateVerified()
		if p.Mapped() {
			require.True(t, p.Reader.Cold(read, base))
			require.NoError(t, p.Reader.ReadCold(read, buf))
			_, err = p.Reader.Page(read, base)
			require.NoError(t, err)
			require.Equal(t, 1, proofs, "once, by the first read")
		}
		require.NoError(t, p.Alloc.Freed(read.Pgid, 1))
		require.NoError(t, p.Release(read.Pgid, 1))
		require.True(t, p.Reader.Cold(Ref{Pgid: read.Pgid, Epoch: base}, base), "what is born there is another page")

		patch, durable := newDelta(t, p)
		require.False(t, p.Reader.Cold(patch, durable))
	})
}

// TestReadColdVerifies pages that are not verified, and its error gives the place of the damage.
func TestReadColdVerifies(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		ref := newPage(t, p, 'x')
		base := checkpoint(t, p).Epoch
		if b.fs == vfs.OS {
			require.NoError(t, p.Close())
			p = b.open(t)
		}
		_, err := p.file.WriteAt([]byte("damaged"), int64(ref.Pgid)*MinPageSize+100)
		require.NoError(t, err)
		buf := make([]byte, MinPageSize)
		for range 2 { // and goes on to
			require.True(t, p.Reader.Cold(ref, base))
			err = p.Reader.ReadCold(ref, buf)
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			var bad *badfile.Error
			require.ErrorAs(t, err, &bad)
			require.Equal(t, int64(ref.Pgid), bad.Off/MinPageSize)
		}
		for _, wrong := range []Ref{{Pgid: 1 << 40, Epoch: base}, {Pgid: 1, Epoch: base}} {
			require.ErrorIs(t, p.Reader.ReadCold(wrong, buf), badfile.ErrCorrupt)
		}
	})
}
