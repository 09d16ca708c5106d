package pager

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestUnmet: a page is unmet as long as it is in the file only, and nobody has looked at it. Who
// reads it for itself has met it.
func TestUnmet(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		proofs := 0
		p.o.CheckPage = func([]byte, int) error { proofs++; return nil }
		looked, read := newPage(t, p, 'l'), newPage(t, p, 'r')
		require.False(t, p.Cold(read, 0), "in a frame")
		base := makeDurable(t, p).Epoch
		require.False(t, p.Cold(read, base-1), "still in a frame, for older snapshots")
		for _, ref := range []Ref{looked, read} {
			p.ReleaseFrame(ref.Pgid, p.Owner(ref.Pgid))
			require.True(t, p.Cold(ref, base))
		}
		_, err := p.Page(looked, base)
		require.NoError(t, err)
		require.False(t, p.Cold(looked, base))

		buf := make([]byte, MinPageSize)
		require.NoError(t, p.ReadCold(read, buf))
		require.Equal(t, byte('r'), buf[MinPageSize-1])
		require.Equal(t, read.Pgid, ReadHeader(buf).Pgid)
		if p.Mapped() {
			require.False(t, p.Cold(read, base))
			require.Zero(t, proofs, "we wrote them ourselves")
		}
		got, err := p.Page(read, base)
		require.NoError(t, err)
		require.Equal(t, buf, got)

		p.invalidateVerified()
		if p.Mapped() {
			require.True(t, p.Cold(read, base))
			require.NoError(t, p.ReadCold(read, buf))
			_, err = p.Page(read, base)
			require.NoError(t, err)
			require.Equal(t, 1, proofs, "once, whoever comes first")
		}
		require.NoError(t, p.Freed(read.Pgid, 1))
		require.NoError(t, p.Release(read.Pgid, 1))
		require.True(t, p.Cold(Ref{Pgid: read.Pgid, Epoch: base}, base), "what is born there is another page")

		patch, durable := patched(t, p)
		require.False(t, p.Cold(patch, durable))
	})
}

// TestReadUnmetProves what nobody has proved, and says where the damage is.
func TestReadUnmetProves(t *testing.T) {
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
			require.True(t, p.Cold(ref, base))
			err = p.ReadCold(ref, buf)
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			var bad *badfile.Error
			require.ErrorAs(t, err, &bad)
			require.Equal(t, int64(ref.Pgid), bad.Off/MinPageSize)
		}
		for _, wrong := range []Ref{{Pgid: 1 << 40, Epoch: base}, {Pgid: 1, Epoch: base}} {
			require.ErrorIs(t, p.ReadCold(wrong, buf), badfile.ErrCorrupt)
		}
	})
}
