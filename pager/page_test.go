package pager

import (
	"bytes"
	"errors"
	"math/rand"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/golden"
	"github.com/ebbkv/ebb/internal/vfs"
)

func filled(b []byte) byte { return b[HeaderSize] }

func TestPagesAreReadAsTheyWereWritten(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		for _, pageSize := range []int{4096, 65536} {
			b.path += "x"
			p := b.newPager(t, pageSize)
			require.Equal(t, pageSize, p.PageSize())
			require.Equal(t, storeID, p.StoreID())
			var pages, extents []Ref
			for i := range 30 {
				pages = append(pages, newPage(t, p, byte(i)))
				extents = append(extents, newExtent(t, p, bytes.Repeat([]byte{byte(i)}, i*5000)))
			}
			base := p.LastMeta().Epoch
			look := func(base Epoch) {
				t.Helper()
				for i := range pages {
					page, err := p.Reader.Page(pages[i], base)
					require.NoError(t, err)
					require.Len(t, page, pageSize)
					require.Equal(t, byte(i), filled(page))
					require.NoError(t, verifyPage(p, pages[i], base))
					v, err := p.Reader.Extent(extents[i], i*5000)
					require.NoError(t, err)
					require.True(t, bytes.Equal(bytes.Repeat([]byte{byte(i)}, i*5000), v))
					require.NoError(t, p.Reader.VerifyExtent(extents[i], base, i*5000))
				}
			}
			look(base)
			require.Equal(t, int64(30*pageSize), p.Pool.FrameBytes())
			for _, ref := range pages {
				require.True(t, p.Pool.InFrame(ref.Pgid))
				require.Equal(t, uint64(7), p.Pool.Owner(ref.Pgid))
			}
			c := checkpoint(t, p)
			require.Zero(t, p.Pool.FrameBytes())
			look(c.Epoch)
			require.NoError(t, p.Close())
			p = b.open(t)
			look(c.Epoch)
		}
	})
}

func TestAPageIsVerifiedOnceASession(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		page, extent := newPage(t, p, 1), newExtent(t, p, make([]byte, 9000))
		base := checkpoint(t, p).Epoch
		require.NoError(t, p.Close())
		p = b.open(t)
		proofs := 0
		p.o.CheckPage = func(b []byte, pageSize int) error { proofs++; return nil }
		before, _ := p.Counters()
		for range 3 {
			_, err := p.Reader.Page(page, base)
			require.NoError(t, err)
		}
		after, _ := p.Counters()
		require.Equal(t, before+1, after)
		require.Equal(t, 1, proofs)
		require.NoError(t, verifyPage(p, page, base), "it reads the file, even of a verified page")
		require.Equal(t, 2, proofs)
		if p.Mapped() {
			before, _ = p.Counters()
			for range 3 {
				_, err := p.Reader.Extent(extent, 9000)
				require.NoError(t, err)
			}
			after, _ = p.Counters()
			require.Equal(t, before+3, after)
		}
		// A reused page number is not verified.
		require.NoError(t, p.Alloc.Freed(page.Pgid, 1))
		require.NoError(t, p.Release(page.Pgid, 1))
		require.False(t, p.verified.has(page.Pgid))
	})
}

