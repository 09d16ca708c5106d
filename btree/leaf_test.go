package btree

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// leaves returns the leaves of a tree, from left to right.
func leaves(t *testing.T, r Reader, tree Tree) (refs []pager.Ref) {
	t.Helper()
	require.NoError(t, Walk(r, tree, func(ref pager.Ref, level uint8) (bool, error) {
		if level == 0 {
			refs = append(refs, ref)
		}
		return true, nil
	}))
	return refs
}

// smallSameShape is a tree of n rows of one shape with the smallest cells of a uniform leaf.
func smallSameShape(t *testing.T, m *memory, n int) (tree Tree) {
	t.Helper()
	for i := range n {
		_, err := Put(m, &tree, number(i), make([]byte, minUniform-8), 0)
		require.NoError(t, err)
	}
	m.commit(t)
	return tree
}

// TestTheLargestCellAmongTheSmallestUniformOnes: with headers the small cells take more than half
// of a page on both sides of the large one, so that two pages are too few.
func TestTheLargestCellAmongTheSmallestUniformOnes(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, c := range []struct{ pageSize, leaves, leaf int }{
		{pager.MinPageSize, 5, 2},
		{pager.MaxPageSize, 5, 2},
		{pager.MinPageSize, 201, 100}, // a branch splits, too
		{pager.MinPageSize, 201, 190}, // no branch splits
	} {
		pageSize := c.pageSize
		for at := range 9 {
			m := newMemory(pageSize)
			rows := c.leaves * ((pageSize - offLeafHeads) / (leafEntry + minUniform))
			tree := smallSameShape(t, m, rows)
			before := len(leaves(t, m, tree))
			key := append(number(rows*(8*c.leaf+2+at)/(8*c.leaves)), make([]byte, MaxKey(pageSize)-8)...)
			var f InsertCursor
			_, err := f.Put(m, &tree, key, make([]byte, MaxInline(pageSize, len(key))), 1)
			require.NoError(t, err)
			require.EqualValues(t, rows+1, tree.Rows)
			require.Equal(t, c.leaves > 200, tree.Depth > 2)
			m.requireSound(t, tree)
			v, found, err := Get(m, tree, key)
			require.NoError(t, err)
			require.True(t, found)
			require.Len(t, v.Bytes, MaxInline(pageSize, len(key)))
			if after := len(leaves(t, m, tree)); at == 2 {
				require.Equal(t, before+2, after, "in the middle of a leaf")
			} else {
				require.Contains(t, []int{1, 2}, after-before)
			}
		}
	}
}

// TestRowOfAnotherShape: the leaf gets a header for each cell while these fit, and is split
// otherwise.
func TestRowOfAnotherShape(t *testing.T) {
	for name, other := range map[string]func(m *memory, tree *Tree) error{
		"key": func(m *memory, tree *Tree) error {
			_, err := Put(m, tree, []byte("00000001x"), make([]byte, 8), 0)
			return err
		},
		"value": func(m *memory, tree *Tree) error {
			_, err := Put(m, tree, number(1), make([]byte, 9), 0)
			return err
		},
		"less": func(m *memory, tree *Tree) error { _, err := Put(m, tree, number(1), nil, 0); return err },
		"tag":  func(m *memory, tree *Tree) error { _, err := SetTag(m, tree, number(1), 5); return err },
		"large": func(m *memory, tree *Tree) error {
			_, err := Put(m, tree, number(1), make([]byte, 9000), 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			full := (pager.MinPageSize - offLeafHeads) / (leafEntry + minUniform)
			for _, n := range []int{100, full} {
				m := newMemory(pager.MinPageSize)
				tree := smallSameShape(t, m, n)
				require.Len(t, leaves(t, m, tree), 1)
				b, err := m.Page(tree.Root)
				require.NoError(t, err)
				require.True(t, uniform(b))
				require.NoError(t, other(m, &tree))
				m.requireSound(t, tree)
				after := leaves(t, m, tree)
				require.Len(t, after, map[bool]int{true: 2, false: 1}[n == full])
				b, err = m.Page(after[0])
				require.NoError(t, err)
				require.False(t, uniform(b))
				for i := range n {
					v, found, err := Get(m, tree, number(i))
					require.NoError(t, err)
					require.True(t, found)
					if i != 1 {
						require.Equal(t, Value{Bytes: make([]byte, 8)}, v)
					}
				}
			}
		})
	}
}

// TestLeavesOfMixedShapesStartWithHeaders, when rows come in order: a uniform leaf would be
// rewritten for its second row.
func TestLeavesOfMixedShapesStartWithHeaders(t *testing.T) {
	for _, sameShape := range []bool{true, false} {
		m := newMemory(pager.MinPageSize)
		var tree Tree
		for i := 0; len(leaves(t, m, tree)) < 3; i++ {
			size := 60
			if !sameShape {
				size += i % 2
			}
			_, err := Put(m, &tree, number(i), make([]byte, size), 0)
			require.NoError(t, err)
		}
		b, err := m.Page(leaves(t, m, tree)[2])
		require.NoError(t, err)
		require.Equal(t, 1, count(b))
		require.Equal(t, sameShape, uniform(b))
	}
}

// TestUniformLeavesOfTwoShapesMergeOnlyWithSpaceForHeaders: they take four fifths of a page as they
// are, and more than a page with headers.
func TestUniformLeavesOfTwoShapesMergeOnlyWithSpaceForHeaders(t *testing.T) {
	for name, shape := range map[string]struct{ key, value string }{"values": {"", "1"}, "keys": {"1", ""}} {
		t.Run(name, func(t *testing.T) { requireNotMerged(t, shape.key, shape.value) })
	}
}

// requireNotMerged tests leaves of two shapes: keys and values of the second one have these
// suffixes.
func requireNotMerged(t *testing.T, key, value string) {
	m := newMemory(pager.MinPageSize)
	full := (pager.MinPageSize - offLeafHeads) / (leafEntry + minUniform)
	tree := smallSameShape(t, m, full)
	for i := range 100 {
		_, err := Put(m, &tree, append(number(full+i), key...), make([]byte, minUniform-8+len(value)), 0)
		require.NoError(t, err)
	}
	rows, err := DeleteRange(m, &tree, number(full+99), nil) // The other leaf is rewritten.
	require.NoError(t, err)
	require.EqualValues(t, 1, rows)
	for _, ref := range leaves(t, m, tree) {
		b, err := m.Page(ref)
		require.NoError(t, err)
		require.True(t, uniform(b))
	}
	space := pager.MinPageSize - offLeafHeads
	right := space/mergeFraction/(leafEntry+minUniform+1) + 1 // one fewer is underfull
	left := (space/5*4 - (right-1)*(leafEntry+minUniform+1)) / (leafEntry + minUniform)
	each := leafEntry + minUniform + cellHeader
	require.Greater(t, left*each+(right-1)*(each+1), space)
	remove := func(from, n int) {
		for i := from; i < from+n; i++ {
			k := number(i)
			if i >= full {
				k = append(k, key...)
			}
			was, err := Delete(m, &tree, k)
			require.NoError(t, err)
			require.True(t, was.Found)
		}
	}
	remove(0, full-left)
	remove(full, 99-right)
	require.Len(t, leaves(t, m, tree), 2)
	m.requireSound(t, tree)
	remove(full+98, 1)
	require.Len(t, leaves(t, m, tree), 2)
	m.requireSound(t, tree)
	require.EqualValues(t, left+right-1, tree.Rows)
}
