package kv

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkMemory tells what takes memory besides frames: docs/tuning.md has the figures. A million
// rows are put at random in batches of 1000 that do not wait for the disk, with frames of 64 MiB.
func BenchmarkMemory(b *testing.B) {
	anonymous := func() int64 {
		text, err := os.ReadFile("/proc/self/status")
		require.NoError(b, err)
		_, rest, _ := strings.Cut(string(text), "RssAnon:")
		kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
		require.NoError(b, err)
		return kb << 10
	}
	const rows, batch = 1_000_000, 1000
	for range b.N {
		runtime.GC()
		before := anonymous()
		db, err := Open(filepath.Join(b.TempDir(), "a.ebb"), &Options{Durability: NoSync, CacheBytes: 64 << 20})
		require.NoError(b, err)
		rng, w := rand.New(rand.NewPCG(1, 2)), db.NewBatch()
		key, value := make([]byte, 16), make([]byte, 100)
		most, frames := int64(0), int64(0)
		for range rows / batch {
			w.Reset()
			for range batch {
				binary.BigEndian.PutUint64(key, rng.Uint64())
				w.Put(key, value)
			}
			require.NoError(b, db.Apply(context.Background(), w))
			frames = max(frames, db.store.Stats().FrameBytes)
			most = max(most, anonymous())
		}
		require.NoError(b, db.Checkpoint(context.Background()))
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		s := db.Stats()
		b.ReportMetric(float64(most-before)/1e6, "most-MB")
		b.ReportMetric(float64(frames)/1e6, "frames-MB")
		b.ReportMetric(float64(m.HeapAlloc)/1e6, "heap-MB")
		b.ReportMetric(float64(m.HeapAlloc)/float64(s.FileBytes/int64(s.PageSize)), "heap-B/page")
		b.ReportMetric(float64(s.FileBytes)/1e6, "file-MB")
		require.NoError(b, db.Close())
	}
}
