package btree

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// hole is a memory with one unreadable page.
type hole struct {
	*memory
	at pager.Ref
}

func (h hole) Page(ref pager.Ref) ([]byte, error) {
	if ref == h.at {
		return nil, damage(ref, "a hole")
	}
	return h.memory.Page(ref)
}

// TestCursorSkipsAGapWithKnownBoundsAndRows: an unreadable page was the end of a walk. The test
// makes each page of a tree of three levels unreadable in turn. Walks in both directions return the
// rows outside the gap, and the gap counts the others.
func TestCursorSkipsAGapWithKnownBoundsAndRows(t *testing.T) {
	racetest.OneGoroutine(t)
	m := newMemory(4096)
	const n = 8000
	tree := load(t, m, n, 100)
	require.EqualValues(t, 3, tree.Depth)
	levels := [3]int{}
	require.NoError(t, Walk(m, tree, func(ref pager.Ref, level uint8) (bool, error) {
		if levels[level]++; level == 0 && levels[0]%racetest.Sample(2, 6) != 0 {
			return true, nil
		}
		for _, forward := range []bool{true, false} {
			gap, rows := walkOver(t, hole{m, ref}, tree, forward)
			require.EqualValues(t, tree.Rows, rows+int(gap.Rows), "level %d", level)
			for i := range n {
				if inBounds(number(i), gap.Lower, gap.Upper) {
					rows++
				}
			}
			require.EqualValues(t, tree.Rows, rows, "the bounds of the gap have exactly its rows")
		}
		return true, nil
	}))
	for level, pages := range levels {
		require.NotZero(t, pages, "level %d", level)
	}
}

// walkOver walks over the one gap of a tree and returns it with the number of rows outside.
func walkOver(t *testing.T, r hole, tree Tree, forward bool) (gap Gap, rows int) {
	t.Helper()
	var c Cursor
	c.Reset(r, tree)
	step, last := c.Next, []byte(nil)
	if !forward {
		step = c.Prev
	}
	gaps := 0
	for ok := step(); ; {
		for !ok {
			g, lost := c.Gap()
			if !lost {
				require.Equal(t, 1, gaps)
				require.NoError(t, c.Err())
				return gap, rows
			}
			gap = g
			gaps++
			require.ErrorContains(t, g.Err, "a hole")
			if ok = c.Skip(forward); !ok && c.Err() == nil {
				return gap, rows
			}
		}
		if last != nil {
			require.Equal(t, forward, bytes.Compare(last, c.Key()) < 0)
		}
		last = append(last[:0], c.Key()...)
		rows++
		ok = step()
	}
}
