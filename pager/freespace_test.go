package pager

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// pageState is what the naive model knows of a page.
type pageState uint8

const (
	stateAvail pageState = iota
	stateHeld            // handed out: of an open transaction, or waiting for a snapshot
	stateUsed
	statePromised
)

// spaceModel is a space and a slice that says the same.
type spaceModel struct {
	t     *testing.T
	s     *space
	pages []pageState
	early map[Pgid]bool
	how   AllocPolicy
}

func newSpaceModel(t *testing.T, perGroup, mapChunk uint64) *spaceModel {
	s := newSpace(MinPageSize)
	s.perGroup, s.mapChunk = perGroup, mapChunk
	s.bad = func(id Pgid, detail string) error { return fmt.Errorf("page %d: %s", id, detail) }
	s.load = func(*group, uint64) error { return errors.New("nothing to read") }
	s.end, s.start = 2, 2
	s.addGroups()
	require.NoError(t, s.markUsed(0, 2, false))
	return &spaceModel{t, s, []pageState{stateUsed, stateUsed}, map[Pgid]bool{}, AllocPolicy{}}
}

// got notes that pages were handed out; grown: behind the end there was before.
func (m *spaceModel) got(id Pgid, n uint64, grown bool) {
	m.t.Helper()
	if grown {
		for uint64(len(m.pages)) < uint64(id) { // a gap in front of an extent
			m.pages = append(m.pages, stateAvail)
		}
		require.Equal(m.t, len(m.pages), int(id))
		for range n {
			m.pages = append(m.pages, stateHeld)
		}
		return
	}
	for i := uint64(id); i < uint64(id)+n; i++ {
		require.Less(m.t, i, uint64(len(m.pages)))
		require.Equal(m.t, stateAvail, m.pages[i], "page %d was handed out twice", i)
		require.False(m.t, m.early[Pgid(i)], "page %d", i)
		m.pages[i] = stateHeld
	}
}

func (m *spaceModel) next(inMemory bool) {
	inUse := m.s.reusableInUse()
	id, ok, err := m.s.nextPage(m.how, inMemory)
	require.NoError(m.t, err)
	if !ok {
		id, err = m.s.grow(1)
		require.NoError(m.t, err)
	}
	if ok && m.early[id] {
		require.True(m.t, inMemory)
		require.Equal(m.t, statePromised, m.pages[id])
		require.Equal(m.t, inUse+1, m.s.reusableInUse())
		m.pages[id] = stateHeld
		return
	}
	require.Equal(m.t, inUse, m.s.reusableInUse())
	m.got(id, 1, !ok)
}

// give gives pages back.
func (m *spaceModel) give(id Pgid, n uint64) {
	require.NoError(m.t, m.s.setAvail(id, n))
	for i := range n {
		m.set(id+Pgid(i), 1, stateAvail)
		if m.early[id+Pgid(i)] {
			m.set(id+Pgid(i), 1, statePromised)
		}
	}
}

// promise is give of pages that are early from now on; those that are already stay as they are.
func (m *spaceModel) promise(id Pgid, n uint64) {
	for ; n > 0 && !m.early[id]; id, n = id+1, n-1 {
		require.NoError(m.t, m.s.setReusable(id, 1))
		m.early[id] = true
		m.give(id, 1)
	}
}

func (m *spaceModel) arrive() {
	m.s.acceptReusable()
	for id := range m.early {
		if m.pages[id] == statePromised {
			m.pages[id] = stateAvail
		}
	}
	clear(m.early)
}

func (m *spaceModel) extent(n uint64) {
	id, ok, err := m.s.extent(n)
	require.NoError(m.t, err)
	if !ok {
		id, err = m.s.growExtent(n)
		require.NoError(m.t, err)
	}
	m.got(id, n, !ok)
	require.Equal(
		m.t,
		uint64(id)/m.s.mapChunk,
		(uint64(id)+n-1)/m.s.mapChunk,
		"extent of %d pages at %d is cut",
		n,
		id,
	)
}

// pick finds a run of up to n pages in one state; none: n is 0.
func (m *spaceModel) pick(rnd *rand.Rand, want pageState, n uint64) (Pgid, uint64) {
	from := rnd.Intn(len(m.pages))
	for i := range m.pages {
		id := (from + i) % len(m.pages)
		if id < 2 || m.pages[id] != want {
			continue
		}
		have := uint64(1)
		for have < n && id+int(have) < len(m.pages) && m.pages[id+int(have)] == want {
			have++
		}
		return Pgid(id), have
	}
	return 0, 0
}

func (m *spaceModel) set(id Pgid, n uint64, to pageState) {
	for i := range n {
		m.pages[uint64(id)+i] = to
	}
}

