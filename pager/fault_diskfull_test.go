package pager

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

func TestAMapThatCannotBeReadIsAnErrorOfEveryCall(t *testing.T) {
	broken := errors.New("broken")
	s := newSpace(MinPageSize)
	s.load = func(*group, uint64) error { return broken }
	s.end, s.start, s.avail.n = 1000, 1000, 900
	s.groups = []*group{{ref: Ref{5, 1}, nUsed: 100}}
	_, _, err := s.nextPage(AllocPolicy{}, true)
	require.ErrorIs(t, err, broken)
	_, _, err = s.extent(3)
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, s.setAvail(5, 1), broken)
	require.ErrorIs(t, s.markUsed(5, 1, false), broken)
	require.ErrorIs(t, s.markUnused(5, 1), broken)
	_, err = s.grow(1)
	require.ErrorIs(t, err, broken)
	_, err = s.growExtent(3)
	require.ErrorIs(t, err, broken)
	require.Equal(t, uint64(1000), s.end)
	require.Equal(t, uint64(1000), s.tail(), "what is not known is not cut")
}

// fullFile cannot grow.
type fullFile struct{ vfs.File }

func (fullFile) Grow(int64) error { return vfs.ErrNoSpace }

// storeWithHoles is a store with single free pages here and there, of which no put takes one as long as
// the file can grow, on a disk that is full.
func storeWithHoles(t *testing.T) (p *Pager, holes int) {
	t.Helper()
	p = memoryBed().newPager(t, MinPageSize)
	var refs []Ref
	for range 400 {
		refs = append(refs, newPage(t, p, 1))
	}
	checkpoint(t, p)
	for i := 0; i < 150; i += 2 {
		require.NoError(t, p.Alloc.Touch(refs[i].Pgid, 1))
		require.NoError(t, p.Alloc.Freed(refs[i].Pgid, 1))
		holes++
	}
	checkpoint(t, p)
	for i := 0; i < 150; i += 2 {
		require.NoError(t, p.Release(refs[i].Pgid, 1))
	}
	checkpoint(t, p)
	require.NoError(t, p.Alloc.TrimFile(true))
	p.file = fullFile{p.file}
	return p, holes
}

// TestHolesAreFilledOnAFullDisk: without space at the end of the file, an allocation takes any free
// page, except for the reserve of deletions and the next checkpoint.
func TestHolesAreFilledOnAFullDisk(t *testing.T) {
	p, holes := storeWithHoles(t)
	n, err := 0, error(nil)
	for ; err == nil; n++ {
		_, _, err = p.New(9, AllocPolicy{})
	}
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	require.Greater(t, n, holes-int(p.Alloc.reservePages(0)))
	require.GreaterOrEqual(t, p.Alloc.space.free(),
		p.Alloc.freeMapPages(0)+p.Alloc.treeTablePages()+minDeletePages)
}

// TestFreePagesServeAsReserveForTheFreeMap on a full disk, wherever they are, and no put takes the last of
// them.
func TestFreePagesServeAsReserveForTheFreeMap(t *testing.T) {
	p, _ := storeWithHoles(t)
	_, err := p.CaptureState(nextEpoch(p))
	require.NoError(t, err)

	p, _ = storeWithHoles(t)
	for _, _, err = p.New(9, AllocPolicy{}); err == nil; _, _, err = p.New(9, AllocPolicy{}) {
	}
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	_, err = p.CaptureState(nextEpoch(p))
	require.NoError(t, err)
}

func TestFileGrowsNoFurtherThanTheDirectoryCovers(t *testing.T) {
	p := memoryBed().newPager(t, MinPageSize)
	p.Alloc.space.end = p.Alloc.MostPages() - 3
	p.Alloc.Growth.size = int64(p.Alloc.space.end) * MinPageSize
	require.ErrorIs(t, p.Alloc.reserve(4, false, ForPut), ErrNoSpace)
}

func TestFullDiskFailsOnlyTheAllocation(t *testing.T) {
	b := memoryBed()
	b.create(t, MinPageSize)
	p, metas, err := Open(Options{FS: b.fs, Path: b.path})
	require.NoError(t, err)
	require.NoError(t, p.Start(metas[0]))
	t.Cleanup(func() { _ = p.Close() })
	most := int64(6+p.Alloc.reservePages(0)) * MinPageSize
	p.Alloc.SetMaxBytes(most)
	var refs []Ref
	for range 4 {
		refs = append(refs, newPage(t, p, 1))
	}
	_, _, err = p.New(7, AllocPolicy{})
	require.ErrorIs(t, err, ErrNoSpace)
	_, _, err = p.NewExtent(2, 7, make([]byte, 10000), false, AllocPolicy{})
	require.ErrorIs(t, err, ErrNoSpace)
	checkpoint(t, p) // takes of the slack: what frees space has to go on
	require.LessOrEqual(t, p.Alloc.FileBytes(), most)
	newPageFor(t, p, 1, ForDelete)
	for _, ref := range refs {
		require.NoError(t, p.Alloc.Freed(ref.Pgid, 1))
	}
	checkpoint(t, p)
	for _, ref := range refs {
		require.NoError(t, p.Release(ref.Pgid, 1))
	}
	newPage(t, p, 1)
}

func TestExtentBehindTheEndIsNotFree(t *testing.T) {
	b, p := freeMapStore(t)
	require.NoError(t, p.Close())
	p = b.open(t)
	require.False(t, p.Alloc.space.groups[0].loaded)
	value := make([]byte, 20*MinPageSize)
	ref, n, err := p.NewExtent(nextEpoch(p), 7, value, false, AllocPolicy{})
	require.NoError(t, err)
	require.True(t, p.Alloc.space.groups[0].loaded,
		"what lies behind it is told of by the group that the end was in")
	seen := map[Pgid]bool{}
	for i := range n {
		seen[ref.Pgid+Pgid(i)] = true
	}
	for range 20 {
		id, _, err := p.New(7, AllocPolicy{})
		require.NoError(t, err)
		require.False(t, seen[id], "page %d was handed out twice", id)
		seen[id] = true
	}
}
