package pager

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/offheap"
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

// TestTouchChangesNothing: also of memory in use.
func TestTouchChangesNothing(t *testing.T) {
	m, err := offheap.Alloc(4 << 20)
	require.NoError(t, err)
	for i := range m {
		m[i] = byte(i)
	}
	offheap.Touch(m[1<<20 : 3<<20])
	for i := range m {
		if m[i] != byte(i) {
			t.Fatalf("byte %d is %d", i, m[i])
		}
	}
	require.NoError(t, offheap.Free(m))
}
