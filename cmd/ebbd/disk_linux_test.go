package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
)

// TestFullDisk: a real file system is filled beside a server. A new store is refused; a running server
// refuses what needs space and nothing else; after a kill it starts without any, with every
// acknowledged write.
func TestFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("only root may mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	ballast := filepath.Join(disk, "ballast")
	fill := func() {
		file, err := os.Create(ballast)
		require.NoError(t, err)
		_, err = io.Copy(file, strings.NewReader(strings.Repeat("x", 8<<20)))
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.NoError(t, file.Close())
	}
	fill()
	dir := filepath.Join(disk, "data")
	var stderr bytes.Buffer
	require.Equal(t, 1, run(t.Context(), []string{"--dir", dir, "--addr", "127.0.0.1:0"}, io.Discard,
		&stderr))
	require.Contains(t, stderr.String(), "no space left on device")
	require.NoError(t, os.Remove(ballast))

	p := startProcess(t, "--dir", dir)
	c := p.dial(t)
	do := func(command string, args ...any) any {
		reply, err := c.Do(command, args...)
		require.NoError(t, err, command)
		return reply
	}
	do("MSET", "a", "1", "b", "2")
	fill()
	_, err := c.Do("SET", "large", strings.Repeat("x", 5<<20))
	require.ErrorContains(t, err, "OOM")
	require.EqualValues(t, 1, do("DEL", "a"))
	require.Equal(t, []byte("2"), do("GET", "b"))
	require.NoError(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
	p = startProcess(t, "--dir", dir)
	c = p.dial(t)
	keys, err := redis.Strings(c.Do("KEYS", "*"))
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, keys)
	require.NoError(t, os.Remove(ballast))
	do("SET", "large", strings.Repeat("x", 1<<20))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	<-p.read
	require.NoError(t, p.cmd.Wait(), "exit code")
}
