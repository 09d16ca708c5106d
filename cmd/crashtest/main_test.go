package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary be the child that kill starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "kill-child" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// try runs the command as a user does.
func try(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(args, &out, &errs)
	return status, out.String(), errs.String()
}

func TestUsageNamesEveryMode(t *testing.T) {
	status, _, text := try("-h")
	require.Equal(t, 2, status)
	for _, m := range modes {
		if m.name == "kill-child" {
			continue
		}
		require.Contains(t, text, "\n  "+m.name+" ")
		status, _, help := try(m.name, "-h")
		require.Zero(t, status)
		require.NotEmpty(t, help)
	}
	status, _, text = try("dance")
	require.Equal(t, 2, status)
	require.Contains(t, text, "dance")
}

func TestEnumerateReportsAsJSON(t *testing.T) {
	status, out, text := try("enumerate", "-seed", "4", "-budget", "6s", "-profiles", "kill,none", "-depth", "1", "-len", "1", "-json", "-workers", "1")
	require.Zero(t, status, text)
	var report struct {
		Seed     uint64         `json:"seed"`
		Distinct int            `json:"images_distinct"`
		Profiles map[string]int `json:"per_profile"`
		Failures []string       `json:"failures"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.EqualValues(t, 4, report.Seed)
	require.NotZero(t, report.Distinct)
	require.NotEmpty(t, report.Profiles)
	require.Equal(t, []string{}, report.Failures)
}

func TestEnumerateFailsWithTooFewImages(t *testing.T) {
	status, _, text := try("enumerate", "-budget", "10ms", "-min", "1000000")
	require.Equal(t, 1, status)
	require.Contains(t, text, "want at least 1000000")
	status, _, _ = try("enumerate", "-profiles", "kill,maim")
	require.Equal(t, 1, status)
}

func TestReplayTellsWhatIsWrong(t *testing.T) {
	status, out, _ := try("replay", "one put.0 | 17 kill all")
	require.Zero(t, status)
	require.Equal(t, "survived\n", out)
	status, _, text := try("replay", "one put.0 | ignore wal.(*Log).write#2 | 25 none keep=")
	require.Equal(t, 1, status)
	require.Contains(t, text, "commit")
	for _, line := range []string{"", "one put.0 | 99999 none keep=", "nonsense"} {
		status, _, _ = try("replay", line)
		require.Equal(t, 1, status, line)
	}
}

func TestFaultsAndSyncgateRunShort(t *testing.T) {
	for _, args := range [][]string{{"faults", "-budget", "300ms", "-json"}, {"fsyncgate", "-budget", "300ms", "-json"}} {
		status, out, text := try(args...)
		require.Zero(t, status, text)
		require.True(t, strings.HasPrefix(out, "{"), out)
	}
}

func TestKilledProcessesLoseNothing(t *testing.T) {
	status, out, text := try("kill", "-n", "5", "-seed", "3", "-json", "-dir", t.TempDir())
	require.Zero(t, status, text)
	var r killReport
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, 5, r.Kills)
	require.NotZero(t, r.Commits)
	require.Empty(t, r.Failures)
	status, _, _ = try("kill", "-n", "0")
	require.NotZero(t, status)
}
