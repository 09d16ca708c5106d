package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestGrowReservesBlocks where the system reserves them for this process.
func TestGrowReservesBlocks(t *testing.T) {
	dir := t.TempDir()
	asked, err := os.Create(filepath.Join(dir, "asked"))
	require.NoError(t, err)
	err = unix.Fallocate(int(asked.Fd()), 0, 0, 1<<20)
	require.NoError(t, asked.Close())
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("this file system reserves nothing")
	}
	require.NoError(t, err)

	f, err := OS.Open(filepath.Join(dir, "a"), Write|Create)
	require.NoError(t, err)
	require.NoError(t, f.Grow(1<<20))
	var st unix.Stat_t
	require.NoError(t, unix.Stat(f.(*osFile).f.Name(), &st))
	require.EqualValues(t, 1<<20, st.Size)
	require.GreaterOrEqual(t, st.Blocks*512, int64(1<<20))
	require.NoError(t, f.Close())
}
