package btree

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
)

// TestWarmTellsOfDamageOnly: whatever keys it gets, in trees of any depth.
func TestWarmTellsOfDamageOnly(t *testing.T) {
	m := newMemory(4096)
	tr := Tree{}
	keys := [][]byte{nil, []byte("zz")}
	require.NoError(t, Warm(m, tr, keys))
	for i := range 20_000 {
		key := fmt.Appendf(nil, "key-%08d", i*7919%20_000)
		_, err := Put(m, &tr, key, make([]byte, 20), 0)
		require.NoError(t, err)
		if i%100 == 0 {
			keys = append(keys, key, append(key, 'x'))
		}
		if i%5000 == 0 {
			require.NoError(t, Warm(m, tr, keys))
		}
	}
	require.Equal(t, uint8(3), tr.Depth)
	for n := range 40 {
		require.NoError(t, Warm(m, tr, keys[:n]))
	}
	require.ErrorIs(t, Warm(m, Tree{Root: tr.Root, Depth: tr.Depth - 1}, keys), badfile.ErrCorrupt)
	require.ErrorIs(t, Warm(m, Tree{Root: tr.Root, Depth: maxDepth + 1}, keys), badfile.ErrCorrupt)
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
