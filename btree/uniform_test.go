package btree

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/pager"
)

// leaves lists those of a tree, from left to right.
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

// smallAlike is a tree of n rows that are alike, and as small as those of a uniform leaf may be.
func smallAlike(t *testing.T, m *memory, n int) (tree Tree) {
	t.Helper()
	for i := range n {
		_, err := Put(m, &tree, number(i), make([]byte, minUniform-8), 0)
		require.NoError(t, err)
	}
	m.commit(t)
	return tree
}

// TestTheLargestCellAmongSmallOnesThatAreAlike: with a header each these take more than half of a
// page on both sides of it, so that two pages are too few.
func TestTheLargestCellAmongSmallOnesThatAreAlike(t *testing.T) {
	for _, c := range []struct{ pageSize, leaves, leaf int }{
		{pager.MinPageSize, 5, 2},
		{pager.MaxPageSize, 5, 2},
		{pager.MinPageSize, 201, 100}, // a branch is split, too
		{pager.MinPageSize, 201, 190}, // none is
	} {
		pageSize := c.pageSize
		for at := range 9 {
			m := newMemory(pageSize)
			rows := c.leaves * ((pageSize - offLeafHeads) / (leafEntry + minUniform))
			tree := smallAlike(t, m, rows)
			before := len(leaves(t, m, tree))
			key := append(number(rows*(8*c.leaf+2+at)/(8*c.leaves)), make([]byte, MaxKey(pageSize)-8)...)
			var f InsertCursor
			_, err := f.Put(m, &tree, key, make([]byte, MaxInline(pageSize)), 1)
			require.NoError(t, err)
			require.EqualValues(t, rows+1, tree.Rows)
			require.Equal(t, c.leaves > 200, tree.Depth > 2)
			m.requireSound(t, tree)
			v, found, err := Get(m, tree, key)
			require.NoError(t, err)
			require.True(t, found)
			require.Len(t, v.Bytes, MaxInline(pageSize))
			if after := len(leaves(t, m, tree)); at == 2 {
				require.Equal(t, before+2, after, "in the middle of a leaf")
			} else {
				require.Contains(t, []int{1, 2}, after-before)
			}
		}
	}
}

