package btree

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHeadsAreFoundInAnyNumberOfThem holds the searches for a head to a count of what is before it: few heads and many,
// all different and hardly, the lowest and the highest ones too.
func TestHeadsAreFoundInAnyNumberOfThem(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		for _, few := range []uint64{2, 20, math.MaxUint64} {
			heads := make([]uint64, n)
			for i := range heads {
				heads[i] = r.Uint64N(few) * (math.MaxUint64 / few)
			}
			slices.Sort(heads)
			leaf, branch := make([]byte, offHeads+4*n), make([]byte, offHeads+8*n+8)
			for i, h := range heads {
				binary.LittleEndian.PutUint32(leaf[offHeads+4*i:], uint32(h>>32))
				binary.LittleEndian.PutUint64(branch[offHeads+8*i+8:], h) // head 0 is that of no separator
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
