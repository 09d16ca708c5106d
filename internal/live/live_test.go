package live_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/live"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/txn"
)

var looks = flag.Int("looks", 1600, "looks at a busy store; 100000 take two minutes")

// TestLooksAtABusyStoreNeverFail looks while a writer commits, checkpoints and turns segments over.
// What is told never goes back. It looks until it has seen two checkpoints: on a busy machine the
// writer may get no turn for long.
func TestLooksAtABusyStoreNeverFail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "busy.ebb")
	db, err := openfs.Open(vfs.OS, path, &kv.Options{Durability: kv.NoSync, CheckpointBytes: 256 << 10},
		txn.Options{SegmentSize: 128 << 10})
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("first"), nil))
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := db.Put(fmt.Appendf(nil, "key %d", i%5000), make([]byte, i%3000)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var last live.State
	states := map[uint32]bool{}
	for i := 0; i < racetest.Sample(*looks, *looks/4) || len(states) <= 2; i++ {
		s, err := live.Look(vfs.OS, path)
		require.NoError(t, err)
		require.GreaterOrEqual(t, s.Checkpoint, last.Checkpoint)
		require.GreaterOrEqual(t, s.Seq, last.Seq)
		require.LessOrEqual(t, s.UsedBytes+s.FreeBytes, s.FileBytes)
		require.Positive(t, s.UsedBytes)
		states[s.Checkpoint] = true
		last = *s
	}
	close(stop)
	writer.Wait()
	require.NoError(t, db.Checkpoint(t.Context()))
	s, err := live.Look(vfs.OS, path)
	require.NoError(t, err)
	stats := db.Stats()
	require.Equal(t, stats.FileBytes, s.FileBytes)
	if s.Holder != "" {
		require.Equal(t, "this process", s.Holder)
	}
	require.False(t, s.Clean)
	require.NoError(t, db.Close())
	s, err = live.Look(vfs.OS, path)
	require.NoError(t, err)
	require.True(t, s.Clean)
	require.Zero(t, s.LogFiles+s.LogBytes)
	require.Equal(t, s.FileBytes, s.UsedBytes+s.FreeBytes)
	require.Empty(t, s.Holder)
}

// TestLookAtWhatIsNoStore gives errors, and does not wait for ever.
func TestLookAtWhatIsNoStore(t *testing.T) {
	racetest.NotQuick(t)
	path := filepath.Join(t.TempDir(), "no.ebb")
	_, err := live.Look(vfs.OS, path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, make([]byte, 10_000), 0o600))
	_, err = live.Look(vfs.OS, path)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "%10000d", 1), 0o600))
	_, err = live.Look(vfs.OS, path)
	require.ErrorIs(t, err, pager.ErrNotStore)
}
