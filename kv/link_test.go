package kv_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/platformtest"
	"github.com/ebbkv/ebb/kv"
)

// TestLinkMeansItsFile: a store that was opened through a symbolic link had its log beside the link, and could not be opened by its own name
// after a crash. Made through a link that led to no file yet, it took the place of the link.
func TestLinkMeansItsFile(t *testing.T) {
	for _, there := range []bool{false, true} {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		require.NoError(t, err)
		at, link := filepath.Join(dir, "real", "a.ebb"), filepath.Join(dir, "link.ebb")
		require.NoError(t, os.Mkdir(filepath.Dir(at), 0o755))
		platformtest.MayRefuse(t, os.Symlink(filepath.Join("real", "a.ebb"), link), "windows")
		if there {
			db, err := kv.Open(at, nil)
			require.NoError(t, err)
			require.NoError(t, db.Close())
		}
		db, err := kv.Open(link, nil)
		require.NoError(t, err)
		require.NoError(t, db.Put([]byte("k"), []byte("v")))
		require.Equal(t, at, db.Path())
		info, err := os.Lstat(link)
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&os.ModeSymlink)

		killed := t.TempDir() // what a kill leaves, as who opens the file by its own name finds it
		require.NoError(t, os.CopyFS(killed, os.DirFS(filepath.Dir(at))))
		require.NoError(t, db.Close())
		db, err = kv.Open(filepath.Join(killed, "a.ebb"), nil)
		require.NoError(t, err)
		value, err := db.Get([]byte("k"))
		require.NoError(t, err)
		require.Equal(t, "v", string(value))
		require.False(t, db.RecoveryInfo().Clean)
		require.NoError(t, db.Close())
	}
}
