package btree

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDeletesMergePages(t *testing.T) {
	m := newMemory(4096)
	tree := load(t, m, 20_000, 40)
	r := rand.New(rand.NewPCG(1, 1))
	for _, i := range r.Perm(20_000)[:19_800] {
		_, err := Delete(m, &tree, number(i))
		require.NoError(t, err)
	}
	m.commit(t)
	m.requireSound(t, tree)
	share, leaves := fill(t, m, tree)
	require.Greater(t, share, 0.25, "%d leaves", leaves)
}
