package pager

import (
	"bytes"
	"math/rand"
	"os"
	"strings"
	"sync"
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
				require.ErrorIs(t, p.Reader.ReadCold(other, make([]byte, MinPageSize)),
					badfile.ErrCorrupt, "%v", other)
			}
			for _, other := range []Ref{{large.Pgid, large.Epoch - 1}, {large.Pgid, large.Epoch + 1}} {
				_, err = p.Reader.Extent(other, 9000)
				require.ErrorIs(t, err, badfile.ErrCorrupt, "%v", other)
			}
			mustPage(t, p, ref, base)
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
		mustPage(t, p, looked, base)
		require.False(t, p.Reader.Cold(looked, base))

		buf := make([]byte, MinPageSize)
		require.NoError(t, p.Reader.ReadCold(read, buf))
		require.Equal(t, byte('r'), buf[MinPageSize-1])
		require.Equal(t, read.Pgid, ReadHeader(buf).Pgid)
		if p.Mapped() {
			require.False(t, p.Reader.Cold(read, base))
			require.Zero(t, proofs, "we wrote them ourselves")
		}
		got := mustPage(t, p, read, base)
		require.Equal(t, buf, got)

		p.invalidateVerified()
		if p.Mapped() {
			require.True(t, p.Reader.Cold(read, base))
			require.NoError(t, p.Reader.ReadCold(read, buf))
			mustPage(t, p, read, base)
			require.Equal(t, 1, proofs, "once, by the first read")
		}
		require.NoError(t, p.Alloc.Freed(read.Pgid, 1))
		require.NoError(t, p.Release(read.Pgid, 1))
		require.True(t, p.Reader.Cold(Ref{Pgid: read.Pgid, Epoch: base}, base),
			"what is born there is another page")

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
					page := mustPage(t, p, pages[i], base)
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
			mustPage(t, p, page, base)
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
	mustPage(t, p, hot, base)
	before, _ := p.Counters()
	for i := range 300 {
		mustPage(t, p, refs[1+i], base)
		mustPage(t, p, hot, base)
	}
	after, _ := p.Counters()
	require.LessOrEqual(t, after-before, uint64(300))

	// A reused page number leaves the cache.
	mustPage(t, p, refs[5], base)
	require.NoError(t, p.Alloc.Freed(refs[5].Pgid, 1))
	require.NoError(t, p.Release(refs[5].Pgid, 1))
	require.Nil(t, p.Reader.cache.pages.peek(refs[5].Pgid).page)
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
						page := mustPage(t, p, ref, base)
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
