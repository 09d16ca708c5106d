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
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/memgroup"
	"github.com/ebbkv/ebb/internal/racetest"
)

// littleMemory is the limit of the cgroup. A store whose file is not mapped, as on 32-bit systems,
// has its clean pages on the Go heap, which the collector lets grow to twice what is in use.
func littleMemory() int64 { return int64(racetest.Sample(64, 32)) << 20 << (1 - bits.UintSize/64) }

// storeOfChild names the store of a test that has started itself as a child in a small cgroup.
const storeOfChild = "EBB_STORE_IN_LITTLE_MEMORY"

// TestStoreInLittleMemoryIsNotKilled (F41). With default options a process in a cgroup of 256 MB
// that put rows at random in batches of 10,000, not waiting for the disk, was killed before it had
// put a million: frames had 384 MiB whatever there was. Here the cgroup has 64 MB, or 32 in
// a quick run; with the old bound it is killed within the first 300,000 rows, or 100,000.
func TestStoreInLittleMemoryIsNotKilled(t *testing.T) {
	if path := os.Getenv(storeOfChild); path != "" {
		fillInLittleMemory(t, path)
		return
	}
	if racetest.Enabled {
		t.Skip("the race detector takes more memory than there is")
	}
	g, err := memgroup.New(littleMemory())
	if errors.Is(err, memgroup.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	if testing.Short() {
		child.Args = append(child.Args, "-test.short")
	}
	child.Env = append(os.Environ(), storeOfChild+"="+filepath.Join(t.TempDir(), "a.ebb"))
	g.Wrap(child)
	out, err := child.CombinedOutput()
	require.NoError(t, err, "kills %d: %s", g.Kills(), out)
	require.Zero(t, g.Kills())
	require.True(t, strings.Contains(string(out), "--- PASS"), "%s", out)
}

func fillInLittleMemory(t *testing.T, path string) {
	const batch = 10_000
	rows := racetest.Sample(300_000, 100_000)
	db, err := Open(path, &Options{Durability: NoSync})
	require.NoError(t, err)
	require.Equal(t, littleMemory(), db.Stats().MemoryBytes)
	require.Equal(t, littleMemory()/4, db.Stats().CacheBytes)
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
