package kv_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/platformtest"
	"github.com/ebbkv/ebb/kv"
)

// TestLinkMeansItsFile: a store that was opened through a symbolic link had its log beside the
// link, and could not be opened by its own name after a crash. Made through a link that led to no
// file yet, it took the place of the link.
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

		killed := t.TempDir() // the files after a kill, opened by the file's own name
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

// TestLinkThroughLinks: where a link's own text goes through another one and back by "..", the log
// was looked for in the directory that the text seems to name.
func TestLinkThroughLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "other", "deep"), 0o755))
	platformtest.MayRefuse(t, os.Symlink(filepath.Join("other", "deep"), filepath.Join(dir, "way")), "windows")
	through := filepath.FromSlash("way/../a.ebb")
	for name, to := range map[string]string{"relative": through, "absolute": dir + string(filepath.Separator) + through} {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	require.NoError(t, os.Symlink("relative", filepath.Join(dir, "twice")))
	at := filepath.Join(dir, "other", "a.ebb")
	db, err := kv.Open(at, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	for _, name := range []string{"a.ebb", "a.ebb-wal-000001"} {
		b, err := os.ReadFile(filepath.Join(dir, "other", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "other", "killed "+name), b, 0o644))
	}
	require.NoError(t, db.Close())
	for _, name := range []string{"relative", "absolute", "twice"} {
		for _, file := range []string{"a.ebb", "a.ebb-wal-000001"} { // as a kill leaves them
			b, err := os.ReadFile(filepath.Join(dir, "other", "killed "+file))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "other", file), b, 0o644))
		}
		db, err := kv.Open(filepath.Join(dir, name), nil)
		require.NoError(t, err, name)
		require.Equal(t, at, db.Path())
		value, err := db.Get([]byte("k"))
		require.NoError(t, err)
		require.Equal(t, "v", string(value))
		require.False(t, db.RecoveryInfo().Clean)
		require.NoError(t, db.Close())
	}
	require.NoError(t, os.Symlink(filepath.Join("nowhere", "a.ebb"), filepath.Join(dir, "lost")))
	_, err = kv.Open(filepath.Join(dir, "lost"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	info, err := os.Lstat(filepath.Join(dir, "lost"))
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
}
