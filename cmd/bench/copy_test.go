package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCopyDirCopiesEveryByte of files with and without holes, at the start, between, and at the
// end.
func TestCopyDirCopiesEveryByte(t *testing.T) {
	const block = 1 << 20
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.Mkdir(filepath.Join(from, "sub"), 0o700))
	for name, data := range map[string][]int64{
		"empty": nil, "start": {0}, "sub/between": {2 * block, 5 * block}, "all": {0, block, 2 * block,
			3 * block},
	} {
		f, err := os.Create(filepath.Join(from, name))
		require.NoError(t, err)
		if data != nil {
			require.NoError(t, f.Truncate(8*block))
		}
		for _, off := range data {
			_, err := f.WriteAt(bytes.Repeat([]byte{byte(off>>20) + 1}, block), off)
			require.NoError(t, err)
		}
		require.NoError(t, f.Close())
	}
	require.NoError(t, copyDir(to, from))
	for _, name := range []string{"empty", "start", "sub/between", "all"} {
		want, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(to, name))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), name)
	}
}
