package kv_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// TestWithoutWritePermission opens a store whose file and directory its user may only read.
func TestWithoutWritePermission(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "a.ebb")
	db, err := kv.Open(at, nil)
	require.NoError(t, err)
	fill(t, db, "k")
	require.NoError(t, db.Close())
	unprivileged(t, dir, at)

	before := image(t, vfs.OS, dir)
	_, err = kv.Open(at, nil)
	require.ErrorIs(t, err, fs.ErrPermission)
	_, err = kv.Open(filepath.Join(dir, "new.ebb"), nil)
	require.ErrorIs(t, err, fs.ErrPermission)
	db, err = kv.Open(at, &kv.Options{ReadOnly: true})
	require.NoError(t, err)
	require.Equal(t, []string{"k=v-k"}, rows(t, db, "default"))
	require.NoError(t, db.Close())
	require.Equal(t, before, image(t, vfs.OS, dir))
}

// TestDirectoryThatTakesNoSegment: the store itself may be written, but its log has no place.
func TestDirectoryThatTakesNoSegment(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "a.ebb")
	db, err := kv.Open(at, nil)
	require.NoError(t, err)
	fill(t, db, "k")
	require.NoError(t, db.Close())
	unprivileged(t, dir, at)
	if os.Geteuid() == 0 {
		require.NoError(t, unix.Setfsuid(0))
		require.NoError(t, os.Chmod(at, 0o666))
		require.NoError(t, unix.Setfsuid(otherUser))
	} else {
		require.NoError(t, os.Chmod(at, 0o600))
	}
	before := image(t, vfs.OS, dir)
	db, err = kv.Open(at, nil)
	if err == nil {
		require.Equal(t, []string{"k=v-k"}, rows(t, db, "default"))
		err = db.Put([]byte("new"), nil)
		require.ErrorIs(t, db.Close(), fs.ErrPermission)
	}
	require.ErrorIs(t, err, fs.ErrPermission)
	require.Equal(t, before, image(t, vfs.OS, dir))
}

// otherUser is a user without rights.
const otherUser = 65534

// unprivileged removes the right to write from this test. Modes do not bind root: its thread takes
// the file-system identity of otherUser, which the kernel allows for a single thread.
func unprivileged(t *testing.T, dir, file string) {
	t.Helper()
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
		require.NoError(t, os.Chmod(dir, 0o755))
		require.NoError(t, os.Chmod(file, 0o644))
		runtime.LockOSThread()
		require.NoError(t, unix.Setfsuid(otherUser))
		t.Cleanup(func() {
			require.NoError(t, unix.Setfsuid(0))
			runtime.UnlockOSThread()
		})
	} else {
		require.NoError(t, os.Chmod(file, 0o400))
		require.NoError(t, os.Chmod(dir, 0o500))
		t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	require.ErrorIs(t, err, fs.ErrPermission, "%v", f)
}