func TestAnExtentIsWhatItsCellSays(t *testing.T) {
	const size = 5000
	for _, test := range []struct {
		name   string
		sealed bool
		change func(b []byte)
		asked  int // the size that the cell says
		want   string
	}{
		{"as_it_is", true, func([]byte) {}, size, ""},
		{"one_byte_more", true, func([]byte) {}, size + 1, "overflow extent of 5000 bytes where 5001 belong"},
		{"one_byte_less", true, func([]byte) {}, size - 1, "overflow extent of 5000 bytes where 4999 belong"},
		{"one_page", true, func([]byte) {}, 100, "wrong checksum"},
		{"a_page_more", true, func([]byte) {}, size + MinPageSize, "wrong checksum"},
		{"more_than_the_file", true, func([]byte) {}, 1 << 29, "pages in a file of"},
		{"size", true, func(b []byte) { putU64(b[offExtentSize:], size+1) }, size,
			"overflow extent of 5001 bytes where 5000 belong"},
		{"huge_size", true, func(b []byte) { putU64(b[offExtentSize:], 1<<63) }, size,
			"overflow extent of 9223372036854775808 bytes"},
		{"before_the_value", false, func(b []byte) { b[ExtentHeader-1] ^= 1 }, size, "wrong checksum"},
		{"behind_the_value", false, func(b []byte) { b[ExtentHeader+size] ^= 1 }, size, "wrong checksum"},
	} {
		t.Run(test.name, func(t *testing.T) {
			forBeds(t, func(t *testing.T, b bed) {
				b.create(t, MinPageSize)
				p := b.open(t)
				extent := newExtent(t, p, bytes.Repeat([]byte{7}, size))
				base := checkpoint(t, p).Epoch
				require.NoError(t, p.Close())
				b.rewrite(t, MinPageSize, extent.Pgid, 2, test.sealed, test.change)
				p = b.open(t)
				got, err := p.Reader.Extent(extent, test.asked)
				if test.want == "" {
					require.NoError(t, err)
					require.Equal(t, bytes.Repeat([]byte{7}, size), got)
					require.NoError(t, p.Reader.VerifyExtent(extent, base, test.asked))
					return
				}
				requireBadPage(t, err, extent.Pgid)
				require.ErrorContains(t, err, test.want)
				requireBadPage(t, p.Reader.VerifyExtent(extent, base, test.asked), extent.Pgid)
			})
		})
	}
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
			_, err = p.Reader.Page(page, base)
			require.NoError(t, err)
			_, err = p.Reader.Page(Ref{page.Pgid, base - 1}, base)
			requireBadPage(t, err, page.Pgid)
		}
	})
}

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

func (f *brokenFile) Sync() error     { return errors.Join(f.sync, f.File.Sync()) }
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
	_, err = p.Reader.Page(page, base)
	require.NoError(t, err)

	id, _, err := p.New(7, AllocPolicy{})
	require.NoError(t, err)
	require.NoError(t, p.Spill([]Pgid{id}))
	f.read = errBroken
	_, err = p.Frame(Ref{id, base + 1}, p.Reader.View(base, Newest)) // it was written early, and is needed again
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

func TestFramesAreReusedLastFreedFirst(t *testing.T) {
	p := memoryBed().newPager(t, MinPageSize)
	a, first, err := p.New(7, AllocPolicy{})
	require.NoError(t, err)
	b, second, err := p.New(7, AllocPolicy{})
	require.NoError(t, err)
	require.NoError(t, p.Unused(a, 1))
	require.NoError(t, p.Unused(b, 1))
	id, frame, err := p.New(8, AllocPolicy{})
	require.NoError(t, err)
	require.Equal(t, b, id, "the hot stack keeps numbers dense")
	require.Same(t, &second[0], &frame[0])
	require.Equal(t, uint64(8), p.Pool.Owner(b))
	id, frame, err = p.New(8, AllocPolicy{})
	require.NoError(t, err)
	require.Equal(t, a, id)
	require.Same(t, &first[0], &frame[0])

	// Reuse returns a page of the transaction in its own frame, or in a new one if it was spilled.
	again, err := p.Reuse(a, 9)
	require.NoError(t, err)
	require.Same(t, &first[0], &again[0])
	require.Equal(t, uint64(9), p.Pool.Owner(a))
	WriteHeader(again, Header{Pgid: a, Epoch: 2, Kind: KindLeaf})
	again[HeaderSize] = 77
	require.NoError(t, p.Spill([]Pgid{a}))
	require.False(t, p.Pool.InFrame(a))
	page, err := p.Reader.Page(Ref{a, 2}, 1)
	require.NoError(t, err)
	require.Equal(t, byte(77), filled(page))
	edit, err := p.Frame(Ref{a, 2}, p.Reader.View(1, Newest))
	require.NoError(t, err)
	require.Equal(t, byte(77), filled(edit))
	require.True(t, p.Pool.InFrame(a))
	same, err := p.Frame(Ref{a, 2}, p.Reader.View(1, Newest))
	require.NoError(t, err)
	require.Same(t, &edit[0], &same[0])
	require.NoError(t, p.Spill([]Pgid{a}))
	_, err = p.Reuse(a, 10)
	require.NoError(t, err)
	require.False(t, p.Pool.InFrame(1<<40))
	require.Zero(t, p.Pool.Owner(1<<40))
}

