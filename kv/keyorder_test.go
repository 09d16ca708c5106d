package kv

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKeyOrderSortsBehindTheSharedPrefix by two bytes, and keeps the order of keys that agree in them.
func TestKeyOrderSortsBehindTheSharedPrefix(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var o keyOrder
	for _, prefix := range []string{"", "a", "user:0000"} {
		for _, n := range []int{1, 2, 64, 1000, keyOrderMax} {
			keys, plain := make([][]byte, n), make([]int, n)
			for i := range keys {
				key := []byte(prefix)
				for range rnd.IntN(4) {
					key = append(key, byte(rnd.IntN(300)))
				}
				keys[i], plain[i] = key, i
			}
			p := sharedPrefix(keys)
			require.GreaterOrEqual(t, p, len(prefix))
			for _, key := range keys {
				require.Equal(t, keys[0][:p], key[:p])
			}
			two := func(i int) []byte { return append(slices.Clone(keys[i][p:]), 0, 0)[:2] }
			slices.SortStableFunc(plain, func(a, b int) int { return bytes.Compare(two(a), two(b)) })
			got := o.sort(keys)
			require.Len(t, got, n)
			for i, k := range got {
				require.Equal(t, plain[i], int(k), "prefix %q, %d keys, place %d", prefix, n, i)
			}
		}
	}
	require.Equal(t, 3, sharedPrefix([][]byte{[]byte("abcd"), []byte("abc"), []byte("abce")}))
}
