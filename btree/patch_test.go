package btree

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPatchesAreSplit: rows that come at random to patched leaves, in transactions of a few, split them without making pages of them.
func TestPatchesAreSplit(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	m := newMemory(4096)
	var tree Tree
	want := newModel()
	for n := range 600 {
		m.patches = n > 50
		for range 20 {
			key, value := fmt.Appendf(nil, "%016x", r.Uint64()), make([]byte, 100)
			was, err := Put(m, &tree, key, value, 0)
			require.NoError(t, err)
			require.Equal(t, want.put(string(key), value, 0), was)
		}
		m.commit(t)
		m.requireSound(t, tree)
	}
	require.Positive(t, m.beside)
}