func TestArenaReusesFreedFramesAndCutsLargerSlabs(t *testing.T) {
	a := frameArena{pageSize: 65536}
	defer a.close()
	seen := map[*byte]bool{}
	var frames []*byte
	for range 300 {
		f, err := a.alloc()
		require.NoError(t, err)
		b := (*byte)(f)
		require.False(t, seen[b])
		seen[b] = true
		frames = append(frames, b)
	}
	require.Equal(t, int64(300*65536), a.bytes())
	require.Greater(t, len(a.slabs), 3)
	require.Less(t, len(a.slabs), 10)
	slabs := len(a.slabs)
	f, _ := a.alloc()
	a.release(f)
	for range 50 {
		again, err := a.alloc()
		require.NoError(t, err)
		require.Equal(t, f, again)
		a.release(again)
	}
	require.Len(t, a.slabs, slabs)
	require.NotEmpty(t, frames)
}

func TestCacheOfAnUnmappedFileIsBounded(t *testing.T) {
	b := memoryBed()
	b.cache = 70 * MinPageSize
	p := b.newPager(t, MinPageSize)
	var refs []Ref
	for i := range 400 {
		refs = append(refs, newPage(t, p, byte(i)))
	}
	base := checkpoint(t, p).Epoch
	cached := func() (n int) {
		for _, ref := range refs {
			if c := p.Reader.cache.pages.peek(ref.Pgid); c != nil && c.page != nil {
				n++
			}
		}
		return n
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewSource(int64(g)))
			for range 3000 {
				i := rnd.Intn(len(refs))
				page, err := p.Reader.Page(refs[i], base)
				if err != nil || filled(page) != byte(i) {
					t.Errorf("page %d: %v", i, err)
					return
				}
			}
		}()
	}
	wg.Wait()
	require.LessOrEqual(t, cached(), 70)
	require.LessOrEqual(t, len(p.Reader.cache.ring), 70)

	// A page in constant use stays.
	hot := refs[0]
	_, err := p.Reader.Page(hot, base)
	require.NoError(t, err)
	before, _ := p.Counters()
	for i := range 300 {
		_, err := p.Reader.Page(refs[1+i], base)
		require.NoError(t, err)
		_, err = p.Reader.Page(hot, base)
		require.NoError(t, err)
	}
	after, _ := p.Counters()
	require.LessOrEqual(t, after-before, uint64(300))

	// A reused page number leaves the cache.
	_, err = p.Reader.Page(refs[5], base)
	require.NoError(t, err)
	require.NoError(t, p.Alloc.Freed(refs[5].Pgid, 1))
	require.NoError(t, p.Release(refs[5].Pgid, 1))
	require.Nil(t, p.Reader.cache.pages.peek(refs[5].Pgid).page)
}

func TestLargeExtentsAreWrittenInPieces(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		rnd := rand.New(rand.NewSource(1))
		for _, size := range []int{0, 1, MinPageSize - ExtentHeader, MinPageSize, stagingBytes - ExtentHeader - 1,
			stagingBytes - ExtentHeader, stagingBytes - ExtentHeader + 1, stagingBytes, 2*stagingBytes + 5} {
			value := make([]byte, size)
			rnd.Read(value)
			ref := newExtent(t, p, value)
			require.NoError(t, p.Reader.VerifyExtent(ref, 1, size), "the file holds it before any checkpoint")
			got, err := p.Reader.Extent(ref, size)
			require.NoError(t, err)
			require.True(t, bytes.Equal(value, got))
			require.Equal(t, len(got), cap(got))
		}
	})
}

