package offheap

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestListKeepsWhatWasAdded over all of its growths, on the Go heap and outside, and again after
// Free.
func TestListKeepsWhatWasAdded(t *testing.T) {
	for _, off := range []bool{false, true} {
		l := List[uint32]{Off: off}
		for _, n := range []uint32{10, 3 * HugePage / 4} {
			for i := range n {
				l.Add(i * 7)
			}
			require.Len(t, l.All, int(n))
			for i, v := range l.All {
				if v != uint32(i)*7 {
					t.Fatalf("number %d is %d, off heap %t", i, v, off)
				}
			}
			l.Room(1000)
			require.GreaterOrEqual(t, cap(l.All)-len(l.All), 1000)
			l.Free()
			require.Empty(t, l.All)
		}
	}
}

// TestLargeListsAreOffTheHeap, and small ones are not: a call of the system each would cost more.
func TestLargeListsAreOffTheHeap(t *testing.T) {
	l := List[uint64]{Off: true}
	defer l.Free()
	l.Room(1000)
	require.Nil(t, l.slab)
	l.Room(HugePage/8 + 1)
	require.NotNil(t, l.slab)
	require.Zero(t, len(l.slab)%HugePage, "a map of whole huge pages")

	l = List[uint64]{}
	l.Room(HugePage)
	require.Nil(t, l.slab)
}
