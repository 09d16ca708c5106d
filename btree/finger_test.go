package btree

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFingerPutsWhatPutPuts makes two trees of the same rows, in orders that a finger likes and in orders that it does not:
// they hold the same, and are sound, also where others change the tree in between and the finger is told.
func TestFingerPutsWhatPutPuts(t *testing.T) {
	for name, key := range map[string]func(r *rand.Rand, i int) int{
		"rising":       func(_ *rand.Rand, i int) int { return i },
		"falling":      func(_ *rand.Rand, i int) int { return 3000 - i },
		"at random":    func(r *rand.Rand, _ int) int { return r.IntN(3000) },
		"in clusters":  func(r *rand.Rand, i int) int { return i/40*7919%100*40 + r.IntN(40) },
		"two streams":  func(_ *rand.Rand, i int) int { return i%2*10000 + i/2 },
		"again":        func(_ *rand.Rand, i int) int { return i % 60 },
		"large values": func(_ *rand.Rand, i int) int { return i*2 + 1_000_000 },
		"large, again": func(_ *rand.Rand, i int) int { return i / 2 % 70 },
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			m, plain := newMemory(4096), newMemory(4096)
			var tree, same Tree
			var f Finger
			for i := range 3000 {
				k := fmt.Appendf(nil, "%08d", key(r, i))
				size := r.IntN(60)
				if strings.HasPrefix(name, "large") && i%50 == 0 {
					size = 5000
				}
				was, err := f.Put(m, &tree, k, make([]byte, size), int64(i%3))
				require.NoError(t, err)
				want, err := Put(plain, &same, k, make([]byte, size), int64(i%3))
				require.NoError(t, err)
				require.Equal(t, want, was)
				if i%97 == 0 { // Somebody else changes it.
					_, err := Delete(m, &tree, k)
					require.NoError(t, err)
					_, err = Delete(plain, &same, k)
					require.NoError(t, err)
					f = Finger{}
				}
			}
			require.Equal(t, same.Rows, tree.Rows)
			m.requireSound(t, tree)
			var a, b Cursor
			a.Reset(m, tree)
			b.Reset(plain, same)
			for more := b.First(); more; more = b.Next() {
				require.True(t, a.Next())
				require.Equal(t, b.Key(), a.Key())
				require.Equal(t, b.Value(), a.Value())
				require.Equal(t, b.Tag(), a.Tag())
			}
			require.False(t, a.Next())
			require.NoError(t, errors.Join(a.Err(), b.Err()))
		})
	}
}

// TestFingerFollowsRowsInOrder into the next leaf when one is full, so that only where a branch splits a row needs a descent.
func TestFingerFollowsRowsInOrder(t *testing.T) {
	m := newMemory(4096)
	var tree Tree
	var f Finger
	lost := 0
	for i := range 20_000 {
		key := fmt.Appendf(nil, "%08d", i)
		before := f.leaf
		require.Equal(t, before != nil, f.Beyond(key))
		_, err := f.Put(m, &tree, key, make([]byte, 100), 0)
		require.NoError(t, err)
		if before != nil && f.leaf == nil {
			lost++
		}
	}
	require.Equal(t, uint8(3), tree.Depth)
	require.Less(t, lost, 10)
	require.False(t, f.Beyond([]byte("0")))
	m.requireSound(t, tree)
}
