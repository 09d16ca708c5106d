package vfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/platformtest"
	"github.com/ebbkv/ebb/internal/vfs"
)

func TestFollowLeadsToTheFileOfALink(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	in := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	require.NoError(t, os.MkdirAll(in("deep", "er"), 0o755))
	require.NoError(t, os.WriteFile(in("deep", "file"), nil, 0o644))
	for link, to := range map[string]string{
		in("absolute"):         in("deep", "file"),
		in("relative"):         filepath.Join("deep", "file"),
		in("second"):           "relative",
		in("dangling"):         filepath.Join("deep", "absent"),
		in("way"):              in("deep", "er"),
		in("deep", "er", "up"): filepath.Join("..", "file"),
		in("loop"):             "loop",
	} {
		platformtest.MayRefuse(t, os.Symlink(to, link), "windows")
	}
	for from, want := range map[string]string{
		in("deep", "file"): in("deep", "file"),
		in("absent"):       in("absent"),
		in("absolute"):     in("deep", "file"),
		in("relative"):     in("deep", "file"),
		in("second"):       in("deep", "file"),
		in("dangling"):     in("deep", "absent"),
		in("way", "up"):    in("deep", "file"),
		in("loop"):         in("loop"),
	} {
		require.Equal(t, want, filepath.Clean(vfs.Follow(from)), from)
	}
}
