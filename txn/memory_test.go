package txn

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// TestCacheSizeFollowsTheAvailableMemory. With 384 MiB of frames whatever there was, a process in a
// cgroup of 256 MB was killed.
func TestCacheSizeFollowsTheAvailableMemory(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	debug.SetMemoryLimit(math.MaxInt64)
	for _, c := range []struct {
		name                string
		memory, cache, want int64
	}{
		{"plenty", 8 << 30, 0, 384 << 20},
		{"little", 256 << 20, 0, 64 << 20},
		{"set", 256 << 20, 100 << 20, 100 << 20},
		{"hardly_any", 1, 0, minCacheBytes},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Memory: c.memory, CacheBytes: c.cache}.withDefaults()
			require.Equal(t, c.want, o.CacheBytes)
		})
	}
	debug.SetMemoryLimit(128 << 20)
	o := Options{}.withDefaults()
	require.LessOrEqual(t, o.CacheBytes, int64(32<<20), "GOMEMLIMIT")
	require.Positive(t, o.CacheBytes)
}

// TestCloseMovesFewPagesWhereMemoryIsScarce. Close of a store in a cgroup smaller than its
// file took up to half a minute: it moved up to 65536 pages, each of which the disk had to read.
func TestCloseMovesFewPagesWhereMemoryIsScarce(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	require.False(t, s.pg.Scarce())
	require.Equal(t, shrinkPages, s.checkpointer.shrinkMost())
	o := testOptions(vfs.NewMemory())
	o.Memory = o.CacheBytes
	s = openTest(t, "/b.ebb", o)
	require.True(t, s.pg.Scarce())
	require.Equal(t, scarcePages, s.checkpointer.shrinkMost())
}
