package pager

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// loadPage has l give a leaf page with a byte pattern.
func loadPage(t testing.TB, l *Loader, fill byte) Ref {
	t.Helper()
	id, b, err := l.New(7)
	require.NoError(t, err)
	ref := Ref{id, nextEpoch(l.p)}
	WriteHeader(b, Header{Pgid: id, Epoch: ref.Epoch, Kind: KindLeaf, Count: 1})
	copy(b[HeaderSize:], bytes.Repeat([]byte{fill}, len(b)-HeaderSize))
	return ref
}

// TestLoadedPagesAreInTheFileBeforeTheCheckpoint, some in a row and some alone, and never have a frame.
func TestLoadedPagesAreInTheFileBeforeTheCheckpoint(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		f := &backFile{File: p.file}
		p.file = f
		id, _, err := p.New(7)
		require.NoError(t, err)
		require.NoError(t, p.Unused(id, 1), "it keeps its frame for whoever takes it next")
		l := p.NewLoader()
		var refs []Ref
		for i := 0; !l.Full(); i++ {
			if i == 3 {
				newExtent(t, p, nil)
			}
			refs = append(refs, loadPage(t, l, byte(i)))
		}
		require.Len(t, refs, stagingBytes/MinPageSize)
		require.Equal(t, id, refs[0].Pgid)
		require.NoError(t, l.Flush())
		first := int64(refs[0].Pgid) * MinPageSize
		require.Equal(t, [][2]int64{{first, 3 * MinPageSize}, {first + 4*MinPageSize, stagingBytes - 3*MinPageSize}}, f.started)
		last := loadPage(t, l, 99)
		require.NoError(t, l.Flush())
		require.NoError(t, l.Flush(), "with nothing to do")
		refs = append(refs, last)

		look := func(base Epoch) {
			t.Helper()
			for i, ref := range refs {
				page, err := p.Page(ref, base)
				require.NoError(t, err)
				want := byte(i)
				if ref == last {
					want = 99
				}
				require.Equal(t, want, filled(page))
				require.NoError(t, p.Verify(ref, base, -1))
			}
		}
		for _, ref := range refs {
			require.Equal(t, uint64(7), p.Owner(ref.Pgid))
			require.NoError(t, p.Commit(ref.Pgid, 1))
		}
		if p.Mapped() {
			read, _ := p.Counters()
			_, err = p.Page(last, p.LastMeta().Epoch)
			require.NoError(t, err)
			again, _ := p.Counters()
			require.Equal(t, read, again, "nothing to prove: we wrote it ourselves")
		}
		look(p.LastMeta().Epoch)
		require.Zero(t, p.FrameBytes())
		c := checkpoint(t, p)
		require.Empty(t, c.Dirty)
		require.NoError(t, p.Close())
		p = b.open(t)
		look(c.Epoch)
	})
}

// TestLoadedPageIsReadAgainInItsNextLife: what was known of the page that was given back is not taken for the new one.
func TestLoadedPageIsReadAgainInItsNextLife(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		for fill := byte(1); fill < 4; fill++ {
			l := p.NewLoader()
			ref := loadPage(t, l, fill)
			require.NoError(t, l.Flush())
			require.Equal(t, uint64(3), p.Pages())
			page, err := p.Page(ref, p.LastMeta().Epoch)
			require.NoError(t, err)
			require.Equal(t, fill, filled(page))
			require.NoError(t, p.Unused(ref.Pgid, 1))
			_, err = p.Page(Ref{ref.Pgid, ref.Epoch + 1}, p.LastMeta().Epoch)
			requireBadPage(t, err, ref.Pgid)
		}
	})
}

func TestLoaderSaysWhatFailed(t *testing.T) {
	for name, broken := range map[string]func(f vfs.File) vfs.File{
		"write":      func(f vfs.File) vfs.File { return &brokenFile{File: f, write: errBroken} },
		"write back": func(f vfs.File) vfs.File { return &backFile{File: f, err: errBroken} },
	} {
		t.Run(name, func(t *testing.T) {
			p := memoryBed().newPager(t, MinPageSize)
			l := p.NewLoader()
			loadPage(t, l, 1)
			p.file = broken(p.file)
			require.ErrorIs(t, l.Flush(), errBroken)
		})
	}
	t.Run("space", func(t *testing.T) {
		p := memoryBed().newPager(t, MinPageSize)
		p.Bound(1)
		_, _, err := p.NewLoader().New(7)
		require.ErrorIs(t, err, ErrNoSpace)
	})
}
