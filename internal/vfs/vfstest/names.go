package vfstest

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

func rename(t *testing.T, fsys vfs.FS, dir string) {
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	fa := open(t, fsys, a, vfs.Write|vfs.Create)
	write(t, fa, "from a", 0)
	fb := open(t, fsys, b, vfs.Write|vfs.Create)
	write(t, fb, "from b", 0)
	require.NoError(t, fsys.Rename(a, b))
	_, err := fsys.Stat(a)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, "from a", contents(t, open(t, fsys, b, 0)))
	require.Equal(t, "from b", contents(t, fb))
	write(t, fa, "F", 0)
	require.Equal(t, "From a", contents(t, open(t, fsys, b, 0)))
	require.NoError(t, fsys.Rename(b, b))
	names, err := fsys.List(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, names)
}

func remove(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "a")
	old := open(t, fsys, name, vfs.Write|vfs.Create)
	write(t, old, "old", 0)
	require.NoError(t, fsys.Remove(name))
	_, err := fsys.Open(name, 0)
	require.ErrorIs(t, err, fs.ErrNotExist)
	write(t, old, "er", 3)
	require.Equal(t, "older", contents(t, old))
	young := open(t, fsys, name, vfs.Write|vfs.Create|vfs.Excl)
	require.Equal(t, "", contents(t, young))
	require.Equal(t, "older", contents(t, old))
}

func list(t *testing.T, fsys vfs.FS, dir string) {
	names, err := fsys.List(dir)
	require.NoError(t, err)
	require.Empty(t, names)
	for _, name := range []string{"c", "a", "b.1", "b"} {
		open(t, fsys, filepath.Join(dir, name), vfs.Write|vfs.Create)
	}
	names, err = fsys.List(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "b.1", "c"}, names)
}

func locks(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "a")
	a := open(t, fsys, name, vfs.Write|vfs.Create)
	b := open(t, fsys, name, vfs.Write)
	c := open(t, fsys, name, 0)
	require.NoError(t, a.Lock(true))
	require.ErrorIs(t, b.Lock(true), vfs.ErrLocked)
	require.ErrorIs(t, c.Lock(false), vfs.ErrLocked)
	require.NoError(t, a.Close())
	require.NoError(t, c.Lock(false))
	require.NoError(t, b.Lock(false))
	d := open(t, fsys, name, vfs.Write)
	require.ErrorIs(t, d.Lock(true), vfs.ErrLocked)
	require.NoError(t, b.Close())
	require.NoError(t, c.Close())
	require.NoError(t, d.Lock(true))
	other := open(t, fsys, filepath.Join(dir, "b"), vfs.Write|vfs.Create)
	require.NoError(t, other.Lock(true))
}

func ids(t *testing.T, fsys vfs.FS, dir string) {
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	fa, fb := open(t, fsys, a, vfs.Write|vfs.Create), open(t, fsys, b, vfs.Write|vfs.Create)
	idA, err := fa.ID()
	require.NoError(t, err)
	idB, err := fb.ID()
	require.NoError(t, err)
	require.NotEqual(t, idA, idB)
	require.NoError(t, fsys.Rename(a, b))
	info, err := fsys.Stat(b)
	require.NoError(t, err)
	require.Equal(t, idA, info.ID)
	again, err := open(t, fsys, b, 0).ID()
	require.NoError(t, err)
	require.Equal(t, idA, again)
}
