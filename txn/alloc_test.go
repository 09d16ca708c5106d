package txn

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestPutsTakeNoPagesFromTheCollector does single puts, each its own transaction, on a tree of
// several levels: what is allocated is a small fraction of the three or four pages that each one
// copies.
func TestPutsTakeNoPagesFromTheCollector(t *testing.T) {
	racetest.OneGoroutine(t)
	s, err := Open(filepath.Join(t.TempDir(), "a.ebb"), Options{FS: vfs.OS})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	key, val := make([]byte, 16), make([]byte, 100)
	n := uint64(0)
	put := func(count int) {
		tx := begin(t, s, true)
		for range count {
			n++
			mustPut(t, tx, CatalogTree, benchKey(key, n), val, 0)
		}
		require.NoError(t, tx.Commit(NoSync))
	}
	for range 100 {
		put(1000)
	}
	require.LessOrEqual(t, testing.AllocsPerRun(2000, func() { put(1) }), 8.0)

	if racetest.Enabled {
		// here the frames do come from the collector, slab by slab: whether one is taken now
		// decides the mean
		return
	}
	puts := 200_000
	if testing.Short() {
		puts = 50_000
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range puts {
		put(1)
	}
	runtime.ReadMemStats(&after)
	perPut := float64(after.TotalAlloc-before.TotalAlloc) / float64(puts)
	t.Logf(
		"%d puts: %.0f bytes allocated each, %d cycles of the collector",
		puts,
		perPut,
		after.NumGC-before.NumGC,
	)
	require.Less(t, perPut, 1024.0, "a page is 4096 bytes, and each put copies at least three")
}
