package pager

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// aheadFile notes what is read ahead through the first view.
type aheadFile struct {
	vfs.File
	p        *Pager
	runs     []pageRange
	resident uint64 // of each part
	probes   int
}

func (f *aheadFile) ReadAhead(part []byte) {
	off := int(uintptr(unsafe.Pointer(&part[0])) - uintptr(unsafe.Pointer(&f.p.first[0])))
	f.runs = append(f.runs, pageRange{Pgid(off / MinPageSize), Pgid((off + len(part)) / MinPageSize)})
}

func (f *aheadFile) Resident(part []byte, unit int) uint64 {
	f.probes++
	return f.resident & (1<<(len(part)/unit) - 1)
}

// took gives the runs since the last call.
func (f *aheadFile) took() []pageRange {
	runs := f.runs
	f.runs = nil
	return runs
}

// aheadPager has n pages in the file, from the first of refs on, and none in frames.
func aheadPager(t *testing.T, n int) (p *Pager, f *aheadFile, refs []Ref, base Epoch) {
	b := bed{fs: vfs.OS, path: t.TempDir() + "/a.ebb"}
	p = b.newPager(t, MinPageSize)
	if !p.mapped {
		t.Skip("no maps here")
	}
	for range n {
		refs = append(refs, newPage(t, p, 1))
	}
	base = makeDurable(t, p).Epoch
	for _, ref := range refs {
		p.Pool.ReleaseFrame(ref.Pgid, p.Pool.Owner(ref.Pgid))
	}
	f = &aheadFile{File: p.file, p: p}
	p.file = f
	return p, f, refs, base
}

// TestBlocksAreReadOnceIfMemorySuffices: around the first page of them that is looked at, the
// larger the more was read before.
func TestBlocksAreReadOnceIfMemorySuffices(t *testing.T) {
	p, f, refs, base := aheadPager(t, 2000)
	const block = aheadBlock / MinPageSize
	look := func(ref Ref) {
		mustPage(t, p, ref, base)
	}
	look(refs[100])
	first := Pgid(uint64(refs[100].Pgid) / block * block)
	require.Equal(t, []pageRange{{first, first + block}}, f.took())
	for _, ref := range refs {
		if ref.Pgid/block == refs[100].Pgid/block {
			look(ref)
		}
	}
	require.Empty(t, f.took(), "it was asked for")
	p.Reader.ReadSoon(refs[700], base)
	require.Empty(t, f.took(), "the look reads its block")
	p.Reader.ReadAhead(refs[500:600], base)
	for _, run := range f.took() {
		require.Equal(t, Pgid(block), run.to-run.from)
	}
	require.True(t, p.Reader.ahead.blocks.has(refs[500].Pgid/block))
	require.True(t, p.Reader.ahead.blocks.has(refs[599].Pgid/block))
	p.Reader.ReadAhead(refs[500:600], base)
	look(refs[550])
	require.Empty(t, f.took(), "it was asked for")
	require.Equal(t, 5, f.probes, "one for each block")
	require.True(t, p.Reader.View(0, Newest).ReadsAhead())

	p.Reader.ahead.bytes.Store(1 << 30)
	require.False(t, p.Reader.View(0, Newest).ReadsAhead(), "all was read")
	look(refs[1999])
	last := f.took()
	require.Len(t, last, 1)
	require.Greater(t, last[0].to-last[0].from, Pgid(2*block))
	require.LessOrEqual(t, uint64(last[0].to), p.end.Load(), "nothing behind the last page")
	require.LessOrEqual(t, uint64(last[0].to-last[0].from), uint64(mostAheadBlocks*block))
}

// TestBlocksInMemoryAreNotReadAhead. Nearly all of a small file may be holes, which a request fills
// with pages.
func TestBlocksInMemoryAreNotReadAhead(t *testing.T) {
	p, f, refs, base := aheadPager(t, 300)
	const block = aheadBlock / MinPageSize
	first := (refs[0].Pgid/block + 1) * block
	ref := func(id Pgid) Ref { return refs[id-refs[0].Pgid] }
	look := func(id Pgid) {
		mustPage(t, p, ref(id), base)
	}
	f.resident = 1<<3 | 1<<4 | 1<<9
	look(first + 3)
	p.Reader.ReadAhead([]Ref{ref(first + 9), ref(first + 4)}, base)
	look(first + 4)
	require.Equal(t, 1, f.probes)
	require.Empty(t, f.took())
	look(first + 8)
	require.Equal(t, []pageRange{{first, first + block}}, f.took(), "this page was not")
	look(first + 7)
	look(first + 9)
	require.Empty(t, f.took(), "it was asked for")
	p.Reader.ReadAhead([]Ref{ref(first + block)}, base)
	require.Equal(t, []pageRange{{first + block, first + 2*block}}, f.took())
	require.Equal(t, 2, f.probes)

	f.resident = math.MaxUint64
	look(first + 3*block)
	require.Empty(t, f.took())
	p.o.ReadOnly = true // The system may say so of each page of a file that this process cannot write.
	look(first + 4*block)
	require.Len(t, f.took(), 1)
	require.Equal(t, 3, f.probes)
	require.EqualValues(t, 4*aheadBlock, p.Reader.ahead.bytes.Load(), "each block counts once")
}

