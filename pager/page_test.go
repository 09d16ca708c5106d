package pager

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/golden"
	"github.com/ebbkv/ebb/internal/vfs"
)

func filled(b []byte) byte { return b[HeaderSize] }

func TestCreateKeepsAnExistingFile(t *testing.T) {
	b := memoryBed()
	b.create(t, MinPageSize)
	created, err := Create(b.fs, b.path, Meta{PageSize: 8192, SegmentSize: 64 << 10})
	require.NoError(t, err)
	require.False(t, created)
	_, err = b.fs.Stat(b.path + tempSuffix)
	require.Error(t, err)
	p := b.open(t)
	require.Equal(t, MinPageSize, p.PageSize())
	require.NoError(t, RemoveTemp(b.fs, b.path))
	// A running Create holds the lock of the temporary file.
	f, err := b.fs.Open("/b.ebb"+tempSuffix, vfs.Write|vfs.Create)
	require.NoError(t, err)
	require.NoError(t, f.Lock(true))
	_, err = Create(b.fs, "/b.ebb", Meta{PageSize: 4096, SegmentSize: 64 << 10})
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.NoError(t, f.Close())
	// A second holder of the store itself is refused too.
	_, err = b.tryOpen()
	require.ErrorIs(t, err, vfs.ErrLocked)
	_, _, err = Open(Options{FS: b.fs, Path: "/nothing.ebb"})
	require.Error(t, err)
}

func TestAFileThatWasReplacedIsNoticed(t *testing.T) {
	b := memoryBed()
	p := b.newPager(t, MinPageSize)
	require.NoError(t, p.CheckIdentity())
	require.NoError(t, b.fs.Rename(b.path, "/elsewhere"))
	require.ErrorIs(t, p.CheckIdentity(), ErrReplaced)
	b.create(t, MinPageSize)
	require.ErrorIs(t, p.CheckIdentity(), ErrReplaced)
	require.NoError(t, p.CloseFile())
}

// TestFill finds where pages that the file does not hold yet would end if all of them filled the
// free space from the low end on.
func TestFill(t *testing.T) {
	p := memoryBed().newPager(t, MinPageSize)
	require.Equal(t, Pgid(p.Alloc.Pages()), p.Alloc.Fill(), "an empty store")
	var refs []Ref
	for range 1000 {
		refs = append(refs, newPage(t, p, 1))
	}
	require.Equal(t, Pgid(p.Alloc.Pages()), p.Alloc.Fill(), "there is no room")
	checkpoint(t, p)
	for _, ref := range refs[100:600] {
		require.NoError(t, p.Alloc.Freed(ref.Pgid, 1))
	}
	checkpoint(t, p)
	for _, ref := range refs[100:300] {
		require.NoError(t, p.Release(ref.Pgid, 1))
	}
	for range 80 {
		require.NoError(t, p.Commit(newPageAtEnd(t, p), 1))
	}
	want := refs[100].Pgid + 80
	fill := p.Alloc.Fill()
	require.GreaterOrEqual(t, fill, want)
	require.Less(t, fill, want+64)
	for range 50 {
		newPage(t, p, 1) // below: these need no room
	}
	fill = p.Alloc.Fill()
	require.GreaterOrEqual(t, fill, want+50)
	require.Less(t, fill, want+50+64)
}

func TestEveryKindHasAName(t *testing.T) {
	names := map[string]bool{}
	for k := KindMeta; k <= KindFreeDir+1; k++ {
		require.False(t, names[k.String()])
		names[k.String()] = true
	}
	require.True(t, names["kind 7"])
	require.Equal(t, "3@4", Ref{3, 4}.String())
}

// FuzzOverflow reads an extent from a file whose bytes are anything, with their checksum right.
func FuzzOverflow(f *testing.F) {
	f.Add(golden.Read(f, "testdata/overflow.hex"), 5055, uint64(2), uint32(1))
	f.Add([]byte("short"), 0, uint64(1<<63), uint32(9))
	// a cell that asks for a gigabyte
	f.Add(golden.Read(f, "testdata/overflow.hex"), 1<<30, uint64(2), uint32(1))
	f.Fuzz(func(t *testing.T, content []byte, size int, id uint64, epoch uint32) {
		defer bound.Hold(t, 16<<20)()
		if len(content) > 64<<10 || size < 0 || size > 1<<30 {
			return
		}
		b := memoryBed()
		p := b.newPager(t, MinPageSize)
		n := (len(content) + MinPageSize - 1) / MinPageSize
		if n == 0 {
			return
		}
		require.NoError(t, p.Alloc.reserve(uint64(n), true, ForPut))
		at, err := p.Alloc.space.grow(uint64(n))
		require.NoError(t, err)
		p.end.Store(p.Alloc.space.end)
		b.rewrite(t, MinPageSize, at, n, true, func(b []byte) { copy(b, content) })
		for _, ref := range []Ref{{Pgid(id), Epoch(epoch)},
			{at, ReadHeader(append(content, make([]byte, HeaderSize)...)).Epoch}} {
			v, err := p.Reader.Extent(ref, size)
			if err != nil {
				require.ErrorIs(t, err, badfile.ErrCorrupt)
				continue
			}
			require.Len(t, v, size)
		}
		_, err = p.Reader.Page(Ref{at, Epoch(epoch)}, Epoch(epoch))
		if err != nil {
			require.ErrorIs(t, err, badfile.ErrCorrupt)
		}
	})
}

// verifyPage verifies a page as Check does.
func verifyPage(p *Pager, ref Ref, base Epoch) error {
	_, err := p.Reader.ReadVerified(ref, base, nil)
	return err
}
