//go:build !race

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

func TestProcessesWithoutMemoryLoseNothing(t *testing.T) {
	racetest.OneGoroutine(t)
	n := racetest.Sample(5, 2)
	status, out, text := try("kill", "-memory", "-n", fmt.Sprint(n), "-seed", "3", "-json", "-dir",
		t.TempDir())
	require.Zero(t, status, text)
	var r killReport
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, n, r.Kills)
	require.Equal(t, n, r.OutOfMemory+r.Refused)
	require.NotZero(t, r.Commits)
	require.Empty(t, r.Failures)
}

// TestOnlyWantOfMemoryPasses: a child that ends for another reason is a failure.
func TestOnlyWantOfMemoryPasses(t *testing.T) {
	end := func(status string) *os.ProcessState {
		child := exec.CommandContext(t.Context(), "/bin/sh", "-c", "exit "+status)
		if err := child.Run(); err != nil {
			var exit *exec.ExitError
			require.True(t, errors.As(err, &exit), "%v", err)
		}
		return child.ProcessState
	}
	for _, test := range []struct {
		status, said string
		ok           bool
	}{
		{"2", "fatal error: runtime: out of memory", true},
		{"2", "runtime: failed to create new OS thread (have 6 already; errno=11)", true},
		{"2", "runtime/cgo: pthread_create failed: Resource temporarily unavailable\nSIGABRT: abort", true},
		{"1", "kv: an earlier write failed: memory for page frames: cannot allocate memory", true},
		{"2", "panic: runtime error: index out of range", false},
		{"2", "panic: cannot allocate memory", false},
		{"1", "kv: corrupt file", false},
		{"0", "", false},
	} {
		r := new(killReport)
		err := r.starved(end(test.status), test.said)
		require.Equal(t, test.ok, err == nil, "%s: %v", test.said, err)
		if test.ok {
			require.Equal(t, 1, r.OutOfMemory+r.Refused)
		}
	}
}
