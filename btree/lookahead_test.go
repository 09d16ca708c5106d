package btree

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/pager"
)

// TestLookaheadIsThroughWithThePageInTime: whatever the sizes of pages and rows, no row asks for
// more than a piece, and all of the page has been asked for when the rows before it are passed,
// unless they are so few that a piece with each is not enough.
func TestLookaheadIsThroughWithThePageInTime(t *testing.T) {
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

// nearReader notes which pages are asked for.
type nearReader struct {
	*memory
	asked []pager.Ref
}

func (r *nearReader) Peek(ref pager.Ref, n int) []byte {
	r.asked = append(r.asked, ref)
	page, err := r.Page(ref)
	if err != nil {
		return nil
	}
	return page[:n]
}

// TestWalkAsksForEachNextLeafOnce, in both directions, with steps and with spans, and all of each.
// Behind a seek it waits for the second step.
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
		require.Empty(t, c.prefetch.rest)

		c.Reset(r, tree)
		for i := 500; c.n == 0 || c.i != c.n/2; i++ { // the middle of a leaf
			require.True(t, c.Seek(fmt.Appendf(nil, "%08d", i)))
		}
		r.asked = nil
		require.True(t, move(&c))
		require.Empty(t, r.asked)
		require.True(t, move(&c))
		require.Len(t, r.asked, 1)
		left := len(c.prefetch.rest)
		s := c.LeafScan(forward)
		for range 10 {
			require.True(t, s.Next())
		}
		c.EndScan(s)
		require.Less(t, len(c.prefetch.rest), left)
		require.NotEmpty(t, c.prefetch.rest)
	}
}

// TestSeekMeetsTheLeavesOfItsRange, those that a walk within bounds comes to and no other, and the
// first of them only if they are many.
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
				for i := leafOf(from); (leafOf(bound)-i)*step >= 0 && len(want) <= prefetchLeaves; i += step {
					want = append(want, childRef(root, n, i))
				}
			}
			r.asked = nil
			require.True(t, c.seek(from, forward))
			require.Equal(t, want, r.asked, "forward %v, %q", forward, bounds)
		}
	}
}

// aheadReader notes which pages a walk has read ahead, in how many calls.
type aheadReader struct {
	*memory
	asked []pager.Ref
	calls int
	no    int // how often ReadsAhead said so; -1: it says yes
}

func (r *aheadReader) ReadAhead(refs []pager.Ref) {
	r.asked, r.calls = append(r.asked, refs...), r.calls+1
}

func (r *aheadReader) ReadsAhead() bool {
	if r.no >= 0 {
		r.no++
	}
	return r.no < 0
}

// TestWalkHasAllLeavesReadAhead of the one that it begins at, each once and before it gets there,
// in both directions, in windows that grow; within bounds, none beyond. A reader that gains nothing
// by it is asked once.
func TestWalkHasAllLeavesReadAhead(t *testing.T) {
	r := &aheadReader{memory: newMemory(4096)}
	var tree Tree
	const rows = 20_000
	for i := range rows {
		_, err := Put(r.memory, &tree, fmt.Appendf(nil, "%08d", i), make([]byte, 100), 0)
		require.NoError(t, err)
	}
	require.Equal(t, uint8(3), tree.Depth)
	leaves := map[pager.Ref]bool{}
	root, err := r.Page(tree.Root)
	require.NoError(t, err)
	for i := range count(root) {
		b, err := r.Page(childRef(root, count(root), i))
		require.NoError(t, err)
		for k := range count(b) {
			leaves[childRef(b, count(b), k)] = true
		}
	}
	for _, forward := range []bool{true, false} {
		move := (*Cursor).Next
		if !forward {
			move = (*Cursor).Prev
		}
		var c Cursor
		c.Reset(r, tree)
		r.asked, r.calls, r.no = nil, 0, -1
		for move(&c) {
			continue
		}
		seen := map[pager.Ref]bool{}
		for _, ref := range r.asked {
			require.False(t, seen[ref], "once")
			seen[ref] = true
		}
		missed := 0 // the first leaf below each branch: the walk is there when the branch is known
		for ref := range leaves {
			if !seen[ref] {
				missed++
			}
		}
		require.Equal(t, count(root), missed)
		require.Len(t, r.asked, len(leaves)-missed+count(root)-1, "and the branches but for the first")
		require.Less(t, r.calls, len(leaves)/8)

		c.Reset(r, tree)
		c.Bound(fmt.Appendf(nil, "%08d", 9000), fmt.Appendf(nil, "%08d", 9400))
		r.asked = nil
		require.True(t, c.Seek(fmt.Appendf(nil, "%08d", 9200)))
		require.Empty(t, r.asked, "a seek may be all")
		for range 250 {
			require.True(t, move(&c))
		}
		require.NotEmpty(t, r.asked)
		require.LessOrEqual(t, len(r.asked), 200/20, "no leaf beyond the bound")

		c.Reset(r, tree)
		c.Bound(nil, nil)
		r.calls, r.no = 0, 0
		for move(&c) {
			continue
		}
		require.Zero(t, r.calls)
		require.Equal(t, 1, r.no, "asked once")
	}
}
