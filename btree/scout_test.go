package btree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// state is what a transaction began with, while it changes the memory that it is of.
type state struct{ memory }

func (m *memory) state() *state {
	s := &state{*m}
	s.pages = slices.Clone(m.pages)
	return s
}

func (s *state) Fetch(ref pager.Ref) ([]byte, error) {
	b, _, err := s.Leaf(ref)
	return b, err
}

// TestWaysOfAScoutHoldAsFarAsTheyAreKnown: while a transaction splits pages, merges them and moves cells, in a tree that grows and shrinks by whole levels,
// a scout looks for the ways of its next changes in the state that it began with. What is known of them is right when their time
// comes, and most is known.
func TestWaysOfAScoutHoldAsFarAsTheyAreKnown(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, patches := range []bool{false, true} {
		t.Run(fmt.Sprintf("patches=%v", patches), func(t *testing.T) {
			m := newMemory(4096)
			m.patches = patches
			tr := Tree{}
			rnd := rand.New(rand.NewPCG(5, 6))
			have := map[string]bool{}
			followed, known, bent := 0, 0, 0
			depths := map[uint8]bool{}
			for round := range 120 {
				deletes := 2 // of ten
				if round%40 > 28 {
					deletes = 10
				}
				changes := make([]Change, 10*MaxWays)
				found := make([]Scouted, len(changes))
				for i := range changes {
					changes[i] = deepChange(rnd, deletes)
					found[i].Key = changes[i].Key
				}
				var g Guide
				scout := g.Begin(m.state(), tr)
				require.Equal(t, tr.Depth > 1, scout)
				depths[tr.Depth] = true
				scouted := 0
				look := func(to int) {
					for ; scout && scouted < min(to, len(found)); scouted += MaxWays {
						require.NoError(t, g.Scout(found[scouted:scouted+MaxWays]))
					}
				}
				look(rnd.IntN(len(found)))
				var f Finger
				for at := 0; at < len(changes); at += MaxWays {
					some := changes[at : at+MaxWays]
					s := Ways{Guide: &g}
					if at < scouted {
						require.True(t, s.Follow(m, found[at:at+MaxWays], some))
						followed++
					} else {
						require.NoError(t, s.Find(m, tr, &f, some))
					}
					for i := range some {
						if s.hold {
							proveWay(t, m, tr, s.of[i], some[i].Key)
						}
						if at < scouted {
							if s.of[i].known() {
								known++
							} else {
								bent++
							}
						}
						_, err := s.Apply(m, &tr, &f, i, &some[i])
						require.NoError(t, err)
						have[string(some[i].Key)] = !some[i].Delete
					}
					look(at + rnd.IntN(len(found)))
				}
				m.commit(t)
			}
			m.requireSound(t, tr)
			require.Greater(t, len(depths), 2)
			require.Greater(t, followed, 400)
			require.Greater(t, known, bent/2)
			require.Greater(t, bent, 400)
			require.Equal(t, patches, m.patched > 0)
			for key, there := range have {
				info, err := GetInfo(m, tr, []byte(key))
				require.NoError(t, err)
				require.Equal(t, there, info.Found)
			}
		})
	}
}

// TestBranchesThatWereNotBentKeepTheirWays: where leaves are split under one branch, ways through the others lead to their leaves.
func TestBranchesThatWereNotBentKeepTheirWays(t *testing.T) {
	m := newMemory(4096)
	tr := Tree{}
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%08d", i) }
	for i := range 60_000 {
		_, err := Put(m, &tr, key(2*i), make([]byte, 100), 0)
		require.NoError(t, err)
	}
	m.commit(t)
	require.Equal(t, uint8(3), tr.Depth)
	var g Guide
	require.True(t, g.Begin(m.state(), tr))
	found, changes := make([]Scouted, MaxWays), make([]Change, MaxWays)
	for i := range found {
		found[i].Key = key(7500 * i)
		changes[i] = Change{Key: found[i].Key, Delete: true}
	}
	require.NoError(t, g.Scout(found))
	known := func() (n int) {
		s := Ways{Guide: &g}
		require.True(t, s.Follow(m, found, changes))
		for i := range found {
			if s.of[i].known() {
				n++
			}
		}
		return n
	}
	require.Equal(t, MaxWays, known())
	g.bend(key(30_001), 1)
	require.Equal(t, MaxWays-1, known())
	g.bend(key(30_001), 1)
	g.bend(key(90_001), 1)
	require.Equal(t, MaxWays-2, known())
	g.bend(key(30_001), 2)
	require.Zero(t, known())

	s := Ways{Guide: &g}
	found[9].Key = []byte("another")
	require.False(t, s.Follow(m, found, changes))
	require.False(t, s.hold)
}

// TestPageThatBecameSomethingElseIsNotLookedAt: a damaged file may refer to a free page, which is written anew before its way is followed.
func TestPageThatBecameSomethingElseIsNotLookedAt(t *testing.T) {
	leaf := bytes.Repeat([]byte{0xff}, 4096) // slots lead out of it
	pager.WriteHeader(leaf, pager.Header{Kind: pager.KindLeaf, Count: 1})
	setPrefix(leaf, 0)
	s, key := Ways{Guide: new(Guide)}, []byte("key")
	require.NotPanics(t, func() {
		require.True(t, s.Follow(newMemory(4096), []Scouted{{Key: key, leaf: leaf}}, []Change{{Key: key}}))
	})

	most := (len(leaf) - offLeafHeads) / leafEntry
	for n, want := range map[int]bool{0: true, 1: true, most: true, most + 1: false, 65535: false} {
		pager.SetCount(leaf, n)
		require.Equal(t, want, looksLikeLeaf(leaf), n)
	}
	pager.WriteHeader(leaf, pager.Header{Kind: pager.KindBranch, Level: 1, Count: 1})
	require.False(t, looksLikeLeaf(leaf))
}

// TestScoutMeetsWhatLookupsMeet: damage is an error, and trees without branches, or with more levels than a way notes, have no guide.
func TestScoutMeetsWhatLookupsMeet(t *testing.T) {
	m := newMemory(4096)
	tr := Tree{}
	for i := range 5000 {
		_, err := Put(m, &tr, fmt.Appendf(nil, "key-%08d", i), make([]byte, 100), 0)
		require.NoError(t, err)
	}
	m.commit(t)
	require.Equal(t, uint8(3), tr.Depth)
	var g Guide
	for depth := range uint8(10) {
		require.Equal(t, depth >= 2 && depth <= 5, g.Begin(m.state(), Tree{Root: tr.Root, Depth: depth}), depth)
	}
	found := []Scouted{{Key: []byte("key-00000000")}, {Key: []byte("key-00004999")}}
	require.True(t, g.Begin(m.state(), Tree{Root: tr.Root, Depth: 2}))
	require.ErrorIs(t, g.Scout(found), badfile.ErrCorrupt)
	g.bend(found[0].Key, 1)
	require.Equal(t, uint8(wayLevels), g.floor, "nobody knows where that is: no way is known")
	require.True(t, g.Begin(m.state(), tr))
	require.NoError(t, g.Scout(found))

	leaves := m.state()
	require.True(t, g.Begin(leaves, tr))
	for id := range leaves.pages {
		if p := &leaves.pages[id]; p.b != nil && isLeaf(p.b) {
			p.gone = true
		}
	}
	require.ErrorIs(t, g.Scout(found), badfile.ErrCorrupt)
}
