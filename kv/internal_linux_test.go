package kv

import (
	"context"
	"encoding/binary"
	"errors"
	"math/bits"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/memgroup"
	"github.com/ebbkv/ebb/internal/racetest"
)

// littleMemory is the limit of the cgroup. A store whose file is not mapped, as on 32-bit systems,
// has its clean pages on the Go heap, which the collector lets grow to twice what is in use.
const littleMemory = int64(32<<20) << (1 - bits.UintSize/64)

// storeOfChild names the store of a test that has started itself as a child in a small cgroup.
const storeOfChild = "EBB_STORE_IN_LITTLE_MEMORY"

// TestStoreInLittleMemoryIsNotKilled (F41). With default options a process in a cgroup of 256 MB
// that put rows at random in batches of 10,000, not waiting for the disk, was killed before it had
// put a million: frames had 384 MiB whatever there was. Here the cgroup has 32 MB; with the old bound
// it is killed within the first 100,000 rows.
func TestStoreInLittleMemoryIsNotKilled(t *testing.T) {
	racetest.NotQuick(t)
	if path := os.Getenv(storeOfChild); path != "" {
		fillInLittleMemory(t, path)
		return
	}
	if racetest.Enabled {
		t.Skip("the race detector takes more memory than there is")
	}
	g, err := memgroup.New(littleMemory)
	if errors.Is(err, memgroup.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), storeOfChild+"="+filepath.Join(t.TempDir(), "a.ebb"))
	g.Wrap(child)
	out, err := child.CombinedOutput()
	require.NoError(t, err, "kills %d: %s", g.Kills(), out)
	require.Zero(t, g.Kills())
	require.True(t, strings.Contains(string(out), "--- PASS"), "%s", out)
}

func fillInLittleMemory(t *testing.T, path string) {
	const batch, rows = 10_000, 100_000
	db, err := Open(path, &Options{Durability: NoSync})
	require.NoError(t, err)
	require.Equal(t, littleMemory, db.Stats().MemoryBytes)
	require.Equal(t, littleMemory/4, db.Stats().CacheBytes)
	rng, b := rand.New(rand.NewPCG(1, 2)), db.NewBatch()
	key, value := make([]byte, 16), make([]byte, 100)
	for range rows / batch {
		b.Reset()
		for range batch {
			binary.BigEndian.PutUint64(key, rng.Uint64())
			copy(value, key)
			b.Put(key, value)
		}
		require.NoError(t, db.Apply(context.Background(), b))
	}
	require.NoError(t, db.View(func(tx *Tx) error {
		n := 0
		for k, v := range tx.All() {
			require.Equal(t, string(k), string(v[:len(k)]))
			n++
		}
		require.Equal(t, rows, n)
		return tx.Err()
	}))
	require.NoError(t, db.Close())
}

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
		db, err := Open(filepath.Join(b.TempDir(), "a.ebb"),
			&Options{Durability: NoSync, CacheBytes: 64 << 20})
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
