package btree

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSetTagCopiesOnlyForAChange(t *testing.T) {
	m := newMemory(4096)
	tree := load(t, m, 2000, 2500)
	before := tree
	was, err := SetTag(m, &tree, number(77), 0)
	require.NoError(t, err)
	require.Equal(t, Info{2500, 0, true}, was)
	was, err = SetTag(m, &tree, []byte("absent"), 1)
	require.NoError(t, err)
	require.Zero(t, was)
	require.Equal(t, before, tree)
	value, _, err := Get(m, tree, number(77))
	require.NoError(t, err)
	was, err = SetTag(m, &tree, number(77), 1)
	require.NoError(t, err)
	require.Equal(t, Info{2500, 0, true}, was)
	require.NotEqual(t, before, tree)
	info, err := GetInfo(m, tree, number(77))
	require.NoError(t, err)
	require.Equal(t, Info{2500, 1, true}, info)
	after, _, err := Get(m, tree, number(77))
	require.NoError(t, err)
	require.Same(t, &value.Bytes[0], &after.Bytes[0], "the extent is the same one")
	m.requireSound(t, tree)
}
