//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInterruptEndsARealProcess interrupts kill and its child in the middle of their work, as a
// terminal does: kill used to die at once, without a word, and left its stores behind. What timeout
// and a machine that shuts down send did that for longer.
func TestInterruptEndsARealProcess(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) { interruptRealProcess(t, signal) })
	}
}

func interruptRealProcess(t *testing.T, signal syscall.Signal) {
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.Command(self, "kill", "-n", "1000000", "-json", "-dir", dir)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	command.Stdout = &out
	pipe, err := command.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	defer func() {
		if command.ProcessState == nil {
			_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		}
	}()
	said := bufio.NewScanner(pipe)
	for first := true; said.Scan(); first = false {
		if first {
			require.NoError(t, syscall.Kill(-command.Process.Pid, signal))
		}
	}
	require.Error(t, command.Wait())
	require.Equal(t, 1, command.ProcessState.ExitCode())
	var r killReport
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	require.NotZero(t, r.Kills)
	require.Empty(t, r.Failures)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestInterruptOfAChildIsNoFailure: an interrupt that reaches the child or its parent first says
// nothing about the store.
func TestInterruptOfAChildIsNoFailure(t *testing.T) {
	end := func(ctx context.Context, script string, killed bool) error {
		child := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
		_ = child.Run()
		return new(killer).end(ctx, child.ProcessState, killed, "")
	}
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	require.ErrorIs(t, end(t.Context(), "kill -INT $$", false), context.Canceled)
	require.ErrorIs(t, end(t.Context(), "kill -TERM $$", false), context.Canceled)
	require.ErrorIs(t, end(interrupted, "kill -KILL $$", false), context.Canceled)
	require.ErrorIs(t, end(interrupted, "exit 1", false), context.Canceled)
	require.NoError(t, end(t.Context(), "kill -KILL $$", true))
	require.ErrorContains(t, end(t.Context(), "kill -KILL $$", false), "by itself")
	require.ErrorContains(t, end(t.Context(), "exit 1", true), "by itself")
}
