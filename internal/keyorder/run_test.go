package keyorder

import (
	"bytes"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/offheap"
)

// TestPlacesAreInTheOrderOfKeys, and those of one key in their own, whatever the keys share.
func TestPlacesAreInTheOrderOfKeys(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	testPlaces(t, rnd, new(Run))
}

func testPlaces(t *testing.T, rnd *rand.Rand, r *Run) {
	for _, n := range []int{0, 1, 2, 17, 600, 3000} {
		for _, prefixes := range [][]string{{""}, {"the same "}, {"", "a", "a long one "},
			{"long and ", "long and then"}} {
			for _, length := range []int{1, 3, 6} {
				keys := make([][]byte, n)
				r.Reset()
				for i := range keys {
					keys[i] = fmt.Appendf(
						nil,
						"%s%0*d",
						prefixes[rnd.Intn(len(prefixes))],
						1+rnd.Intn(length),
						rnd.Intn(1+n/2),
					)
					r.Add(keys[i], uint32(i))
				}
				want := make([]uint32, n)
				for i := range want {
					want[i] = uint32(i)
				}
				slices.SortStableFunc(want, func(x, y uint32) int { return bytes.Compare(keys[x], keys[y]) })
				got := offheap.List[uint32]{All: []uint32{7}}
				r.Places(&got, func(place uint32) []byte { return keys[place] })
				require.EqualValues(t, 7, got.All[0])
				require.Equal(t, want, got.All[1:], "%d keys, %q", n, prefixes)
				require.Equal(t, n, r.Len())
			}
		}
	}
}

// TestSortByHeadIsASort holds it against one of the library, around the number from which places
// are used.
func TestSortByHeadIsASort(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	var spare offheap.List[uint64]
	for _, n := range []int{0, 1, 2, 511, 512, 513, 5000, 600} {
		for _, mask := range []uint32{0, 0xff, 0xff00, 0xff00ff00, 1<<32 - 1} {
			keys := make([]uint64, n)
			for i := range keys {
				keys[i] = uint64(rnd.Uint32()&mask)<<32 | uint64(i*100)
			}
			want := slices.Clone(keys)
			slices.Sort(want)
			sortByHead(keys, &spare)
			require.Equal(t, want, keys, "%d with heads in %#x", n, mask)
		}
	}
}
