//go:build darwin || freebsd || linux

package vfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A FIFO has no reader here: opening it for writing would wait for ever.
func TestFIFOIsRefusedWithoutWaiting(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(name, 0o600))
	for _, flag := range []Flag{0, Write, Write | Create} {
		_, err := OS.Open(name, flag)
		require.ErrorIs(t, err, ErrNotRegular)
	}
	_, err := OS.Open("/dev/null", Write)
	require.ErrorIs(t, err, ErrNotRegular)
}

// TestInterruptedCallsAreMadeAgain: a signal is no error, and no other error is taken for one.
func TestInterruptedCallsAreMadeAgain(t *testing.T) {
	for _, last := range []error{nil, unix.EIO} {
		calls := 0
		err := uninterrupted(func() error {
			if calls++; calls < 4 {
				return unix.EINTR
			}
			return last
		})
		require.Equal(t, last, err)
		require.Equal(t, 4, calls)
	}
}

func TestFullDiskAndQuotaAreErrNoSpace(t *testing.T) {
	for _, errno := range []error{unix.ENOSPC, unix.EDQUOT} {
		err := osError(&fs.PathError{Op: "write", Path: "a", Err: errno})
		require.ErrorIs(t, err, ErrNoSpace)
		require.ErrorIs(t, err, errno)
		var pathErr *fs.PathError
		require.ErrorAs(t, err, &pathErr)
	}
	require.NotErrorIs(t, osError(unix.EIO), ErrNoSpace)
	require.NoError(t, osError(nil))
}

func TestSymbolicLinksAreFollowed(t *testing.T) {
	dir := t.TempDir()
	name, link := filepath.Join(dir, "a"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(name, []byte("abc"), 0o600))
	require.NoError(t, os.Symlink(name, link))
	a, err := OS.Stat(name)
	require.NoError(t, err)
	l, err := OS.Stat(link)
	require.NoError(t, err)
	require.Equal(t, a, l)
	f, err := OS.Open(link, Write)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
