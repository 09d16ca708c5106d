package btree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPutExtentPutsTheSameRowAsPut puts the same rows in both ways, among small ones and as
// replacements.
func TestPutExtentPutsTheSameRowAsPut(t *testing.T) {
	const pageSize = 4096
	m := newMemory(pageSize)
	var put, named Tree
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		key, tag := fmt.Appendf(nil, "%04d", rnd.IntN(2000)), int64(rnd.IntN(3))
		value := bytes.Repeat([]byte{byte(i)}, rnd.IntN(300))
		if i%3 == 0 {
			value = bytes.Repeat([]byte{byte(i)}, MaxInline(pageSize, len(key))+1+rnd.IntN(3*pageSize))
		}
		want, err := Put(m, &put, key, value, tag)
		require.NoError(t, err)
		var was Info
		if i%3 == 0 {
			ref, err2 := m.NewExtent(value)
			require.NoError(t, err2)
			was, err = PutExtent(m, &named, key, ref, len(value), tag)
		} else {
			was, err = Put(m, &named, key, value, tag)
		}
		require.NoError(t, err)
		require.Equal(t, want, was)
		if i%100 == 99 {
			m.commit(t)
		}
	}
	m.requireSound(t, put, named)
	require.Equal(t, put.Rows, named.Rows)
	require.Greater(t, named.Depth, uint8(1))
	for i := range 2000 {
		key := fmt.Appendf(nil, "%04d", i)
		want, found, err := Get(m, put, key)
		require.NoError(t, err)
		got, also, err := Get(m, named, key)
		require.NoError(t, err)
		require.Equal(t, found, also)
		require.Equal(t, want.Bytes, got.Bytes)
		require.Equal(t, want.Tag, got.Tag)
	}
}
