package pager

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
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
			used, avail := g.used.has(i), g.avail.has(i)
			if used != (want == stateUsed) || avail != (want == stateAvail) {
				m.t.Fatalf("page %d: used %v, avail %v, the model says %d", id, used, avail, want)
			}
			require.Equal(m.t, m.early[Pgid(id)], g.isReusable(i), "page %d", id)
			if g.offered != nil && g.offered.has(i) {
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
	racetest.NotQuick(t)
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
