package pager

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

func TestTruncatedFileIsCorruption(t *testing.T) {
	b := bed{fs: vfs.NewMemory(), path: "/a.ebb"}
	p := b.newPager(t, MinPageSize)
	page := newPage(t, p, 1)
	base := checkpoint(t, p).Epoch
	pages := p.Alloc.Pages()
	require.NoError(t, p.file.Truncate(int64(page.Pgid)*MinPageSize+100))
	_, err := p.Reader.Page(page, base)
	requireBadPage(t, err, page.Pgid)
	require.NoError(t, p.Close())
	_, err = b.tryOpen()
	requireBadPage(t, err, Pgid(pages-1))
}

// brokenFile fails the configured calls.
type brokenFile struct {
	vfs.File
	read, write, sync, data, truncate, size error
	writes                                  int // that still succeed
	view                                    func(off, n int64) ([]byte, error)
}

var errBroken = errors.New("broken device")

func (f *brokenFile) ReadAt(b []byte, off int64) (int, error) {
	if f.read != nil {
		return 0, f.read
	}
	return f.File.ReadAt(b, off)
}

func (f *brokenFile) WriteAt(b []byte, off int64) (int, error) {
	if f.writes--; f.write != nil && f.writes < 0 {
		return 0, f.write
	}
	return f.File.WriteAt(b, off)
}

func (f *brokenFile) Sync() error { return errors.Join(f.sync, f.File.Sync()) }

func (f *brokenFile) SyncData() error { return errors.Join(f.data, f.File.SyncData()) }

func (f *brokenFile) Truncate(n int64) error {
	if f.truncate != nil {
		return f.truncate
	}
	return f.File.Truncate(n)
}

func (f *brokenFile) Grow(n int64) error {
	if f.truncate != nil {
		return f.truncate
	}
	return f.File.Grow(n)
}

func (f *brokenFile) Size() (int64, error) {
	if f.size != nil {
		return 0, f.size
	}
	return f.File.Size()
}

func (f *brokenFile) Map(off, n int64) ([]byte, error) { return f.view(off, n) }

func TestErrorsOfTheDeviceAreNotCorruption(t *testing.T) {
	b := memoryBed()
	p := b.newPager(t, MinPageSize)
	page, extent := newPage(t, p, 1), newExtent(t, p, make([]byte, 5000))
	base := checkpoint(t, p).Epoch
	f := &brokenFile{File: p.file, read: errBroken}
	p.file = f
	requireBroken := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, errBroken)
		require.NotErrorIs(t, err, badfile.ErrCorrupt)
	}
	_, err := p.Reader.Page(page, base)
	requireBroken(err)
	_, err = p.Reader.Extent(extent, 5000)
	requireBroken(err)
	requireBroken(verifyPage(p, page, base))
	requireBroken(p.VerifySpace(p.Alloc.freeDir()))
	_, err = readMetas(f, "a.ebb")
	requireBroken(err)
	writeFile(t, bed{fs: b.fs, path: "/short"}, make([]byte, 100))
	short, err := b.fs.Open("/short", 0)
	require.NoError(t, err)
	_, err = readMetas(&brokenFile{File: short, read: errBroken}, "short")
	requireBroken(err)
	require.NoError(t, short.Close())
	f.size = errBroken
	_, err = readMetas(f, "a.ebb")
	requireBroken(err)
	f.read, f.size = nil, nil
	mustPage(t, p, page, base)

	id, _, err := p.New(7, AllocPolicy{})
	require.NoError(t, err)
	require.NoError(t, p.WriteEarly([]Pgid{id}))
	p.FreeFrames([]Pgid{id})
	f.read = errBroken
	// it was written early, and is needed again
	_, err = p.Frame(Ref{id, base + 1}, p.Reader.View(base, Newest))
	requireBroken(err)
	f.read = nil

	f.write = errBroken
	for f.writes = 0; f.writes < 3; f.writes++ {
		left := f.writes
		_, _, err = p.NewExtent(base+1, 7, make([]byte, stagingBytes+MinPageSize*3/2), false, AllocPolicy{})
		requireBroken(err)
		f.writes = left
	}
	newPage(t, p, 1)
	c, err := p.CaptureState(base + 1)
	require.NoError(t, err)
	f.writes = 0
	requireBroken(p.Write(c, nil))
	requireBroken(p.WriteMeta(p.LastMeta()))
	require.Equal(t, base, p.LastMeta().Epoch)
	f.write, f.data, f.sync = nil, errBroken, errBroken
	requireBroken(p.Write(c, nil))
	requireBroken(p.WriteMeta(p.LastMeta()))
	f.truncate = errBroken
	p.Alloc.Growth.size += 1 << 30
	requireBroken(p.Alloc.TrimFile(true))
	p.Alloc.Growth.size = 0
	_, _, err = p.New(7, AllocPolicy{})
	for err == nil {
		_, _, err = p.New(7, AllocPolicy{})
	}
	requireBroken(err)
}

