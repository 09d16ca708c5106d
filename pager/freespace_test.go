package pager

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPagesAreAllocatedInRunsFromTheLowEnd(t *testing.T) {
	m := newSpaceModel(t, 64, 1<<20)
	for range 400 {
		m.next(true)
	}
	free := func(lo, n uint64) {
		require.NoError(t, m.s.setAvail(Pgid(lo), n))
		m.set(Pgid(lo), n, stateAvail)
	}
	free(20, 3) // a hole: too short to be filled while the file is nearly full
	free(100, 20)
	free(300, 16)
	take := func() Pgid {
		id, ok, err := m.s.nextPage(AllocPolicy{}, true)
		require.NoError(t, err)
		if !ok {
			return 0
		}
		m.got(id, 1, false)
		return id
	}
	for i := range 20 {
		require.Equal(t, Pgid(100+i), take())
	}
	for i := range 16 {
		if i == 0 {
			continue // group 4 ends at 320, the run is whole in it
		}
		require.Equal(t, Pgid(300+i-1), take())
	}
	require.Equal(t, Pgid(315), take())
	require.Zero(t, take(), "the short hole is left alone")
	free(350, 15)
	require.Zero(t, take(), "no more became free since the last search than a run needs")
	free(23, 1)
	require.Zero(t, take(), "two runs that are too short")
	free(365, 1)
	require.Zero(t, take(), "a run, but the last search was just before")
	m.s.rewind()
	require.Equal(t, Pgid(350), take(), "a checkpoint has ended")
	m.s.rewind()
	free(200, 50)
	for lo := uint64(30); lo < 90; lo += 15 { // more than a quarter is free now
		free(lo, 14)
	}
	for i := range 50 {
		require.Equal(t, Pgid(200+i), take(), "the long run first")
	}
	for lo := uint64(252); lo < 297; lo += 15 {
		free(lo, 14)
	}
	for _, want := range []Pgid{20, 21, 22, 23, 30} {
		require.Equal(t, want, take(), "and then holes, from the low end")
	}
	m.check()
}

func TestExtentsUseTheUnframedFreeList(t *testing.T) {
	m := newSpaceModel(t, 64, 1<<20)
	for range 40 {
		m.next(true)
	}
	for id := Pgid(5); id < 25; id++ {
		m.s.unframedFree = append(m.s.unframedFree, id)
		m.set(id, 1, stateAvail)
	}
	_, ok, err := m.s.extent(21)
	require.NoError(t, err)
	require.False(t, ok)
	require.Len(t, m.s.unframedFree, 20, "they cannot be enough")
	id, ok, err := m.s.extent(18)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Pgid(5), id)
	m.set(id, 18, stateHeld)
	require.Empty(t, m.s.unframedFree)
	m.check()
}

func TestReleasingTwiceIsCorruption(t *testing.T) {
	m := newSpaceModel(t, 64, 1<<20)
	m.next(true)
	require.ErrorContains(t, m.s.markUnused(2, 1), "not in use")
	require.NoError(t, m.s.setAvail(2, 1))
	require.ErrorContains(t, m.s.setAvail(2, 1), "twice")
	require.ErrorContains(t, m.s.setAvail(1, 1), "in use")
}

func TestExtentsSkipTheEndOfAView(t *testing.T) {
	m := newSpaceModel(t, 128, 100)
	m.extent(90) // [2, 92)
	require.Equal(t, uint64(8), m.s.gap(20))
	m.extent(20)
	require.Equal(t, stateHeld, m.pages[100])
	require.Equal(t, stateAvail, m.pages[99])
	require.Zero(t, m.s.gap(20))
	// A free run that a view cuts is used behind the cut.
	require.NoError(t, m.s.setAvail(80, 12))
	m.set(80, 12, stateAvail)
	require.NoError(t, m.s.setAvail(100, 20))
	m.set(100, 20, stateAvail)
	m.s.rewind()
	id, ok, err := m.s.extent(18)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Pgid(80), id) // 80 to 97, in one view
	m.got(id, 18, false)
	id, ok, err = m.s.extent(19)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Pgid(100), id) // from 98 on it would be cut
	m.got(id, 19, false)
	m.check()
}

func TestShortRunsAreFoundAWordAtATime(t *testing.T) {
	rnd := rand.New(rand.NewSource(3))
	for range 3000 {
		words := make(bitmap, 1+rnd.Intn(5))
		for i := range words {
			for range 1 + rnd.Intn(4) { // runs of all lengths, many of them near the bound
				lo := rnd.Intn(64)
				words[i] |= ^uint64(0) << lo & (^uint64(0) >> rnd.Intn(64-lo))
			}
			words[i] &= rnd.Uint64() | rnd.Uint64() | rnd.Uint64() | rnd.Uint64()
		}
		from := uint64(rnd.Intn(64 * len(words)))
		want, n := uint64(0), 0
		for at := from; at < uint64(64*len(words)); at++ {
			if !words.has(at) {
				n = 0
			} else if n++; n == shortRun {
				want = at - shortRun + 1
				break
			}
		}
		lo, hi := runAt(words, from, shortRun)
		if n < shortRun {
			require.Zero(t, hi)
			continue
		}
		require.Equal(t, want, lo)
		require.Equal(t, nextBit(words, lo, true), hi)
	}
}

// TestTail holds the place from which on so many pages are in use against a count of them one by
// one.
func TestTail(t *testing.T) {
	s := newSpace(4096)
	s.end = 2*s.perGroup + 1000
	p := &Allocator{space: s}
	rnd := rand.New(rand.NewSource(1))
	var behind []uint64 // pages in use, from the end on
	for no := range uint64(3) {
		g := &group{used: make([]uint64, s.words()), loaded: true}
		for i := range min(s.perGroup, s.end-no*s.perGroup) {
			if rnd.Intn(20) == 0 {
				g.used.set(i)
				g.nUsed++
				behind = append(behind, no*s.perGroup+i)
			}
		}
		s.groups = append(s.groups, g)
	}
	slices.Reverse(behind)
	for n, next := range behind {
		tail, err := p.Tail(uint64(n))
		require.NoError(t, err)
		require.Greater(t, uint64(tail), next, "%d of these are behind it", n)
		require.LessOrEqual(t, uint64(tail), min(next/64*64+64, s.end))
	}
	tail, err := p.Tail(uint64(len(behind)))
	require.NoError(t, err)
	require.Zero(t, tail)
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
