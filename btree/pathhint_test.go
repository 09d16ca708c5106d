package btree

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// TestPrefetchReturnsOnlyDamage, for any changes, in trees of any depth.
func TestPrefetchReturnsOnlyDamage(t *testing.T) {
	m := newMemory(4096)
	tr := Tree{}
	changes := []Change{{Key: nil}, {Key: []byte("zz")}}
	find := func(tr Tree, changes []Change) (PathHints, error) {
		var s PathHints
		err := s.Prefetch(m, tr, nil, changes)
		return s, err
	}
	s, err := find(tr, changes)
	require.NoError(t, err)
	require.False(t, s.valid)
	for i := range 20_000 {
		key := fmt.Appendf(nil, "key-%08d", i*7919%20_000)
		_, err := Put(m, &tr, key, make([]byte, 20), 0)
		require.NoError(t, err)
		if i%1500 == 0 {
			changes = append(changes, Change{Key: key})
		}
	}
	require.Equal(t, uint8(3), tr.Depth)
	require.Len(t, changes, MaxHints)
	for n := range changes {
		s, err := find(tr, changes[:n])
		require.NoError(t, err)
		require.Equal(t, n > 1, s.valid)
	}
	s, err = find(tr, append(changes, changes...)) // too many: no hints
	require.NoError(t, err)
	require.False(t, s.valid)
	_, err = find(Tree{Root: tr.Root, Depth: tr.Depth - 1}, changes)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	_, err = find(Tree{Root: tr.Root, Depth: maxDepth + 1}, changes)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
}

// TestSameLeafOfKeysInOrder: rows in order share their cache misses, so nothing is prefetched.
func TestSameLeafOfKeysInOrder(t *testing.T) {
	m := newMemory(4096)
	tr := Tree{}
	const n = 20_000
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%08d", i) }
	for i := range n {
		_, err := Put(m, &tr, key(i), make([]byte, 20), 0)
		require.NoError(t, err)
	}
	leaf := func(i int) int { // by its first row
		var c Cursor
		c.Reset(m, tr)
		require.True(t, c.Seek(key(i)))
		return i - c.i
	}
	apart := 0
	for i := 0; i+10 < n; i += 7 {
		same := leaf(i) == leaf(i+10)
		require.Equal(t, same, sameLeaf(m, tr, key(i), key(i+10), 0), i)
		if !same {
			apart++
		}
	}
	require.Greater(t, apart, 100)
}

// verifyHint descends to key and compares the known part of the hint.
func verifyHint(t *testing.T, r Reader, tr Tree, w pathHint, key []byte) {
	t.Helper()
	ref := tr.Root
	for level := int(tr.Depth) - 1; level > 0; level-- {
		b, n, err := pageAt(r, ref, uint8(level))
		require.NoError(t, err)
		i := branchSearch(b, n, key)
		if w.from > 0 && level >= int(w.from) {
			child := int(uint16(w.to >> (16 * (level - 1))))
			require.Equal(t, i, child, "level %d of %d, known from %d on", level, tr.Depth-1, w.from)
		}
		ref = childRef(b, n, i)
	}
}

// deepChange changes a row of a tree that soon has many levels; deletes of ten changes are
// deletions.
func deepChange(rnd *rand.Rand, deletes int) (c Change) {
	k := rnd.IntN(6000)
	if rnd.IntN(2) == 0 {
		k %= 40 // and close together
	}
	c.Key = fmt.Appendf(nil, "a rather long key for a deep tree %0400d", k)
	if c.Delete = rnd.IntN(10) < deletes; !c.Delete {
		c.Value = make([]byte, rnd.IntN(600))
	}
	return c
}

