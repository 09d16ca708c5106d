package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExportLeavesNoHalfOfAFile: the next export, and an import, would take it for the value.
func TestExportLeavesNoHalfOfAFile(t *testing.T) {
	s, dir := storePath(t), t.TempDir()
	value := filepath.Join(t.TempDir(), "value")
	writeFile(t, value, strings.Repeat("x", 5<<20))
	good(t, "put", s, "big", "@"+value)
	good(t, "put", s, "small", "x")
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	low := was
	low.Cur = 1 << 20
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &low))
	a := ebb(t, "export", s, dir)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "big")
	require.Equal(t, map[string]string{"small": "x"}, files(t, dir))
}

// TestExportEndsOnAFullDisk: it tried each of 200,000 files, and named each.
func TestExportEndsOnAFullDisk(t *testing.T) {
	s, dir := storePath(t), t.TempDir()
	value := filepath.Join(t.TempDir(), "value")
	writeFile(t, value, strings.Repeat("x", 300<<10))
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		good(t, "put", s, key, "@"+value)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("only root may mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	a := ebb(t, "export", s, dir)
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.out, "wrote 3 files")
	require.Regexp(t, "^not written: d: .*no space left on device; the export ends here\n$", a.stderr)
	require.Len(t, files(t, dir), 3)
}

// TestExportDoesNotWaitForAReader of a pipe that has the name of a file.
func TestExportDoesNotWaitForAReader(t *testing.T) {
	s, dir := storePath(t), t.TempDir()
	good(t, "put", s, "f", "x")
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "f"), 0o600))
	a := ebb(t, "export", s, dir, "--overwrite")
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "no regular file")
}
