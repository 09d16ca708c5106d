package btree

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/pager"
)

// TestLookaheadIsThroughWithThePageInTime: whatever the sizes of pages and rows, no row asks for more than a piece, and all of the
// page has been asked for when the rows before it are passed, unless they are so few that a piece with each is not enough.
func TestLookaheadIsThroughWithThePageInTime(t *testing.T) {
	for _, size := range []int{4096, 8192, 65536} {
		for _, rows := range []int{1, 2, 7, 8, 9, 31, 32, 100, 500} {
			t.Run(fmt.Sprintf("%d bytes, %d rows", size, rows), func(t *testing.T) {
				page := make([]byte, size)
				a := look(page, rows)
				require.Len(t, a.rest, size-nearBytes(0))
				for range rows {
					before := len(a.rest)
					a.passed()
					require.LessOrEqual(t, before-len(a.rest), lookPiece)
				}
				require.Len(t, a.rest, max(0, size-nearBytes(0)-rows*lookPiece))
			})
		}
	}
}

// nearReader notes which pages are asked for.
type nearReader struct {
	*memory
	asked []pager.Ref
}

func (r *nearReader) Near(ref pager.Ref, n int) []byte {
	r.asked = append(r.asked, ref)
	page, err := r.Page(ref)
	if err != nil {
		return nil
	}
	return page[:n]
}

// TestWalkAsksForEachNextLeafOnce, in both directions, with steps and with spans, and all of each. Behind a seek it waits for
// the second step.
func TestWalkAsksForEachNextLeafOnce(t *testing.T) {
	r := &nearReader{memory: newMemory(4096)}
	var tree Tree
	for i := range 1000 {
		_, err := Put(r.memory, &tree, fmt.Appendf(nil, "%08d", i), make([]byte, 100), 0)
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
		r.asked = nil
		for move(&c) {
			continue
		}
		require.NoError(t, c.Err())
		require.Len(t, r.asked, leaves-1)
		require.Empty(t, c.look.rest)

		c.Reset(r, tree)
		for i := 500; c.n == 0 || c.i != c.n/2; i++ { // the middle of a leaf
			require.True(t, c.Seek(fmt.Appendf(nil, "%08d", i)))
		}
		r.asked = nil
		require.True(t, move(&c))
		require.Empty(t, r.asked)
		require.True(t, move(&c))
		require.Len(t, r.asked, 1)
		left := len(c.look.rest)
		s := c.Ahead(forward)
		for range 10 {
			require.True(t, s.Next())
		}
		c.Reach(s)
		require.Less(t, len(c.look.rest), left)
		require.NotEmpty(t, c.look.rest)
	}
}

// TestSeekMeetsTheLeavesOfItsRange, those that a walk within bounds comes to and no other, and the first of them only if they are many.
func TestSeekMeetsTheLeavesOfItsRange(t *testing.T) {
	r := &nearReader{memory: newMemory(4096)}
	var tree Tree
	key := func(i int) []byte { return fmt.Appendf(nil, "%08d", i) }
	for i := range 1000 {
		_, err := Put(r.memory, &tree, key(i), make([]byte, 100), 0)
		require.NoError(t, err)
	}
	require.Equal(t, uint8(2), tree.Depth)
	root, err := r.Page(tree.Root)
	require.NoError(t, err)
	n := count(root)
	leafOf := func(k []byte) int { return branchSearch(root, n, k) }
	for _, bounds := range [][2][]byte{
		{key(500), key(501)}, {key(500), key(560)}, {key(500), key(990)}, {key(0), key(5000)}, {key(990), key(5000)},
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
				for i := leafOf(from); (leafOf(bound)-i)*step >= 0 && len(want) <= meetLeaves; i += step {
					want = append(want, childRef(root, n, i))
				}
			}
			r.asked = nil
			require.True(t, c.seek(from, forward))
			require.Equal(t, want, r.asked, "forward %v, %q", forward, bounds)
		}
	}
}