// TestViewThatCannotBeMadeIsAnErrorOfTheRead. A file is mapped in views of mapChunkBytes; only the
// first one is made when it is opened. A hint needs no view, and an extent that lies in two of them
// was not written by us.
func TestViewThatCannotBeMadeIsAnErrorOfTheRead(t *testing.T) {
	b := memoryBed()
	b.create(t, MinPageSize)
	p, metas, err := Open(Options{FS: b.fs, Path: b.path})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.CloseFile()) }()
	f := &brokenFile{File: p.file, view: func(int64, int64) ([]byte, error) { return nil, errBroken }}
	p.file = f
	require.ErrorIs(t, p.Start(metas[0]), errBroken)
	asked := []int64{}
	f.view = func(off, n int64) ([]byte, error) {
		asked = append(asked, off)
		require.Equal(t, int64(mapChunkBytes), n)
		return make([]byte, 0, 1), nil // never read
	}
	require.NoError(t, p.Start(metas[0]))
	require.True(t, p.mapped)

	const perView = mapChunkBytes / MinPageSize
	p.end.Store(20 * perView)
	f.view = func(int64, int64) ([]byte, error) { return nil, errBroken }
	ref := Ref{perView + 1, 1}
	_, err = p.Reader.Page(ref, 1)
	require.ErrorIs(t, err, errBroken)
	require.NotErrorIs(t, err, badfile.ErrCorrupt)
	_, err = p.Reader.Extent(ref, 5000)
	require.ErrorIs(t, err, errBroken)
	require.Nil(t, p.Reader.Peek(ref, 1, 16))
	_, err = p.Reader.Extent(Ref{perView - 1, 1}, 5000)
	requireBadPage(t, err, perView-1)

	// Views stay where they are when the list of them grows.
	at := map[uint64][]byte{}
	f.view = func(off, n int64) ([]byte, error) {
		asked = append(asked, off)
		return make([]byte, 1), nil
	}
	for _, i := range []uint64{0, 1, 9, 19, 0, 1, 9, 19} {
		v, err := p.view(i)
		require.NoError(t, err)
		if at[i] == nil {
			at[i] = v
		}
		require.Equal(t, cap(at[i]), cap(v))
		require.Same(t, &at[i][:1][0], &v[:1][0])
	}
	require.Equal(
		t,
		[]int64{0, mapChunkBytes, 9 * mapChunkBytes, 19 * mapChunkBytes},
		asked,
		"each is made once",
	)
}

func TestAWrongPageIsCorruptionWithItsNumber(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		for _, test := range []struct {
			name   string
			sealed bool
			change func(b []byte)
			want   string
		}{
			{"checksum", false, func(b []byte) { b[100] ^= 1 }, "wrong checksum"},
			{"last_byte", false, func(b []byte) { b[len(b)-1] ^= 1 }, "wrong checksum"},
			{"zeros", false, func(b []byte) { clear(b) }, "wrong checksum"},
			{"pgid", true, func(b []byte) { b[offPgid] ^= 1 }, "misdirected"},
			{"epoch", true, func(b []byte) { b[offEpoch]-- }, "lost write"},
			{"kind", true, func(b []byte) { b[offKind] = byte(KindMeta) }, "meta page where"},
			{"unknown_kind", true, func(b []byte) { b[offKind] = 99 }, "kind 99 page where"},
			{"foreign_store", false, func(b []byte) { SetChecksum(b, Salt([16]byte{1})) }, "wrong checksum"},
			{"check", true, func(b []byte) { b[30] = 0xbb }, "bad cell"},
		} {
			b.path += "x"
			b.create(t, MinPageSize)
			p := b.open(t)
			page := newPage(t, p, 1)
			extent := newExtent(t, p, make([]byte, 5000))
			base := checkpoint(t, p).Epoch
			require.NoError(t, p.Close())
			b.rewrite(t, MinPageSize, page.Pgid, 1, test.sealed, test.change)
			b.rewrite(t, MinPageSize, extent.Pgid, 2, test.sealed, test.change)
			p = b.open(t)
			p.o.CheckPage = func(b []byte, pageSize int) error {
				if b[30] == 0xbb {
					return errors.New("bad cell")
				}
				return nil
			}
			for range 2 {
				_, err := p.Reader.Page(page, base)
				requireBadPage(t, err, page.Pgid)
				require.ErrorContains(t, err, test.want)
				requireBadPage(t, verifyPage(p, page, base), page.Pgid)
				if test.name == "check" {
					continue
				}
				_, err = p.Reader.Extent(extent, 5000)
				requireBadPage(t, err, extent.Pgid)
				require.ErrorContains(t, err, test.want)
				requireBadPage(t, p.Reader.VerifyExtent(extent, base, 5000), extent.Pgid)
			}
			// The rest of the file can be read.
			for _, ref := range p.Alloc.SpacePages() {
				require.NoError(t, p.VerifySpace(ref))
			}
		}
	})
}

func TestReferencesOutOfBoundsAreCorruption(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		page, extent := newPage(t, p, 1), newExtent(t, p, make([]byte, 5000))
		base := checkpoint(t, p).Epoch
		for _, id := range []Pgid{0, 1, Pgid(p.Alloc.Pages()), 1 << 40, 1<<64 - 1} {
			for _, epoch := range []Epoch{base, base + 1} {
				_, err := p.Reader.Page(Ref{id, epoch}, base)
				requireBadPage(t, err, id)
				_, err = p.Reader.Extent(Ref{id, epoch}, 10)
				requireBadPage(t, err, id)
				requireBadPage(t, verifyPage(p, Ref{id, epoch}, base), id)
			}
			requireBadPage(t, p.VerifySpace(Ref{id, base}), id)
		}
		_, err := p.Reader.Extent(Ref{Pgid(p.Alloc.Pages() - 1), base}, 1<<30-1)
		requireBadPage(t, err, Pgid(p.Alloc.Pages()-1))
		_, err = p.Reader.Extent(extent, 5001)
		requireBadPage(t, err, extent.Pgid)
		_, err = p.Reader.Extent(page, 100)
		requireBadPage(t, err, page.Pgid)
		requireBadPage(t, p.Reader.VerifyExtent(page, base, 100), page.Pgid)
		if !p.Mapped() { // a mapped page is looked at once
			mustPage(t, p, page, base)
			_, err = p.Reader.Page(Ref{page.Pgid, base - 1}, base)
			requireBadPage(t, err, page.Pgid)
		}
	})
}
