package btree

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// TestPrefetchReturnsOnlyDamage, for any changes, in trees of any depth.
func TestPrefetchReturnsOnlyDamage(t *testing.T) {
	m := newMemory(4096)
	tr := Tree{}
	changes := []Change{{Key: nil}, {Key: []byte("zz")}}
	require.NoError(t, Prefetch(m, tr, nil, changes))
	for i := range 20_000 {
		key := fmt.Appendf(nil, "key-%08d", i*7919%20_000)
		_, err := Put(m, &tr, key, make([]byte, 20), 0)
		require.NoError(t, err)
		if i%1500 == 0 {
			changes = append(changes, Change{Key: key})
		}
	}
	require.Equal(t, uint8(3), tr.Depth)
	require.Len(t, changes, MaxDescent)
	for n := range changes {
		require.NoError(t, Prefetch(m, tr, nil, changes[:n]))
	}
	shallow := Tree{Root: tr.Root, Depth: tr.Depth - 1}
	require.ErrorIs(t, Prefetch(m, shallow, nil, changes), badfile.ErrCorrupt)
	tooDeep := Tree{Root: tr.Root, Depth: maxDepth + 1}
	require.ErrorIs(t, Prefetch(m, tooDeep, nil, changes), badfile.ErrCorrupt)
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

// TestLeafIsSplitTwice for one cell: the first split, which splits the root, too, is without it, and
// the second try goes another way.
func TestLeafIsSplitTwice(t *testing.T) {
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
			var f InsertCursor
			require.NoError(t, Prefetch(m, tree, &f, changes))
			for i := range changes {
				was, err := f.Apply(m, &tree, &changes[i])
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
