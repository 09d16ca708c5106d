package btree

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// TestSearchesFindHeads compares the searches for a head with a linear count: few heads and many,
// distinct and equal, the lowest and the highest ones, too.
func TestSearchesFindHeads(t *testing.T) {
	racetest.OneGoroutine(t)
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		for _, few := range []uint64{2, 20, math.MaxUint64} {
			heads := make([]uint64, n)
			for i := range heads {
				heads[i] = r.Uint64N(few) * (math.MaxUint64 / few)
			}
			slices.Sort(heads)
			leaf, branch := make([]byte, offLeafHeads+4*n), make([]byte, offHeads+8*n+8)
			for i, h := range heads {
				binary.LittleEndian.PutUint32(leaf[offLeafHeads+4*i:], uint32(h>>32))
				binary.LittleEndian.PutUint64(branch[offHeads+8*i+8:], h) // head 0 belongs to no separator
			}
			for _, h := range append(heads, 0, math.MaxUint64, r.Uint64()) {
				below, upTo := 0, 0
				for _, x := range heads {
					if x>>32 < h>>32 {
						below++
					}
					if x <= h {
						upTo++
					}
				}
				require.Equal(t, below, lower32(leaf, n, uint32(h>>32)), "%d heads, %x", n, h)
				require.Equal(t, 1+upTo, upper64(branch, n+1, h), "%d heads, %x", n, h)
			}
		}
	}
}

// TestSearchFindsRowsWithEqualHeads compares the search of a leaf with a sorted slice, with many
// keys of equal heads.
func TestSearchFindsRowsWithEqualHeads(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		shared, tail := bytes.Repeat([]byte("p"), r.IntN(6)), 1+r.IntN(9)
		some := func() []byte {
			key := append(bytes.Clone(shared), bytes.Repeat([]byte{byte(r.IntN(2))}, 5)...)
			for range r.IntN(tail) {
				key = append(key, byte(r.IntN(3)))
			}
			return key
		}
		_, b, _ := newMemory(4096).New(pager.KindLeaf, 0)
		initLeaf(b, &cell{})
		var keys [][]byte
		for range 1 + r.IntN(60) {
			var c cell
			c.set(some(), nil, 0)
			at, found, same := leafSearch(b, count(b), c.key)
			if !found {
				leafInsert(b, at, &c, same)
				keys = slices.Insert(keys, at, c.key)
			}
		}
		require.True(t, slices.IsSortedFunc(keys, bytes.Compare))
		for range 100 {
			key := some()
			key = key[:r.IntN(len(key)+1)]
			want, has := slices.BinarySearchFunc(keys, key, bytes.Compare)
			at, found, _ := leafSearch(b, count(b), key)
			require.Equal(t, []any{want, has}, []any{at, found}, "%q in %q", key, keys)
			i, s := leafFind(b, count(b), key)
			if require.Equal(t, has, s.found()); has {
				require.Equal(t, want, i)
			}
		}
	}
}
