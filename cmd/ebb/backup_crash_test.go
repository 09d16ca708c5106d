package main

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestBackupFileAfterACrash: the name stands for the whole content or for nothing, and once close has
// returned nil for the whole content.
func TestBackupFileAfterACrash(t *testing.T) {
	const name, size, chunk = "/sunday.bak", 40_000, 10_000
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i * 7)
	}
	disk := crashfs.New(crashfs.Options{})
	f, err := newBackupFile(disk, name)
	require.NoError(t, err)
	for at := 0; at < size; at += chunk {
		_, err := f.Write(content[at : at+chunk])
		require.NoError(t, err)
	}
	require.NoError(t, f.close(nil))
	returned := disk.Len()
	o := crashfs.ImageOptions{Profiles: crashfs.AllProfiles, Expects: func(point int) uint64 {
		if point >= returned { // An image without the file is wrong from then on.
			return 1
		}
		return 0
	}}
	absent, whole := 0, 0
	for im := range disk.Images(o) {
		d := im.Disk(crashfs.Options{Untraced: true})
		if _, err := d.Stat(name); errors.Is(err, fs.ErrNotExist) {
			require.Less(t, im.Point, returned, im.Desc())
			absent++
			continue
		}
		g, err := d.Open(name, 0)
		require.NoError(t, err)
		n, err := g.Size()
		require.NoError(t, err)
		require.EqualValues(t, size, n, "%d %s", im.Point, im.Desc())
		got := make([]byte, size)
		_, err = g.ReadAt(got, 0)
		require.NoError(t, err)
		require.Equal(t, content, got, "%d %s", im.Point, im.Desc())
		require.NoError(t, g.Close())
		whole++
	}
	require.Positive(t, absent)
	require.Positive(t, whole)
	_, err = newBackupFile(disk, name)
	require.ErrorIs(t, err, fs.ErrExist)
}

// TestBackupFileThatFailsLeavesNothing, at whichever operation.
func TestBackupFileThatFailsLeavesNothing(t *testing.T) {
	for n := 0; ; n++ {
		disk := crashfs.New(crashfs.Options{Untraced: true})
		f, err := newBackupFile(disk, "/a.bak")
		require.NoError(t, err)
		in := disk.Inject(crashfs.Fault{Kinds: crashfs.KindWrite | crashfs.KindSyncs |
			crashfs.KindRename, N: n})
		_, err = f.Write([]byte("content"))
		err = f.close(err)
		if in.Fired() == 0 {
			require.NoError(t, err)
			return
		}
		require.Error(t, err)
		in.Disarm()
		names, err := vfs.FS(disk).List("/")
		require.NoError(t, err)
		require.NotContains(t, names, "a.bak"+partSuffix)
	}
}