// TestRowThatIsNotLikeTheOthers: the leaf gets a header for each as long as there is room for them,
// and is split otherwise.
func TestRowThatIsNotLikeTheOthers(t *testing.T) {
	for name, odd := range map[string]func(m *memory, tree *Tree) error{
		"key": func(m *memory, tree *Tree) error {
			_, err := Put(m, tree, []byte("00000001x"), make([]byte, 8), 0)
			return err
		},
		"value": func(m *memory, tree *Tree) error { _, err := Put(m, tree, number(1), make([]byte, 9), 0); return err },
		"less":  func(m *memory, tree *Tree) error { _, err := Put(m, tree, number(1), nil, 0); return err },
		"tag":   func(m *memory, tree *Tree) error { _, err := SetTag(m, tree, number(1), 5); return err },
		"large": func(m *memory, tree *Tree) error {
			_, err := Put(m, tree, number(1), make([]byte, 9000), 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			full := (pager.MinPageSize - offLeafHeads) / (leafEntry + minUniform)
			for _, n := range []int{100, full} {
				m := newMemory(pager.MinPageSize)
				tree := smallAlike(t, m, n)
				require.Len(t, leaves(t, m, tree), 1)
				b, err := m.Page(tree.Root)
				require.NoError(t, err)
				require.True(t, uniform(b))
				require.NoError(t, odd(m, &tree))
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

// TestBuilderLaysWhatIsAlikeWithoutHeaders: as many rows as the arithmetic of the format says, and
// with one that is not like the others where it comes.
func TestBuilderLaysWhatIsAlikeWithoutHeaders(t *testing.T) {
	const rows = 400
	for _, odd := range []int{-1, 0, 1, 7, 31, 32, 33, 60} {
		m := newMemory(pager.MinPageSize)
		b := NewBuilder(m)
		value := func(i int) []byte {
			if i == odd {
				return []byte("odd")
			}
			return fmt.Appendf(nil, "%0100d", i)
		}
		for i := range rows {
			require.NoError(t, b.Add(fmt.Appendf(nil, "%016d", i), value(i), 0))
		}
		tree, err := b.Finish()
		require.NoError(t, err)
		m.requireSound(t, tree)
		var c Cursor
		c.Reset(m, tree)
		for i := range rows {
			require.True(t, c.Next())
			require.Equal(t, fmt.Sprintf("%016d", i), string(c.Key()))
			require.Equal(t, value(i), c.Value())
		}
		require.False(t, c.Next())
		for k, ref := range leaves(t, m, tree) {
			page, err := m.Page(ref)
			require.NoError(t, err)
			n := count(page)
			if odd < 0 && k == 0 {
				require.Equal(t, 33, n, "31 with headers")
			}
			var has bool
			for i := range n {
				has = has || string(leafKey(page, n, i)) == fmt.Sprintf("%016d", odd)
			}
			require.Equal(t, has, !uniform(page) || n == 1)
		}
	}
}

// TestLeavesOfRowsThatAreNotAlikeAreNotUniformFromTheirFirstRow, when rows come in order: each
// would be laid out anew for its second row.
func TestLeavesOfRowsThatAreNotAlikeAreNotUniformFromTheirFirstRow(t *testing.T) {
	for _, alike := range []bool{true, false} {
		m := newMemory(pager.MinPageSize)
		var tree Tree
		for i := 0; len(leaves(t, m, tree)) < 3; i++ {
			size := 60
			if !alike {
				size += i % 2
			}
			_, err := Put(m, &tree, number(i), make([]byte, size), 0)
			require.NoError(t, err)
		}
		b, err := m.Page(leaves(t, m, tree)[2])
		require.NoError(t, err)
		require.Equal(t, 1, count(b))
		require.Equal(t, alike, uniform(b))
	}
}

// TestUniformLeavesOfTwoShapesAreNotMergedWithoutRoomForHeaders: together they take four fifths of
// a page as they are, and more than a page with a header each.
func TestUniformLeavesOfTwoShapesAreNotMergedWithoutRoomForHeaders(t *testing.T) {
	for name, shape := range map[string]struct{ key, value string }{"values": {"", "1"}, "keys": {"1", ""}} {
		t.Run(name, func(t *testing.T) { requireNotMerged(t, shape.key, shape.value) })
	}
}

// requireNotMerged is for leaves of two shapes: keys and values of the second one have these
// besides.
func requireNotMerged(t *testing.T, key, value string) {
	m := newMemory(pager.MinPageSize)
	full := (pager.MinPageSize - offLeafHeads) / (leafEntry + minUniform)
	tree := smallAlike(t, m, full)
	for i := range 100 {
		_, err := Put(m, &tree, append(number(full+i), key...), make([]byte, minUniform-8+len(value)), 0)
		require.NoError(t, err)
	}
	rows, err := DeleteRange(m, &tree, number(full+99), nil) // The other leaf is laid out anew.
	require.NoError(t, err)
	require.EqualValues(t, 1, rows)
	for _, ref := range leaves(t, m, tree) {
		b, err := m.Page(ref)
		require.NoError(t, err)
		require.True(t, uniform(b))
	}
	room := pager.MinPageSize - offLeafHeads
	right := room/mergeFraction/(leafEntry+minUniform+1) + 1 // one fewer is too few
	left := (room/5*4 - (right-1)*(leafEntry+minUniform+1)) / (leafEntry + minUniform)
	require.Greater(
		t,
		left*(leafEntry+minUniform+cellHeader)+(right-1)*(leafEntry+minUniform+1+cellHeader),
		room,
	)
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

// TestWaysBesideALeafThatIsSplitTwice: the first split, that of the root with it, bends more than
// what follows does: a second one, or a shift.
func TestWaysBesideALeafThatIsSplitTwice(t *testing.T) {
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
			return Change{Key: key, Value: make([]byte, MaxInline(pageSize))}
		}
		small := func(leaf, i int) Change { return Change{Key: append(number(leaf*rows+7), byte(i))} }
		for _, at := range []int{0, leaves / 3, leaves - 3} {
			m, tree := full(leaves)
			// The second split is none: this leaf gets rows instead, but has no room for as many as
			// the first one would give it.
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
