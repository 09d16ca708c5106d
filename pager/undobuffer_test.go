package pager

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUndoBufferReturnsItsContent: byte strings of all sizes, beyond the own buffer, and twice,
// because empty frees the frames. The reserved space suffices for the worst arrangement.
func TestUndoBufferReturnsItsContent(t *testing.T) {
	for _, pageSize := range []int{4096, 65536} {
		a := frameArena{pageSize: pageSize}
		defer a.close()
		var s undoBuffer
		rnd := rand.New(rand.NewSource(1))
		for range 2 {
			var places []bufferOffset
			var want [][]byte
			for total := 0; total < 60*pageSize; {
				require.NoError(t, s.reserve(&a, enterPages))
				for _, n := range []int{1 + rnd.Intn(pageSize/4), pageSize - rnd.Intn(30), 8, 8, 8} {
					b := make([]byte, n)
					_, _ = rnd.Read(b)
					places, want = append(places, s.add(b)), append(want, b)
					total += n
				}
			}
			require.Greater(t, a.bytes(), int64(30*pageSize))
			all := 0
			for i, at := range places {
				require.True(t, bytes.Equal(want[i], s.bytesAt(at, uint32(len(want[i])))), i)
				all += len(want[i])
			}
			require.Equal(t, all, s.bytes)
			s.empty(&a)
			require.Zero(t, a.bytes())
			require.Zero(t, s.bytes)
		}
	}
}