// TestHintsStayValidAsFarAsKnown: after each change that splits pages, merges them or moves cells,
// in trees that grow and shrink by whole levels. Most other hints still lead to their leaves.
func TestHintsStayValidAsFarAsKnown(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	m := newMemory(4096)
	tr := Tree{}
	rnd := rand.New(rand.NewPCG(3, 4))
	have := map[string]bool{}
	invalidated, valid, lost := 0, 0, 0
	depths := map[uint8]bool{}
	for round := range racetest.Sample(1500, 1500) {
		deletes := 2 // of ten
		if round%1000 > 700 {
			deletes = 10
		}
		var changes [MaxHints]Change
		for i := range changes {
			changes[i] = deepChange(rnd, deletes)
		}
		var s PathHints
		var f InsertCursor
		require.NoError(t, s.Prefetch(m, tr, &f, changes[:]))
		for i := range changes {
			for j := i; s.valid && j < len(changes); j++ {
				verifyHint(t, m, tr, s.hints[j], changes[j].Key)
			}
			before := s
			_, err := s.Apply(m, &tr, &f, i, &changes[i])
			require.NoError(t, err)
			have[string(changes[i].Key)] = !changes[i].Delete
			if before == s {
				continue
			}
			invalidated++
			for j := i + 1; j < len(changes); j++ {
				if s.valid && s.hints[j].complete() {
					valid++
				} else if before.hints[j].complete() {
					lost++
				}
			}
		}
		depths[tr.Depth] = true
	}
	require.Greater(t, len(depths), 2)
	require.Greater(t, invalidated, 500)
	require.Greater(t, valid, lost)
	for key, there := range have {
		info, err := GetInfo(m, tr, []byte(key))
		require.NoError(t, err)
		require.Equal(t, there, info.Found)
	}
}

// TestHintsAfterALeafIsSplitTwice: the first split, which splits the root, too, invalidates more
// hints than the second split or shift.
func TestHintsAfterALeafIsSplitTwice(t *testing.T) {
	const pageSize, rows = pager.MinPageSize, (pager.MinPageSize - offLeafHeads) / (leafEntry + minUniform)
	full := func(leaves int) (m *memory, tree Tree) {
		m = newMemory(pageSize)
		b := NewBuilder(m)
		for i := range leaves * rows {
			require.NoError(t, b.Add(number(i), make([]byte, minUniform-8), 0))
		}
		tree, err := b.Finish()
		require.NoError(t, err)
		m.commit(t)
		return m, tree
	}
	most := 100 // leaves below one branch
	for {
		if _, tree := full(most + 1); tree.Depth > 2 {
			break
		}
		most++
	}
	for _, leaves := range []int{most, most - 1, most - 2} {
		large := func(leaf int) Change {
			key := append(number(leaf*rows+rows/2), make([]byte, MaxKey(pageSize)-8)...)
			return Change{Key: key, Value: make([]byte, MaxInline(pageSize, len(key)))}
		}
		small := func(leaf, i int) Change { return Change{Key: append(number(leaf*rows+7), byte(i))} }
		for _, at := range []int{0, leaves / 3, leaves - 3} {
			m, tree := full(leaves)
			// The second try shifts cells instead of a split: this leaf gets them, but has no space
			// for as many as the first split would give it.
			for i := 55; i < rows; i++ {
				_, err := Delete(m, &tree, number((at+1)*rows+i))
				require.NoError(t, err)
			}
			m.commit(t)
			changes := []Change{
				large(at),
				small(leaves-1, 1),
				small(at, 2),
				large(leaves / 2),
				small(0, 3),
				small(leaves/2, 4),
				small(leaves-1, 5),
			}
			var s PathHints
			var f InsertCursor
			require.NoError(t, s.Prefetch(m, tree, &f, changes))
			require.True(t, s.valid)
			for i := range changes {
				was, err := s.Apply(m, &tree, &f, i, &changes[i])
				require.NoError(t, err)
				require.Zero(t, was)
				m.requireSound(t, tree)
			}
			require.Greater(t, tree.Depth, uint8(2))
			for _, c := range changes {
				_, found, err := Get(m, tree, c.Key)
				require.NoError(t, err)
				require.True(t, found)
			}
		}
	}
}
