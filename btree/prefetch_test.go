package btree

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/pager"
)

// TestLeafPrefetchEndsWithTheLeaf: for all sizes of pages and rows, each row prefetches at most a
// piece, and the whole next page is prefetched after all rows of the current one, unless its rows
// are too few.
func TestLeafPrefetchEndsWithTheLeaf(t *testing.T) {
	for _, size := range []int{4096, 8192, 65536} {
		for _, rows := range []int{1, 2, 7, 8, 9, 31, 32, 100, 500} {
			t.Run(fmt.Sprintf("%d bytes, %d rows", size, rows), func(t *testing.T) {
				page := make([]byte, size)
				a := prefetchLeaf(page, rows)
				require.Len(t, a.rest, size-nearBytes(0))
				for range rows {
					before := len(a.rest)
					a.advance()
					require.LessOrEqual(t, before-len(a.rest), prefetchPiece)
				}
				require.Len(t, a.rest, max(0, size-nearBytes(0)-rows*prefetchPiece))
			})
		}
	}
}

// nearReader records the prefetched pages.
type nearReader struct {
	*memory
	requested []pager.Ref
}

func (r *nearReader) Peek(ref pager.Ref, n int) []byte {
	r.requested = append(r.requested, ref)
	page, err := r.Page(ref)
	if err != nil {
		return nil
	}
	return page[:n]
}

// TestWalkPrefetchesEachNextLeafOnce, and all of it, in both directions, with moves and with scans.
// After a seek the prefetch begins with the second move.
func TestWalkPrefetchesEachNextLeafOnce(t *testing.T) {
	r := &nearReader{memory: newMemory(65536)}
	var tree Tree
	for i := range 4000 { // more than are likely cached
		_, err := Put(r.memory, &tree, fmt.Appendf(nil, "%08d", i), make([]byte, 1000), 0)
		require.NoError(t, err)
	}
	require.Equal(t, uint8(2), tree.Depth)
	root, err := r.Page(tree.Root)
	require.NoError(t, err)
	leaves := count(root)
	for _, forward := range []bool{true, false} {
		move := (*Cursor).Next
		if !forward {
			move = (*Cursor).Prev
		}
		var c Cursor
		c.Reset(r, tree)
		r.requested = nil
		for move(&c) {
			continue
		}
		require.NoError(t, c.Err())
		require.Len(t, r.requested, leaves-1)
		require.Empty(t, c.prefetch.rest)

		c.Reset(r, tree)
		for i := 500; c.n == 0 || c.i != c.n/2; i++ { // the middle of a leaf
			require.True(t, c.Seek(fmt.Appendf(nil, "%08d", i)))
		}
		r.requested = nil
		require.True(t, move(&c))
		require.Empty(t, r.requested)
		require.True(t, move(&c))
		require.Len(t, r.requested, 1)
		left := len(c.prefetch.rest)
		require.True(t, c.BeginScan(forward, 0))
		for range 10 {
			_, _, ok := c.ScanRow()
			require.True(t, ok)
		}
		require.Less(t, len(c.prefetch.rest), left)
		require.NotEmpty(t, c.prefetch.rest)
	}
}

// TestSeekPrefetchesTheLeavesOfItsRange: the leaves of a walk within bounds and no others, at most
// 1+prefetchLeaves of them.
func TestSeekPrefetchesTheLeavesOfItsRange(t *testing.T) {
	r := &nearReader{memory: newMemory(4096)}
	var tree Tree
	key := func(i int) []byte { return fmt.Appendf(nil, "%08d", i) }
	for i := range 1000 {
		_, err := Put(r.memory, &tree, key(i), make([]byte, 100), 0)
		require.NoError(t, err)
	}
	require.Equal(t, uint8(2), tree.Depth)
	tree.Rows = 1e6 // as in a tree that is not likely cached
	root, err := r.Page(tree.Root)
	require.NoError(t, err)
	n := count(root)
	leafOf := func(k []byte) int { return branchSearch(root, n, k) }
	for _, bounds := range [][2][]byte{
		{key(500), key(501)}, {key(500), key(560)}, {key(500), key(990)},
		{key(0), key(5000)}, {key(990), key(5000)},
		{key(500), key(400)}, {key(500), key(500)}, {key(500), nil}, {nil, key(500)},
	} {
		for _, forward := range []bool{true, false} {
			var c Cursor
			c.Reset(r, tree)
			c.Bound(bounds[0], bounds[1])
			from, bound, step := bounds[0], bounds[1], 1
			if !forward {
				from, bound, step = bounds[1], bounds[0], -1
			}
			if from == nil {
				continue
			}
			var want []pager.Ref
			if bound != nil && leafOf(bound) != leafOf(from) {
				for i := leafOf(from); (leafOf(bound)-i)*step >= 0 && len(want) <= prefetchLeaves; i += step {
					want = append(want, childRef(root, n, i))
				}
			}
			r.requested = nil
			require.True(t, c.seek(from, forward))
			require.Equal(t, want, r.requested, "forward %v, %q", forward, bounds)
		}
	}
}