func TestReadOnlyPagerKeepsNewExtentsInMemory(t *testing.T) {
	b := memoryBed()
	b.create(t, MinPageSize)
	p, metas, err := Open(Options{FS: b.fs, Path: b.path, ReadOnly: true})
	require.NoError(t, err)
	require.NoError(t, p.Start(metas[0]))
	ref, n, err := p.NewExtent(2, 7, []byte("value"), false, AllocPolicy{})
	require.NoError(t, err)
	require.Equal(t, uint64(1), n)
	v, err := p.Reader.Extent(ref, 5)
	require.NoError(t, err)
	require.Equal(t, "value", string(v))
	require.NoError(t, p.Reader.VerifyExtent(ref, 1, 5))
	_, err = p.Reader.Extent(ref, 6)
	require.Error(t, err)
	_, _, err = p.New(7, AllocPolicy{})
	require.NoError(t, err)
	require.Equal(t, int64(2*MinPageSize), p.Alloc.FileBytes(), "no byte was written")
	require.NoError(t, p.Close())
}

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

func TestFreeTailIsTruncated(t *testing.T) {
	p := memoryBed().newPager(t, MinPageSize)
	var refs []Ref
	for range 400 {
		refs = append(refs, newPage(t, p, 1))
	}
	checkpoint(t, p)
	for _, ref := range refs[5:] {
		require.NoError(t, p.Alloc.Freed(ref.Pgid, 1))
	}
	checkpoint(t, p)
	for _, ref := range refs[5:] {
		require.NoError(t, p.Release(ref.Pgid, 1))
	}
	size := p.Alloc.FileBytes()
	checkpoint(t, p) // its free map pages go to the low end
	checkpoint(t, p)
	require.Less(t, p.Alloc.Pages(), uint64(20))
	require.NoError(t, p.Alloc.TrimFile(false))
	require.Less(t, p.Alloc.FileBytes(), size)
	require.NoError(t, p.Alloc.TrimFile(true))
	require.Equal(t, int64(p.Alloc.Pages())*MinPageSize, p.Alloc.FileBytes())
	require.NoError(t, p.Alloc.TrimFile(true), "nothing to cut")
}

func TestFitLowestFillsTheSmallestHoles(t *testing.T) {
	p := memoryBed().newPager(t, MinPageSize)
	var refs []Ref
	for range 100 {
		refs = append(refs, newPage(t, p, 1))
	}
	checkpoint(t, p)
	require.NoError(t, p.Alloc.Freed(refs[10].Pgid, 1))
	checkpoint(t, p)
	require.NoError(t, p.Release(refs[10].Pgid, 1))
	end := p.Alloc.Pages()
	id, _, err := p.New(7, AllocPolicy{})
	require.NoError(t, err)
	require.Equal(t, Pgid(end), id, "one hole is not worth scattered writes")
	id, _, err = p.New(7, AllocPolicy{Fit: FitLowest})
	require.NoError(t, err)
	require.Equal(t, refs[10].Pgid, id)
}

