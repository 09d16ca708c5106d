package btree

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/pager"
)

// aheadReader records the pages and the calls of ReadAhead.
type aheadReader struct {
	*memory
	requested []pager.Ref
	calls     int
	no        int // number of ReadsAhead calls, all false; -1: they return true
}

func (r *aheadReader) ReadAhead(refs []pager.Ref) {
	r.requested, r.calls = append(r.requested, refs...), r.calls+1
}

func (r *aheadReader) ReadsAhead() bool {
	if r.no >= 0 {
		r.no++
	}
	return r.no < 0
}

// TestWalkReadsAheadAllLeaves: it requests each leaf after the first once, before the walk gets
// there, in both directions, in windows that grow, and none out of bounds. If ReadsAhead returns
// false, the walk does not call it again.
func TestWalkReadsAheadAllLeaves(t *testing.T) {
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
		r.requested, r.calls, r.no = nil, 0, -1
		for move(&c) {
			continue
		}
		seen := map[pager.Ref]bool{}
		for _, ref := range r.requested {
			require.False(t, seen[ref], "once")
			seen[ref] = true
		}
		missed := 0 // the first leaf below each branch, which the walk reaches with the branch
		for ref := range leaves {
			if !seen[ref] {
				missed++
			}
		}
		require.Equal(t, count(root), missed)
		require.Len(t, r.requested, len(leaves)-missed+count(root)-1, "and the branches but for the first")
		require.Less(t, r.calls, len(leaves)/8)

		c.Reset(r, tree)
		c.Bound(fmt.Appendf(nil, "%08d", 9000), fmt.Appendf(nil, "%08d", 9400))
		r.requested = nil
		require.True(t, c.Seek(fmt.Appendf(nil, "%08d", 9200)))
		require.Empty(t, r.requested, "a seek may be all")
		for range 250 {
			require.True(t, move(&c))
		}
		require.NotEmpty(t, r.requested)
		require.LessOrEqual(t, len(r.requested), 200/20, "no leaf beyond the bound")

		c.Reset(r, tree)
		c.Bound(nil, nil)
		r.calls, r.no = 0, 0
		for move(&c) {
			continue
		}
		require.Zero(t, r.calls)
		require.Equal(t, 1, r.no, "requested once")
	}
}
