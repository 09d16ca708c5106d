package kv_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebbkv/ebb/kv"
)

// TestFullFileSystemFailsTheCallAndNothingElse fills a small file system that is real, with relaxed
// and durable commits: the commit that finds no room fails, the store goes on, checkpoints
// included, and takes commits again once there is room.
func TestFullFileSystemFailsTheCallAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("only root may mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	for _, size := range []int{900, 9000} { // in the page, and in extents
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			path := filepath.Join(dir, fmt.Sprint(size, ".ebb"))
			db, err := kv.Open(path, &kv.Options{Durability: kv.NoSync, CheckpointBytes: 4 << 20})
			require.NoError(t, err)
			value := make([]byte, size)
			stored := 0
			for stored < 30_000 {
				if err = db.Put(fmt.Appendf(nil, "k%06d", stored), value); err != nil {
					break
				}
				stored++
			}
			require.ErrorIs(t, err, kv.ErrNoSpace)
			n, err := db.Count()
			require.NoError(t, err)
			require.EqualValues(t, stored, n)
			require.NoError(t, db.Close(), "what is stored is made durable without more room")
			db, err = kv.Open(path, &kv.Options{Durability: kv.NoSync})
			require.NoError(t, err)
			n, err = db.Count()
			require.NoError(t, err)
			require.EqualValues(t, stored, n)
			require.NoError(t, db.Clear())
			require.NoError(t, db.Checkpoint(t.Context()))
			require.NoError(t, db.Put([]byte("again"), value))
			checkStore(t, db)
			require.NoError(t, db.Close())
			require.NoError(t, os.Remove(path))
		})
	}
}