// TestFitLowestDoesNotBeginWithRecentlyFreedPages, wherever they are.
func TestFitLowestDoesNotBeginWithRecentlyFreedPages(t *testing.T) {
	p := memoryBed().newPager(t, MinPageSize)
	low := newPage(t, p, 1)
	for range 100 {
		newPage(t, p, 1)
	}
	checkpoint(t, p)
	require.NoError(t, p.Alloc.Freed(low.Pgid, 1))
	checkpoint(t, p)
	require.NoError(t, p.Release(low.Pgid, 1))
	for range 2 {
		id, _, err := p.New(7, AllocPolicy{})
		require.NoError(t, err)
		require.Greater(t, id, low.Pgid)
		require.NoError(t, p.Unused(id, 1))
	}
	how := AllocPolicy{Fit: FitLowest}
	id, _, err := p.New(7, how)
	require.NoError(t, err)
	require.Equal(t, low.Pgid, id)
	_, _, err = p.New(7, how)
	require.NoError(t, err)
	require.NoError(t, p.Unused(low.Pgid, 1))
	id, _, err = p.New(7, how)
	require.NoError(t, err)
	require.Equal(t, low.Pgid, id, "freed behind the search")
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

// newPageAtEnd allocates a page at the end of the file.
func newPageAtEnd(t *testing.T, p *Pager) Pgid {
	require.NoError(t, p.Alloc.reserve(1, true, ForPut))
	id, err := p.Alloc.space.grow(1)
	require.NoError(t, err)
	p.end.Store(p.Alloc.space.end)
	f, err := p.Pool.arena.alloc()
	require.NoError(t, err)
	p.Pool.table.slot(id).dirty = f
	return id
}

// TestCheckpointWritesBackInSteps: the sync at its end has little to write.
func TestCheckpointWritesBackInSteps(t *testing.T) {
	p := memoryBed().newPager(t, 65536)
	for range 20 {
		newPage(t, p, 1)
	}
	c, err := p.CaptureState(2)
	require.NoError(t, err)
	f := &writeBackFile{File: p.file}
	p.file = f
	for _, hurry := range []bool{false, true} {
		f.ranges, f.started = nil, nil
		require.NoError(t, p.Write(c, throttled(!hurry)))
		most, times := int64(pacedChunk), 11
		if hurry {
			most, times = fastChunk, 1
			require.Len(t, f.started, 2)
			require.Equal(
				t,
				f.started[:1],
				f.ranges,
				"the second was begun with before the first was waited for, and is left to the sync",
			)
		}
		require.Len(t, f.ranges, times, "22 pages of 64 KiB")
		for _, r := range f.ranges {
			require.LessOrEqual(t, r[1], most)
		}
	}
	f.ranges, f.started = nil, nil
	require.NoError(t, p.Write(c, nil))
	require.Empty(t, f.ranges, "without anybody to wait for")
	require.Empty(t, f.started)
	require.NoError(t, p.Write(c, &laterThrottled{}))
	require.Equal(
		t,
		[][2]int64{{2 * 65536, 18 * 65536}, {20 * 65536, 2 * 65536}, {22 * 65536, 2 * 65536}},
		f.ranges,
		"what was begun with is waited for with the first calm part",
	)
	f.err = errBroken
	require.ErrorIs(t, p.Write(c, throttled(true)), errBroken)
	f.err = nil
	require.ErrorIs(t, p.Write(c, nil), errBroken, "a failure is final")
}

// TestPagesWithoutFramesAreReadFromTheFile: without verification at first, and with it after a
// failed sync, because the file may have lost the write.
func TestPagesWithoutFramesAreReadFromTheFile(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		for _, fails := range []string{"", "write back", "sync"} {
			t.Run("fails:"+fails, func(t *testing.T) {
				b.path += "." + strings.ReplaceAll(fails, " ", "_")
				p := b.newPager(t, MinPageSize)
				base := p.LastMeta().Epoch
				var refs []Ref
				for i := range 2 * fastChunk / MinPageSize {
					refs = append(refs, newPage(t, p, byte(i)))
				}
				c, err := p.CaptureState(base + 1)
				require.NoError(t, err)
				proofs := 0
				p.o.CheckPage = func([]byte, int) error { proofs++; return nil }
				requirePages := func() {
					t.Helper()
					for i, ref := range refs {
						page, err := p.Reader.Page(ref, base)
						require.NoError(t, err)
						require.Equal(t, byte(i), page[MinPageSize-1])
					}
				}
				p.Alloc.Growth.EndPreallocation() // its goroutine reads p.file
				back := &writeBackFile{File: p.file}
				p.file = &brokenFile{File: back}
				frames := p.Pool.FrameBytes()
				err = p.Write(c, &frameTaker{p: p, then: func() {
					requirePages()
					switch fails {
					case "write back":
						back.err = errBroken
					case "sync":
						p.file.(*brokenFile).sync = errBroken
					}
				}})
				require.Less(t, p.Pool.FrameBytes(), frames)
				if fails == "" {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, errBroken)
				}
				requirePages()
				if p.Mapped() {
					require.Equal(t, fails != "", proofs > 0)
				}
			})
		}
	})
}

