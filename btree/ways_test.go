package btree

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/racetest"
)

// TestWaysTellOfDamageOnly: whatever changes they are looked for, in trees of any depth.
func TestWaysTellOfDamageOnly(t *testing.T) {
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
	s, err = find(tr, append(changes, changes...)) // too many: each looks for its own
	require.NoError(t, err)
	require.False(t, s.valid)
	_, err = find(Tree{Root: tr.Root, Depth: tr.Depth - 1}, changes)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	_, err = find(Tree{Root: tr.Root, Depth: maxDepth + 1}, changes)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
}

// TestTogetherIsOneLeaf: rows that are put in order do not wait for each other's pages, so nothing
// is asked for.
func TestTogetherIsOneLeaf(t *testing.T) {
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

// proveWay walks down to where key belongs, and holds the way against it, as far as that is known.
func proveWay(t *testing.T, r Reader, tr Tree, w pathHint, key []byte) {
	t.Helper()
	ref := tr.Root
	for level := int(tr.Depth) - 1; level > 0; level-- {
		b, n, err := pageAt(r, ref, uint8(level))
		require.NoError(t, err)
		i := branchSearch(b, n, key)
		if w.from > 0 && level >= int(w.from) {
			require.Equal(
				t,
				i,
				int(uint16(w.to>>(16*(level-1)))),
				"level %d of %d, known from %d on",
				level,
				tr.Depth-1,
				w.from,
			)
		}
		ref = childRef(b, n, i)
	}
}

// deepChange changes a row of a tree that has many levels soon: it deletes in so many of ten cases.
func deepChange(rnd *rand.Rand, deletes int) (c Change) {
	k := rnd.IntN(6000)
	if rnd.IntN(2) == 0 {
		k %= 40 // come close together, too
	}
	c.Key = fmt.Appendf(nil, "a rather long key for a deep tree %0400d", k)
	if c.Delete = rnd.IntN(10) < deletes; !c.Delete {
		c.Value = make([]byte, rnd.IntN(600))
	}
	return c
}

// TestWaysHoldAsFarAsTheyAreKnown: after each change that splits pages, merges them or moves cells,
// in trees that grow and shrink by whole levels. Most ways that it does not concern lead to their
// leaves still.
func TestWaysHoldAsFarAsTheyAreKnown(t *testing.T) {
	racetest.OneGoroutine(t)
	m := newMemory(4096)
	tr := Tree{}
	rnd := rand.New(rand.NewPCG(3, 4))
	have := map[string]bool{}
	bent, lead, lost := 0, 0, 0
	depths := map[uint8]bool{}
	for round := range 3000 {
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
				proveWay(t, m, tr, s.hints[j], changes[j].Key)
			}
			before := s
			_, err := s.Apply(m, &tr, &f, i, &changes[i])
			require.NoError(t, err)
			have[string(changes[i].Key)] = !changes[i].Delete
			if before == s {
				continue
			}
			bent++
			for j := i + 1; j < len(changes); j++ {
				if s.valid && s.hints[j].complete() {
					lead++
				} else if before.hints[j].complete() {
					lost++
				}
			}
		}
		depths[tr.Depth] = true
	}
	require.Greater(t, len(depths), 2)
	require.Greater(t, bent, 500)
	require.Greater(t, lead, lost)
	for key, there := range have {
		info, err := GetInfo(m, tr, []byte(key))
		require.NoError(t, err)
		require.Equal(t, there, info.Found)
	}
}
