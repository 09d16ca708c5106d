package btree

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// sparseTree is a tree of rows of many sizes, with tags and extents, of which most were deleted at
// random: seed decides.
func sparseTree(t *testing.T, seed uint64, pageSize, rows int, key func(int) []byte) (*memory, Tree, *model) {
	r := rand.New(rand.NewPCG(seed, 2))
	m, want := newMemory(pageSize), newModel()
	var tree Tree
	keep := 1 + r.IntN(9)
	for i := range rows {
		size := 40
		switch {
		case seed%3 == 1:
			size = r.IntN(200)
		case r.IntN(50) == 0:
			size = pageSize/2 + r.IntN(pageSize)
		}
		k, v, tag := key(i), make([]byte, size), int64(r.IntN(3))
		_, err := Put(m, &tree, k, v, tag)
		require.NoError(t, err)
		want.put(string(k), v, tag)
	}
	m.commit(t)
	for i := range rows {
		if r.IntN(10) >= keep {
			_, err := Delete(m, &tree, key(i))
			require.NoError(t, err)
			want.delete(string(key(i)))
		}
	}
	m.commit(t)
	return m, tree, want
}

// fillAll fills a tree to the end, in steps of that many reads, until a walk saves nothing.
func fillAll(t *testing.T, m *memory, tree *Tree, reads int) (walks, saved int) {
	for again := true; again; walks++ {
		again = false
		for step := (FillStep{Reads: reads}); ; {
			before := *tree
			f, err := Fill(m, tree, step)
			require.NoError(t, err)
			require.LessOrEqual(t, f.Read, reads+2*int(tree.Depth))
			require.Equal(t, f.Saved > 0, *tree != before, "a step that saves nothing writes nothing")
			m.commit(t)
			m.requireSound(t, *tree)
			saved += f.Saved
			again = again || f.Saved > 0
			if step.From = f.Next; f.Next == nil {
				break
			}
		}
	}
	return walks, saved
}

// TestFillLeavesNoNeighboursThatFit: the rows are the same, the pages are nearly full, as many were
// saved as Fill says, and the last walk wrote none.
func TestFillLeavesNoNeighboursThatFit(t *testing.T) {
	racetest.OneGoroutine(t)
	for seed := range uint64(12) {
		pageSize := []int{4096, 16384}[seed%2]
		m, tree, want := sparseTree(t, seed, pageSize, 6000, number)
		before := m.inUse()
		walks, saved := fillAll(t, m, &tree, 1+int(seed)*7)
		require.LessOrEqual(t, walks, 5)
		require.Equal(t, before-saved, m.inUse())
		r := rand.New(rand.NewPCG(seed, 3))
		requireSame(t, m, tree, want, r, func() []byte { return number(r.IntN(6000)) })
		if share, leaves := fill(t, m, tree); leaves > 10 && seed%3 != 2 {
			require.Greater(t, share, 0.9, "seed %d: of %d leaves", seed, leaves)
		}
	}
}

// TestFillJoinsBranches: with long keys branches are many. Their level is filled as the leaves are,
// and a root of one child goes.
func TestFillJoinsBranches(t *testing.T) {
	racetest.OneGoroutine(t)
	key := func(i int) []byte { return fmt.Appendf(nil, "%0400d", i*7919%4000) }
	for seed := uint64(1); seed < 8; seed += 3 {
		m, tree, want := sparseTree(t, seed, pager.MinPageSize, 4000, key)
		depth := tree.Depth
		require.Greater(t, depth, uint8(3))
		_, _ = fillAll(t, m, &tree, 30)
		branches, full, space := 0, 0, 0
		require.NoError(t, Walk(m, tree, func(ref pager.Ref, level uint8) (bool, error) {
			b, err := m.Page(ref)
			if level == 1 {
				branches, full, space = branches+1, full+UsedBytes(b), space+payload(b)
			}
			return true, err
		}))
		require.Greater(t, branches, 3)
		require.Greater(t, full*10, space*8, "%d branches", branches)
		r := rand.New(rand.NewPCG(seed, 3))
		requireSame(t, m, tree, want, r, func() []byte { return key(r.IntN(4000)) })
	}
}

// TestFillOfDamage: keys, separators and counts that contradict each other are damage, and no walk
// goes round.
func TestFillOfDamage(t *testing.T) {
	fresh := func() (*memory, Tree) {
		m, tree, _ := sparseTree(t, 4, pager.MinPageSize, 6000, number)
		return m, tree
	}
	for name, hurt := range map[string]func(b []byte, n int){
		"two leaves swapped": func(b []byte, n int) {
			x, y := childRef(b, n, 2), childRef(b, n, 3)
			setChildRef(b, n, 2, y)
			setChildRef(b, n, 3, x)
		},
		"a count":      func(b []byte, n int) { setChildRows(b, n, 2, childRows(b, n, 2)+1) },
		"a leaf twice": func(b []byte, n int) { setChildRef(b, n, 3, childRef(b, n, 2)) },
	} {
		m, tree := fresh()
		hurtBranch(t, m, tree, hurt)
		step := FillStep{Reads: 20}
		var err error
		for range 10_000 {
			var f Filled
			if f, err = Fill(m, &tree, step); err != nil || f.Next == nil {
				break
			}
			step.From = f.Next
		}
		require.Error(t, err, name)
	}
}

// hurtBranch changes the first branch above leaves.
func hurtBranch(t *testing.T, m *memory, tree Tree, hurt func(b []byte, n int)) {
	done := false
	require.NoError(t, Walk(m, tree, func(ref pager.Ref, level uint8) (bool, error) {
		if level == 1 && !done {
			b := m.pages[ref.Pgid].b
			hurt(b, count(b))
			done = true
		}
		return !done, nil
	}))
	require.True(t, done)
}

// TestFillWithoutSpace: it fails, and the caller's tree is the one before.
func TestFillWithoutSpace(t *testing.T) {
	m, tree, _ := sparseTree(t, 4, pager.MinPageSize, 6000, number)
	before := tree
	full := errors.New("full")
	m.fail = full
	_, err := Fill(m, &tree, FillStep{Reads: 100})
	require.ErrorIs(t, err, full)
	require.Equal(t, before, tree)
}
