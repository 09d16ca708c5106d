package kv_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// TestLockTimeoutIsHonoured waits on a clock of the test's own: exactly as long as was asked for,
// not a moment if nothing was, and no longer than the other handle is open. No call is made that
// could change a file.
func TestLockTimeoutIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMemory()
		first, err := kv.OpenFS(disk, path, quick, kv.Tuning{})
		require.NoError(t, err)
		fill(t, first, "a")
		before := image(t, disk, "dir")
		fsys := &hookFS{disk, func(call, name string) error {
			require.False(t, changes(call), "%s of %s", call, name)
			return nil
		}}
		for _, wait := range []time.Duration{0, time.Nanosecond, time.Millisecond, 333 * time.Millisecond, time.Hour} {
			began := time.Now()
			_, err := kv.OpenFS(fsys, path, &kv.Options{LockTimeout: wait}, kv.Tuning{})
			require.ErrorIs(t, err, kv.ErrLocked)
			require.Equal(t, wait, time.Since(began))
		}
		require.Equal(t, before, image(t, disk, "dir"))

		const open = 777 * time.Millisecond
		go func() {
			time.Sleep(open)
			if err := first.Close(); err != nil {
				t.Error(err)
			}
		}()
		began := time.Now()
		second, err := kv.OpenFS(disk, path, &kv.Options{LockTimeout: time.Hour}, kv.Tuning{})
		require.NoError(t, err)
		waited := time.Since(began)
		require.GreaterOrEqual(t, waited, open)
		require.Less(t, waited, open+100*time.Millisecond, "it looks often enough")
		require.Equal(t, []string{"a=v-a"}, rows(t, second, "default"))
		require.NoError(t, second.Close())
	})
}
