package btree

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
)

// TestWaysTellOfDamageOnly: whatever changes they are looked for, in trees of any depth.
func TestWaysTellOfDamageOnly(t *testing.T) {
	m := newMemory(4096)
	tr := Tree{}
	changes := []Change{{Key: nil}, {Key: []byte("zz")}}
	find := func(tr Tree, changes []Change) (Ways, error) {
		var s Ways
		err := s.Find(m, tr, nil, changes)
		return s, err
	}
	s, err := find(tr, changes)
	require.NoError(t, err)
	require.False(t, s.hold)
	for i := range 20_000 {
		key := fmt.Appendf(nil, "key-%08d", i*7919%20_000)
		_, err := Put(m, &tr, key, make([]byte, 20), 0)
		require.NoError(t, err)
		if i%1500 == 0 {
			changes = append(changes, Change{Key: key})
		}
	}
	require.Equal(t, uint8(3), tr.Depth)
	require.Len(t, changes, MaxWays)
	for n := range changes {
		s, err := find(tr, changes[:n])
		require.NoError(t, err)
		require.Equal(t, n > 1, s.hold)
	}
	s, err = find(tr, append(changes, changes...)) // too many: each looks for its own
	require.NoError(t, err)
	require.False(t, s.hold)
	_, err = find(Tree{Root: tr.Root, Depth: tr.Depth - 1}, changes)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	_, err = find(Tree{Root: tr.Root, Depth: maxDepth + 1}, changes)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
}

// TestTogetherIsOneLeaf: rows that are put in order do not wait for each other's pages, so nothing is asked for.
func TestTogetherIsOneLeaf(t *testing.T) {
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
		require.Equal(t, same, together(m, tr, key(i), key(i+10)), i)
		if !same {
			apart++
		}
	}
	require.Greater(t, apart, 100)
}