// TestBlocksOfARequestCountThoughTheyAreInMemory: only the block of the page counted. Those of the
// holes of a small file never did, and each later scan asked for all of its leaves: a scan of 10,000
// rows had three quarters of its rate.
func TestBlocksOfARequestCountThoughTheyAreInMemory(t *testing.T) {
	p, f, refs, base := aheadPager(t, 2000)
	f.resident = math.MaxUint64
	p.Reader.ahead.bytes.Store(1 << 30)
	mustPage(t, p, refs[1000], base)
	require.Empty(t, f.took())
	require.EqualValues(t, 1<<30+mostAheadBlocks*aheadBlock, p.Reader.ahead.bytes.Load())
}

// TestOnlyScannedPagesAreReadIfMemoryIsScarce. In a cgroup of 600 MB gets of a store of 577 MB
// fell to 100/s: each fault read what lay around the page, and evicted pages that were wanted.
func TestOnlyScannedPagesAreReadIfMemoryIsScarce(t *testing.T) {
	p, f, refs, base := aheadPager(t, 500)
	p.o.Cache, p.o.Memory = 1<<20, 2<<20
	require.True(t, p.Reader.View(0, Newest).ReadsAhead())
	mustPage(t, p, refs[100], base)
	require.Empty(t, f.took(), "the fault reads it: the session has written as much as it may fill")

	at := refs[0].Pgid
	walk := []Ref{refs[10], refs[11], refs[12], refs[200], refs[33], refs[32]}
	p.Reader.ReadAhead(walk, base)
	require.Equal(t, 1, f.probes)
	require.ElementsMatch(t, []pageRange{{at + 10, at + 13}, {at + 200, at + 201}, {at + 32, at + 34}},
		f.took())
	p.Reader.ReadSoon(refs[7], base)
	require.Equal(t, []pageRange{{at + 7, at + 8}}, f.took())

	f.resident, f.probes = math.MaxUint64, 0
	p.Reader.ReadAhead(walk, base)
	require.Empty(t, f.took(), "the last one is in memory")
	p.Reader.ReadAhead(refs[:4*aheadSample], base)
	require.Equal(t, 1+4, f.probes)
	f.resident = 0
	framed := newPage(t, p, 1)
	p.Reader.ReadAhead([]Ref{framed, {Pgid: Pgid(p.end.Load()) + 5, Epoch: base}}, base)
	p.Reader.ReadSoon(framed, base)
	require.Empty(t, f.took(), "nothing of these is in the file")
	patch, durable := newDelta(t, p)
	f.took()
	p.Reader.ReadSoon(patch, durable)
	require.Len(t, f.took(), 1, "what the patch changes")

	p.o.Memory = 8 << 20
	require.False(t, p.Scarce())
	p.o.Memory = 0
	require.False(t, p.Scarce(), "nothing is known")
}

// TestScarceMemoryIsFilledWithBlocks. After Open of a store of twice the memory, each of the
// gets at random read one page, and after ten seconds memory was not full.
func TestScarceMemoryIsFilledWithBlocks(t *testing.T) {
	p, f, refs, base := aheadPager(t, 2000)
	p.pagesWritten.Store(0) // as after Open
	p.o.Cache, p.o.Memory = 1<<20, 4<<20
	require.True(t, p.Scarce())
	bytes := 0
	for _, ref := range refs {
		mustPage(t, p, ref, base)
	}
	for _, run := range f.took() {
		bytes += int(run.to-run.from) * MinPageSize
	}
	const most = 4<<20 - 4<<20/memoryRest
	require.GreaterOrEqual(t, bytes, most-aheadBlock)
	require.LessOrEqual(t, bytes, most+mostAheadBlocks*aheadBlock)
}
