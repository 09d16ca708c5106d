//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestASignalEndsTheCommandInOrder: what timeout and a machine that shuts down send killed the
// command where it was, and a bench-quick left its store behind.
func TestASignalEndsTheCommandInOrder(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			dir := t.TempDir()
			self, err := os.Executable()
			require.NoError(t, err)
			command := exec.CommandContext(t.Context(), self, "bench-quick", "--dir", dir, "--each",
				"1h", "--json")
			command.Env = append(os.Environ(), asCommand+"=1")
			var stderr bytes.Buffer
			command.Stderr = &stderr
			require.NoError(t, command.Start())
			require.Eventually(t, func() bool {
				entries, err := os.ReadDir(dir)
				return err == nil && len(entries) > 0
			}, time.Minute, time.Millisecond)
			require.NoError(t, command.Process.Signal(signal))
			require.Error(t, command.Wait())
			require.Equal(t, exitError, command.ProcessState.ExitCode())
			require.Equal(t, "interrupted", object(t, stderr.String())["kind"])
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// TestAStoreIsCreatedWithItsPermissions: its files were 0644 under the usual umask, and no flag
// changed that.
func TestAStoreIsCreatedWithItsPermissions(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want os.FileMode
	}{
		{[]string{"put", "STORE", "k", "v"}, 0o600},
		{[]string{"put", "STORE", "k", "v", "--file-mode", "0640"}, 0o640},
		{[]string{"import", "STORE", dir, "--file-mode", "660"}, 0o660},
		{[]string{"family", "STORE", "a", "--create", "--file-mode", "0600"}, 0o600},
	} {
		s := storePath(t)
		c.args[1] = s
		defer syscall.Umask(syscall.Umask(0))
		good(t, c.args...)
		info, err := os.Stat(s)
		require.NoError(t, err)
		require.Equal(t, c.want, info.Mode().Perm(), "%q", c.args)
	}
}
