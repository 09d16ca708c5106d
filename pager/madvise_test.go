package pager

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// evictionFile counts the bytes of views that are let go.
type evictionFile struct {
	vfs.File
	parts   []int
	ahead   []int      // bytes of views that are read ahead
	dropped [][2]int64 // from the page cache: offset and length
}

func (f *evictionFile) DontNeed(part []byte)   { f.parts = append(f.parts, len(part)) }
func (f *evictionFile) ReadAhead(part []byte)  { f.ahead = append(f.ahead, len(part)) }
func (f *evictionFile) DropCache(off, n int64) { f.dropped = append(f.dropped, [2]int64{off, n}) }

type unthrottled struct{}

func (unthrottled) Throttle(float64) bool { return false }
func (unthrottled) PagesWritten([]Pgid)   {}
func (unthrottled) Yield()                {}

// TestDeadRangesLeaveThePageCache: runs of pages that the state does not reach, and no shorter ones, by a
// checkpoint beside which others go on.
func TestDeadRangesLeaveThePageCache(t *testing.T) {
	b := bed{fs: vfs.OS, path: t.TempDir() + "/a.ebb"}
	p := b.newPager(t, MinPageSize)
	if !p.mapped {
		t.Skip("no maps here")
	}
	var refs []Ref
	for range 300 {
		refs = append(refs, newPage(t, p, 1))
	}
	checkpoint(t, p)
	for i, ref := range refs {
		if i >= 10 && i < 10+minDeadRange || i >= 100 && i < 100+minDeadRange-1 || i >= 200 && i < 290 {
			require.NoError(t, p.Alloc.Freed(ref.Pgid, 1))
		}
	}
	require.Equal(
		t,
		[]pageRange{{refs[10].Pgid, refs[10+minDeadRange].Pgid}, {refs[200].Pgid, refs[290].Pgid}},
		p.Alloc.space.deadRanges(),
	)
	f := &evictionFile{File: p.file}
	p.file = f
	c, err := p.CaptureState(nextEpoch(p))
	require.NoError(t, err)
	require.NoError(t, p.Write(c, unthrottled{}))
	require.Equal(t, []int{minDeadRange * MinPageSize, 90 * MinPageSize}, f.parts)
	require.Empty(t, f.dropped, "memory suffices")
	p.o.Memory, p.o.Cache = 1<<20, 1<<20
	c, err = p.CaptureState(nextEpoch(p))
	require.NoError(t, err)
	require.NoError(t, p.Write(c, unthrottled{}))
	for _, ref := range []Ref{refs[10], refs[200]} {
		off := int64(ref.Pgid) * MinPageSize
		require.True(t, slices.ContainsFunc(f.dropped, func(d [2]int64) bool {
			return d[0] <= off && off < d[0]+d[1]
		}))
	}
}

// TestMergedBaseLeavesThePageCacheIfMemoryIsScarce. In a cgroup of 256 MB, 70 MB of the page cache were
// bases of deltas that a checkpoint had merged, and 0.7 of gets at random waited for the disk.
func TestMergedBaseLeavesThePageCacheIfMemoryIsScarce(t *testing.T) {
	for _, memory := range []int64{0, 1 << 20} {
		b := bed{fs: vfs.OS, path: t.TempDir() + "/a.ebb"}
		p := b.newPager(t, 4096)
		if !p.mapped {
			t.Skip("no maps here")
		}
		p.o.Memory, p.o.Cache = memory, 1<<20
		ref, _ := newDelta(t, p)
		base, _, _ := decodeDelta(p.Pool.table.peek(ref.Pgid).delta)
		f := &evictionFile{File: p.file}
		p.file = f
		c := checkpoint(t, p)
		if memory == 0 {
			require.Empty(t, f.parts)
			require.Empty(t, f.ahead)
			require.Empty(t, f.dropped)
			continue
		}
		require.Equal(t, []int{4096}, f.ahead)
		require.Equal(t, []int{4096}, f.parts)
		require.Equal(t, [][2]int64{{int64(base.Pgid) * 4096, 4096}}, f.dropped)
		for _, ref := range []Ref{ref, base} {
			_, err := p.Reader.Page(ref, c.Epoch)
			require.NoError(t, err, "a snapshot may still read the base")
		}
	}
}
