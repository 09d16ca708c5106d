//go:build unix

package kv_test

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
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

// creations notes with which mode each file is created, also those that are renamed or removed at
// once.
type creations struct {
	vfs.FS
	mu    sync.Mutex
	modes map[string]fs.FileMode
}

func (c *creations) Open(name string, flag vfs.Flag) (vfs.File, error) {
	if flag&vfs.Create != 0 {
		c.mu.Lock()
		c.modes[filepath.Base(name)] = flag.Mode()
		c.mu.Unlock()
	}
	return c.FS.Open(name, flag)
}

// TestFilesAreCreatedForTheirOwnerAlone: under the umask 022 the main file and the log were 0644,
// readable for every user of the machine, and no option changed that. Options.FileMode is for all
// files: main file, its temporary name, log segments.
func TestFilesAreCreatedForTheirOwnerAlone(t *testing.T) {
	for _, test := range []struct {
		name              string
		mode, umask, want fs.FileMode
	}{
		{"default", 0, 0o022, 0o600},
		{"group", 0o640, 0o022, 0o640},
		{"all", 0o666, 0o027, 0o640},
		{"umask_of_the_user", 0o666, 0o077, 0o600},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer unix.Umask(unix.Umask(int(test.umask)))
			dir := t.TempDir()
			fsys := &creations{FS: vfs.OS, modes: map[string]fs.FileMode{}}
			db, err := openfs.Open(fsys, filepath.Join(dir, "a.ebb"),
				&kv.Options{FileMode: test.mode}, txn.Options{SegmentSize: 64 << 10})
			require.NoError(t, err)
			for range 200 {
				require.NoError(t, db.Put([]byte("k"), make([]byte, 800)))
			}
			files, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Greater(t, len(files), 2, "main file and segments")
			for _, f := range files {
				info, err := f.Info()
				require.NoError(t, err)
				require.Equal(t, test.want, info.Mode().Perm(), f.Name())
			}
			require.NoError(t, db.Close())
			require.Contains(t, fsys.modes, "a.ebb.new")
			for name, mode := range fsys.modes {
				require.Equal(t, max(test.mode, vfs.DefaultMode), mode, name)
			}
		})
	}
}
