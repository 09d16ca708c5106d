package txn

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
)

// TestTreesOfAVersionNeverChange: a writer's copy changes beside published ones, which share
// chunks with it, and every copy equals the map of its moment. Numbers come and go in ranges, and some
// are missing.
func TestTreesOfAVersionNeverChange(t *testing.T) {
	type published struct {
		trees trees
		want  map[TreeID]uint64
	}
	equal := func(p *published) {
		t.Helper()
		require.Equal(t, len(p.want), p.trees.len())
		var ids []TreeID
		p.trees.from(0, func(id TreeID, at tree.Tree) bool {
			require.Equal(t, p.want[id], at.Rows)
			require.Equal(t, p.want[id], p.trees.find(id).t.Rows)
			ids = append(ids, id)
			return true
		})
		want := slices.Sorted(maps.Keys(p.want))
		require.Equal(t, want, ids)
		for _, lo := range []TreeID{0, 1, 30, 59, 500, 999, trashBit} {
			i, _ := slices.BinarySearch(want, lo)
			id, _, ok := p.trees.next(lo)
			require.Equal(t, i < len(want), ok)
			require.True(t, !ok || id == want[i])
		}
	}
	rnd := rand.New(rand.NewPCG(56, 0))
	w := &published{want: map[TreeID]uint64{}}
	var versions []*published
	for i := range uint64(4000) {
		id := TreeID(i/8 + rnd.Uint64N(60) + 300*rnd.Uint64N(2))
		if rnd.IntN(20) == 0 {
			id |= trashBit
		}
		if rnd.IntN(4) == 0 || i%1000 > 800 {
			w.trees.remove(id)
			delete(w.want, id)
		} else {
			w.trees.set(treeState{id: id, t: tree.Tree{Rows: i}})
			w.want[id] = i
		}
		if rnd.IntN(80) == 0 {
			versions = append(versions, &published{w.trees.copy(nil), maps.Clone(w.want)})
		}
		if len(versions) > 0 && rnd.IntN(50) == 0 { // a rollback
			from := versions[rnd.IntN(len(versions))]
			w = &published{from.trees.copy(nil), maps.Clone(from.want)}
		}
	}
	equal(w)
	for _, v := range versions {
		equal(v)
	}
}

// TestChunksOfTreesAreBounded: each has what a change copies, whatever the order of the numbers.
func TestChunksOfTreesAreBounded(t *testing.T) {
	for name, number := range map[string]func(i int) TreeID{
		"up":   func(i int) TreeID { return TreeID(i) },
		"down": func(i int) TreeID { return TreeID(10_000 - i) },
		"far":  func(i int) TreeID { return TreeID(i * 7919 % 10_007) },
	} {
		var ts trees
		for i := range 10_000 {
			ts.set(treeState{id: number(i)})
		}
		require.Equal(t, 10_000, ts.len(), name)
		for _, chunk := range ts.large {
			require.LessOrEqual(t, len(chunk), maxChunk, name)
		}
		require.Less(t, len(ts.large), 2*10_000/(maxChunk/2), name)
	}
}