// check holds every bit and every count against the model.
func (m *spaceModel) check() {
	m.t.Helper()
	s := m.s
	require.Equal(m.t, len(m.pages), int(s.end))
	free, dirty, inUse, promised := uint64(0), 0, uint64(0), uint64(0)
	for no, g := range s.groups {
		for _, w := range g.dirty {
			dirty += bits.OnesCount64(w)
		}
		nUsed, nAvail := uint32(0), uint32(0)
		for i := range s.perGroup {
			id := uint64(no)*s.perGroup + i
			want := stateHeld
			if id < s.end {
				want = m.pages[id]
			}
			used, avail := g.used[i/64]&(1<<(i%64)) != 0, g.avail[i/64]&(1<<(i%64)) != 0
			if used != (want == stateUsed) || avail != (want == stateAvail) {
				m.t.Fatalf("page %d: used %v, avail %v, the model says %d", id, used, avail, want)
			}
			require.Equal(m.t, m.early[Pgid(id)], g.isReusable(i), "page %d", id)
			if g.offered != nil && g.offered[i/64]&(1<<(i%64)) != 0 {
				require.Equal(m.t, statePromised, want, "page %d", id)
				promised++
			} else {
				require.NotEqual(m.t, statePromised, want, "page %d", id)
			}
			if used {
				nUsed++
				inUse++
			}
			if avail {
				nAvail++
				free++
			}
		}
		require.Equal(m.t, nUsed, g.nUsed)
		require.Equal(m.t, nAvail, g.nAvail)
	}
	require.Equal(m.t, free, s.avail.n)
	require.Equal(m.t, promised, s.reusable.n)
	require.EqualValues(m.t, len(m.early), s.nReusable)
	require.Equal(m.t, inUse, s.nUsed)
	require.EqualValues(m.t, dirty, s.dirty.Load())
}

func TestSpaceAgreesWithANaiveModel(t *testing.T) {
	for seed := int64(1); seed <= 30; seed++ {
		rnd := rand.New(rand.NewSource(seed))
		perGroup := uint64(64 * (1 + rnd.Intn(4)))
		mapChunk := uint64(40 + rnd.Intn(300))
		t.Logf("seed %d: groups of %d pages, views of %d", seed, perGroup, mapChunk)
		m := newSpaceModel(t, perGroup, mapChunk)
		grow := rnd.Intn(3)
		for step := range 1500 {
			switch op := rnd.Intn(22); {
			case op < 5+grow:
				m.next(rnd.Intn(3) > 0)
			case op < 8:
				m.extent(1 + uint64(rnd.Intn(min(30, int(mapChunk)))))
			case op < 12:
				if id, n := m.pick(rnd, stateHeld, 8); n > 0 {
					require.NoError(t, m.s.markUsed(id, n, rnd.Intn(2) == 0))
					m.set(id, n, stateUsed)
				}
			case op < 15:
				if id, n := m.pick(rnd, stateUsed, 8); n > 0 {
					require.NoError(t, m.s.markUnused(id, n))
					m.set(id, n, stateHeld)
				}
			case op < 18:
				if id, n := m.pick(rnd, stateHeld, 20); n > 0 {
					m.give(id, n)
				}
			case op == 20:
				if id, n := m.pick(rnd, stateHeld, 40); n > 0 {
					m.promise(id, n)
					m.how.MostReusable = m.s.reusableInUse() + uint64(rnd.Intn(20))
				}
			case op == 21:
				if rnd.Intn(4) == 0 {
					m.arrive()
				}
			case op == 18:
				m.s.rewind()
				end := m.s.tail()
				for uint64(len(m.pages)) > end {
					require.Equal(t, stateAvail, m.pages[len(m.pages)-1])
					m.pages = m.pages[:len(m.pages)-1]
				}
				require.True(t, end == 2 || m.pages[end-1] != stateAvail, "the whole tail is cut")
			case rnd.Intn(4) == 0:
				m.s.fit = FitLowest - m.s.fit
				m.s.rewind()
			}
			if step%50 == 0 {
				m.check()
			}
		}
		m.check()
		m.arrive()
		m.check()
		// With FitLowest, every single free page is handed out before the file grows.
		m.s.fit = FitLowest
		m.s.rewind()
		for end := m.s.end; m.s.avail.n > 0; {
			m.next(true)
			require.Equal(t, end, m.s.end)
		}
		m.check()
	}
}

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

func TestShortRunsAreFoundAWordAtATime(t *testing.T) {
	rnd := rand.New(rand.NewSource(3))
	for range 3000 {
		words := make([]uint64, 1+rnd.Intn(5))
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
			if words[at/64]&(1<<(at%64)) == 0 {
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
				g.used[i/64] |= 1 << (i % 64)
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
	require.GreaterOrEqual(t, p.Alloc.space.free(), p.Alloc.freeMapPages(0)+p.Alloc.treeTablePages()+minDeletePages)
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
