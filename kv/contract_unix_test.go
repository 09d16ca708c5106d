//go:build unix

package kv_test

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// TestPathsThatAreNoFiles: a FIFO has no process at its other end, so an open of it would block
// without end.
func TestPathsThatAreNoFiles(t *testing.T) {
	t.Chdir(t.TempDir()) // The path of a socket has to be short.
	require.NoError(t, unix.Mkfifo("fifo.ebb", 0o600))
	socket, err := net.Listen("unix", "socket.ebb")
	require.NoError(t, err)
	defer func() { require.NoError(t, socket.Close()) }()
	for _, name := range []string{"fifo.ebb", "socket.ebb", "/dev/null", ".", "/"} {
		for _, o := range []*kv.Options{nil, {ReadOnly: true}, {MustExist: true}} {
			_, err := kv.Open(name, o)
			require.ErrorIs(t, err, kv.ErrInvalidPath, name)
			require.ErrorContains(t, err, name)
		}
	}
	left, err := vfs.OS.List(filepath.Dir("fifo.ebb"))
	require.NoError(t, err)
	require.Equal(t, []string{"fifo.ebb", "socket.ebb"}, left)
}
