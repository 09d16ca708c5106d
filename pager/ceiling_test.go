package pager

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// runBelow says whether n available pages, in one group and one view, lie below a page.
func (m *spaceModel) runBelow(n, below uint64) bool {
	for lo := uint64(2); lo+n <= min(below, uint64(len(m.pages))); lo++ {
		free := lo/m.s.perGroup == (lo+n-1)/m.s.perGroup && lo/m.s.mapChunk == (lo+n-1)/m.s.mapChunk
		for i := lo; i < lo+n && free; i++ {
			free = m.pages[i] == stateAvail
		}
		if free {
			return true
		}
	}
	return false
}

// TestPagesBelowTheCeilingAreAllocatedFirst: as long as a free page below the ceiling is left, none
// above is allocated, and the file does not grow; then the ceiling is gone.
func TestPagesBelowTheCeilingAreAllocatedFirst(t *testing.T) {
	above, lifted := 0, 0
	for seed := int64(1); seed <= 6; seed++ {
		rnd := rand.New(rand.NewSource(seed))
		m := newSpaceModel(t, uint64(64*(1+rnd.Intn(3))), uint64(40+rnd.Intn(300)))
		for range 300 {
			m.next(true)
		}
		for step := range 600 {
			ceiling := m.s.ceiling.Load()
			switch op := rnd.Intn(12); {
			case op < 4:
				left, end := m.runBelow(1, ceiling), m.s.end
				id, ok, err := m.s.nextPage(m.how, rnd.Intn(2) == 0)
				require.NoError(t, err)
				if !ok {
					id, err = m.s.grow(1)
					require.NoError(t, err)
				}
				m.got(id, 1, !ok)
				if left {
					require.Less(t, uint64(id), ceiling, "seed %d, step %d", seed, step)
					require.Equal(t, ceiling, m.s.ceiling.Load())
					require.Equal(t, end, m.s.end)
				} else if ceiling > 0 {
					require.Zero(t, m.s.ceiling.Load())
					lifted++
				}
			case op < 6:
				n := 2 + uint64(rnd.Intn(20))
				left, end := m.runBelow(n, ceiling), m.s.end
				id, ok, err := m.s.extent(n)
				require.NoError(t, err)
				if !ok {
					id, err = m.s.growExtent(n)
					require.NoError(t, err)
				}
				m.got(id, n, !ok)
				require.Equal(t, ceiling, m.s.ceiling.Load())
				if left {
					require.LessOrEqual(t, uint64(id)+n, ceiling, "seed %d, step %d", seed, step)
					require.Equal(t, end, m.s.end)
				} else if ceiling > 0 {
					above++
				}
			case op < 10:
				if id, n := m.pick(rnd, stateHeld, 12); n > 0 {
					m.give(id, n)
				}
			default:
				m.s.ceiling.Store(2 + uint64(rnd.Intn(len(m.pages))))
				m.s.rewind()
			}
			if step%50 == 0 {
				m.check()
			}
		}
	}
	require.Greater(t, above, 20)
	require.Greater(t, lifted, 20)
}

// TestReusablePagesAboveTheCeilingWait: pages that a running checkpoint frees are free ones, too.
func TestReusablePagesAboveTheCeilingWait(t *testing.T) {
	m := newSpaceModel(t, 64, 1<<20)
	for range 100 {
		m.next(true)
	}
	m.promise(70, 20)
	m.promise(20, 3)
	m.how.MostReusable = 40
	m.s.ceiling.Store(50)
	for want := range 3 {
		id, ok, err := m.s.nextPage(m.how, true)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, Pgid(20+want), id)
	}
	require.EqualValues(t, 50, m.s.ceiling.Load())
	id, ok, err := m.s.nextPage(m.how, true)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Pgid(70), id)
	require.Zero(t, m.s.ceiling.Load())
}

// TestCeilingOfAPager: pages of the free lists and of the free map leave the end of the file, and
// the pages there are counted. An extent is moved below a page or not at all.
func TestCeilingOfAPager(t *testing.T) {
	p := memoryBed().newPager(t, MinPageSize)
	var refs []Ref
	for range 100 {
		refs = append(refs, newPage(t, p, 1))
	}
	checkpoint(t, p)
	checkpoint(t, p)
	tail := p.Alloc.Pages()
	require.Greater(t, uint64(p.Alloc.SpacePages()[0].Pgid), uint64(refs[99].Pgid),
		"the free map is at the end")
	for _, ref := range refs[10:] {
		require.NoError(t, p.Alloc.Freed(ref.Pgid, 1))
	}
	for _, ref := range refs[10:90] {
		require.NoError(t, p.Release(ref.Pgid, 1))
	}
	unframed, framed := refs[85].Pgid, newPage(t, p, 2).Pgid
	require.NoError(t, p.Alloc.Freed(framed, 1))
	require.NoError(t, p.Unused(framed, 1))
	limit := refs[60].Pgid
	require.NoError(t, p.Alloc.SetCeiling(limit))
	used, waiting := p.Alloc.From(limit)
	require.EqualValues(t, len(p.Alloc.SpacePages()), used)
	require.GreaterOrEqual(t, waiting, uint64(10), "freed, and not released")
	require.Zero(t, p.Alloc.FreeTail())

	_, err := p.StartExtent(nextEpoch(p), 9, 60*p.PageSize(), false, AllocPolicy{Below: limit})
	require.ErrorIs(t, err, ErrNoneBelow)
	require.LessOrEqual(t, p.Alloc.Pages(), tail+2, "and the file has not grown for it")
	e, err := p.StartExtent(nextEpoch(p), 9, 30*p.PageSize(), false, AllocPolicy{Below: limit})
	require.NoError(t, err)
	require.Less(t, e.Ref.Pgid+Pgid(e.Pages), limit)
	require.NoError(t, p.Unused(e.Ref.Pgid, e.Pages))

	id, _, err := p.New(9, AllocPolicy{})
	require.NoError(t, err)
	require.Less(t, id, limit)
	require.NoError(t, p.Unused(id, 1))
	again, _, err := p.New(9, AllocPolicy{})
	require.NoError(t, err)
	require.Equal(t, id, again, "below the ceiling the free list is used")
	p.Alloc.LiftCeiling()
	id, _, err = p.New(9, AllocPolicy{Fit: FitLowest})
	require.NoError(t, err)
	require.NoError(t, p.Alloc.SetCeiling(limit))
	for _, high := range []Pgid{unframed, refs[75].Pgid} {
		require.NoError(t, p.Alloc.Touch(high, 1))
		g, i, err := p.Alloc.space.at(high)
		require.NoError(t, err)
		p.Alloc.space.markAllocated(&p.Alloc.space.avail, g, i)
		require.NoError(t, p.Unused(high, 1))
		next, _, err := p.New(9, AllocPolicy{})
		require.NoError(t, err)
		require.Less(t, next, limit, "a page above the ceiling that was freed is not the next one")
	}
	require.NotZero(t, id)

	for _, ref := range refs[90:] {
		require.NoError(t, p.Release(ref.Pgid, 1))
	}
	checkpoint(t, p)
	for _, ref := range p.Alloc.SpacePages() {
		require.Less(t, ref.Pgid, limit)
	}
}