// frameTaker takes frames as soon as it may.
type frameTaker struct {
	p    *Pager
	then func()
}

func (*frameTaker) Throttle(float64) bool { return false }
func (*frameTaker) Yield()                {}
func (b *frameTaker) PagesWritten(ids []Pgid) {
	b.p.Pool.ReturnFrames(b.p.Pool.TakeFrames(ids))
	b.then()
}

// throttled represents commits that matter, or not.
type throttled bool

func (b throttled) Throttle(float64) bool { return bool(b) }
func (throttled) PagesWritten([]Pgid)     {}
func (throttled) Yield()                  {}

// laterThrottled represents commits that matter from the second part on.
type laterThrottled struct{ parts int }

func (b *laterThrottled) Throttle(float64) bool { b.parts++; return b.parts > 1 }
func (*laterThrottled) PagesWritten([]Pgid)     {}
func (*laterThrottled) Yield()                  {}

// writeBackFile notes what it is to write back.
type writeBackFile struct {
	vfs.File
	ranges, started [][2]int64 // offset, length
	err             error
}

func (f *writeBackFile) WriteBack(off, n int64) error {
	f.ranges = append(f.ranges, [2]int64{off, n})
	return f.err
}

func (f *writeBackFile) StartWriteBack(off, n int64) error {
	f.started = append(f.started, [2]int64{off, n})
	return f.err
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

func TestUsedSetDiff(t *testing.T) {
	u := &UsedSet{words: make([]uint64, 3), end: 130}
	v := u.Empty()
	require.True(t, u.Add(5))
	require.False(t, u.Add(5))
	require.False(t, u.Add(130))
	require.False(t, u.Add(1<<64-1))
	require.True(t, v.Add(5))
	require.True(t, v.Add(129))
	require.True(t, u.Add(64))
	var got []Pgid
	u.Diff(v, func(id Pgid, inU bool) bool {
		require.Equal(t, id == 64, inU)
		got = append(got, id)
		return true
	})
	require.Equal(t, []Pgid{64, 129}, got)
	u.Diff(v, func(id Pgid, _ bool) bool { require.Equal(t, Pgid(64), id); return false })
}

// TestTablesKeepTheirContentWhenTheyGrow: other goroutines may look at a slot while the directory
// above it is made longer.
func TestTablesKeepTheirContentWhenTheyGrow(t *testing.T) {
	var tab pageTable[cleanSlot]
	var set pageSet
	first := tab.slot(5)
	set.add(5)
	for _, id := range []Pgid{1 << 16, 1 << 20, 1 << 26} {
		tab.slot(id)
		set.add(id)
		require.Same(t, first, tab.peek(5))
		require.True(t, set.has(5))
	}
}

func TestTablesGrowUnderConcurrentReaders(t *testing.T) {
	var tab pageTable[cleanSlot]
	var set pageSet
	require.Nil(t, tab.peek(1<<63))
	require.False(t, set.has(1<<63))
	set.remove(1 << 63)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 300 {
				id := Pgid(i*977 + g*1_000_003)
				tab.slot(id).hot.Store(true)
				set.add(id)
				if !tab.peek(id).hot.Load() || !set.has(id) {
					t.Errorf("page %d is lost", id)
				}
			}
		}()
	}
	wg.Wait()
	set.remove(977)
	require.False(t, set.has(977))
	require.True(t, set.has(2*977))
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
		for _, ref := range []Ref{{Pgid(id), Epoch(epoch)}, {at, ReadHeader(append(content, make([]byte, HeaderSize)...)).Epoch}} {
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

// verifyPage verifies a page as Check does.
func verifyPage(p *Pager, ref Ref, base Epoch) error {
	_, err := p.Reader.ReadVerified(ref, base, nil)
	return err
}
