package pager

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestFramesKeepWhatIsInThemWhileMemoryIsTouchedAhead: of the same slab and the next one, by goroutines that end before the arena
// is closed.
func TestFramesKeepWhatIsInThemWhileMemoryIsTouchedAhead(t *testing.T) {
	const pageSize = 4096
	a := arena{pageSize: pageSize}
	frames := map[unsafe.Pointer]uint64{}
	for i := range uint64(93 << 19 / pageSize) {
		f, err := a.alloc()
		require.NoError(t, err)
		_, twice := frames[f]
		require.False(t, twice)
		frames[f] = i
		words := unsafe.Slice((*uint64)(f), pageSize/8)
		require.Zero(t, words[0], "fresh memory")
		words[0], words[len(words)-1] = i, i
	}
	for f, i := range frames {
		words := unsafe.Slice((*uint64)(f), pageSize/8)
		require.True(t, words[0] == i && words[len(words)-1] == i)
	}
	require.NotNil(t, a.next, "the frames end in the last stretch of a slab")
	a.close()
}
