package crashfs_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
)

// TestKillTearsAMappedWrite: its bytes may be there in any part when the process is killed, are
// there once it has returned, and are as pending as those of other writes.
func TestKillTearsAMappedWrite(t *testing.T) {
	d := crashfs.New(crashfs.Options{})
	f := create(t, d, "a", 0)
	put(t, f, "aaaaaa", 0)
	require.NoError(t, f.Sync())
	require.NoError(t, d.SyncDir("."))
	begun := d.Len()
	require.NoError(t, f.WriteMapped([]byte("bbbb"), 1))
	var kill, cut []string
	for im := range d.Images(crashfs.ImageOptions{Profiles: crashfs.Kill, From: begun}) {
		kill = append(kill, string(im.Files()["a"]))
	}
	require.Equal(t, []string{"aaaaaa", "aaabba", "abbbba"}, kill)
	for im := range d.Images(crashfs.ImageOptions{Profiles: crashfs.None, From: begun}) {
		cut = append(cut, show(im.Files()))
	}
	require.NotContains(t, cut, "a:aba")
	require.NoError(t, f.SyncData())
	require.Equal(t, []string{"a:aba"}, images(d, crashfs.None))
}
