package btree

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/pager"
)

// readCounter counts reads of leaves.
type readCounter struct {
	*memory
	leaves int
}

func (c *readCounter) Page(ref pager.Ref) ([]byte, error) {
	b, err := c.memory.Page(ref)
	if err == nil && isLeaf(b) {
		c.leaves++
	}
	return b, err
}

func TestLeavesWithoutOverflowAreFreedUnread(t *testing.T) {
	m := newMemory(4096)
	tree := load(t, m, 20_000, 40)
	c := &readCounter{memory: m}
	rows, err := DeleteRange(c, &tree, number(1000), number(19_000))
	require.NoError(t, err)
	require.EqualValues(t, 18_000, rows)
	require.LessOrEqual(t, c.leaves, 8, "the edges, and their neighbours")
	m.commit(t)
	m.requireSound(t, tree)

	c.leaves = 0
	for steps := 1; ; steps++ {
		before := m.inUse()
		done, err := FreeTree(c, &tree, 5)
		require.NoError(t, err)
		m.commit(t)
		require.LessOrEqual(t, before-m.inUse(), 5+int(tree.Depth)+2)
		if done {
			require.Greater(t, steps, 3)
			break
		}
	}
	require.Zero(t, c.leaves)
	require.Zero(t, m.inUse())
}
