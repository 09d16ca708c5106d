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
