package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/leak"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/kv"
)

// TestMain lets the test binary be the command: kill and loopfs start it as their child, and a test
// interrupts it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.ContainsFunc(modes, func(m mode) bool { return m.name == os.Args[1] }) {
		main()
	}
	leak.Main(m)
}

// try runs the command as a user does.
func try(args ...string) (status int, stdout, stderr string) {
	return tryUntil(context.Background(), args...)
}

// tryUntil is try with an interrupt when ctx ends.
func tryUntil(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(ctx, args, &out, &errs)
	return status, out.String(), errs.String()
}

func TestUsageNamesEveryMode(t *testing.T) {
	status, text, errs := try("-h")
	require.Zero(t, status)
	require.Empty(t, errs)
	for _, help := range []string{"help", "-help", "--help"} {
		status, out, _ := try(help)
		require.Zero(t, status)
		require.Equal(t, text, out)
	}
	for _, m := range modes {
		if m.name == "kill-child" {
			continue
		}
		require.Contains(t, text, "\n  "+m.name+" ")
		status, help, errs := try(m.name, "-h")
		require.Zero(t, status)
		require.Empty(t, errs)
		require.Contains(t, help, "usage: crashtest "+m.name+" ")
	}
	_, help, _ := try("replay", "-h")
	require.Equal(t, "usage: crashtest replay 'LINE'\n", help)
	for _, wrong := range [][]string{{"dance"}, {}} {
		status, out, errs := try(wrong...)
		require.Equal(t, 2, status)
		require.Empty(t, out)
		require.Contains(t, errs, strings.Join(wrong, ""))
		require.Contains(t, errs, text)
	}
}

func TestEnumerateReportsAsJSON(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	status, out, text := try("enumerate", "-seed", "4", "-most",
		fmt.Sprint(racetest.Sample(400, 60)), "-profiles", "kill,none", "-depth", "1", "-len", "1",
		"-json", "-workers", "1")
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

func TestTooFewCasesFail(t *testing.T) {
	racetest.OneGoroutine(t)
	status, _, text := try("enumerate", "-budget", "10ms", "-min", "1000000")
	require.Equal(t, 1, status)
	require.Contains(t, text, "want at least 1000000")
	status, out, text := try("enumerate", "-most", "20", "-depth", "1", "-min", "20",
		"-min-recoveries", "1", "-workers", "1")
	require.Equal(t, 1, status)
	require.Empty(t, out)
	require.Contains(t, text, "20 distinct")
	require.Contains(t, text, "0 crashes within recoveries, want at least 1")
	if !testing.Short() {
		status, _, text = try("syncs", "-min", "1000")
		require.Equal(t, 1, status)
		require.Contains(t, text, "sites, want at least 1000")
	}
	for _, mode := range []string{"faults", "fsyncgate"} {
		status, _, text = try(mode, "-budget", "10ms", "-min", "1000000")
		require.Equal(t, 1, status)
		require.Contains(t, text, "runs with a fault, want at least 1000000")
	}
}

// TestEveryLongModeTicks: faults and fsyncgate used to say nothing until their end, which may be an
// hour away.
func TestEveryLongModeTicks(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	before := tickEvery
	tickEvery = 0
	defer func() { tickEvery = before }()
	for _, args := range [][]string{
		{"enumerate", "-most", fmt.Sprint(racetest.Sample(100, 60)), "-profiles", "none", "-depth", "1",
			"-workers", "1"},
		{"fsyncgate", "-budget", "0", "-most", "2", "-workers", "1"},
		{"bitflip", "-every", "9973", "-bits", "1", "-shapes", "tree", "-damage", "flip"},
		{"interleave", "-sample", "1"},
		{"history", "-n", "2", "-ops", "20"},
		{"faults", "-budget", "0", "-most", "2", "-workers", "1"},
	}[:racetest.Sample(6, 5)] {
		status, _, text := try(args...)
		require.Zero(t, status, text)
		tick, _, more := strings.Cut(text, "\n")
		require.True(t, more && tick != "", text)
		require.Greater(t, strings.Count(text, " failed\n")+strings.Count(text, " failures\n"), 1, text)
	}
}

// TestInterruptedModesReport: a mode that was interrupted reports what it has done, leaves no file
// behind, and is no success.
func TestInterruptedModesReport(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"enumerate", "-skip", "7"}, {"fsyncgate"}, {"faults"}, {"syncs"}, {"bitflip"}, {"interleave"},
		{"history"}, {"kill", "-dir", dir},
	} {
		status, out, text := tryUntil(ctx, append(args, "-json")...)
		require.Equal(t, 1, status, args)
		require.True(t, json.Valid([]byte(out)), out)
		require.Contains(t, text, "crashtest "+args[0]+": interrupted", args)
		if args[0] == "enumerate" {
			require.Contains(t, text, "-skip 7 ")
		}
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestReplayTellsWhatIsWrong(t *testing.T) {
	status, out, _ := try("replay", "one put.0 | 17 kill all")
	require.Zero(t, status)
	require.Equal(t, "survived\n", out)
	status, _, text := try("replay",
		"one relax.0 sync.0 relax.1 | ignore wal.(*syncer).writeGroup#1 | 33 none keep=")
	require.Equal(t, 1, status)
	require.Contains(t, text, "commit")
	for _, line := range []string{"", "one put.0 | 99999 none keep=", "nonsense"} {
		status, _, _ = try("replay", line)
		require.Equal(t, 1, status, line)
	}
}

func TestFaultsAndSyncgateRunShort(t *testing.T) {
	for _, mode := range []string{"faults", "fsyncgate"} {
		status, out, text := try(mode, "-budget", "0", "-most", "2", "-min", "2", "-json")
		require.Zero(t, status, text)
		require.True(t, strings.HasPrefix(out, "{"), out)
	}
}

func TestKilledProcessesLoseNothing(t *testing.T) {
	racetest.NotQuick(t)
	status, out, text := try("kill", "-n", "5", "-seed", "3", "-json", "-dir", t.TempDir())
	require.Zero(t, status, text)
	var r killReport
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, 5, r.Kills)
	require.NotZero(t, r.Commits)
	require.NotZero(t, r.Purges)
	require.NotZero(t, r.Expired)
	require.Empty(t, r.Failures)
	status, _, text = try("kill", "-n", "1", "-min", "1000000000", "-dir", t.TempDir())
	require.Equal(t, 1, status)
	require.Contains(t, text, "commits acknowledged, want at least 1000000000")
}

// TestKillModelJudgesExpiries holds stores that are wrong in one respect against the model of the
// parent.
func TestKillModelJudgesExpiries(t *testing.T) {
	early, late := killTime(10), killTime(100)
	rows := map[string]killRow{"early": {"v", early}, "late": {"v", late}, "ever": {value: "v"}}
	for name, c := range map[string]struct {
		stored         map[string]killRow
		latest, purged uint64
		wrong          string
		gone           int
	}{
		"all_stored": {stored: rows, latest: 5},
		"evicted": {stored: map[string]killRow{"late": rows["late"], "ever": rows["ever"]},
			latest: 10, gone: 1},
		"gone_too_soon": {stored: map[string]killRow{"late": rows["late"], "ever": rows["ever"]},
			latest: 9, wrong: `"early" is missing`},
		"permanent_gone": {stored: map[string]killRow{"early": rows["early"], "late": rows["late"]},
			latest: 99, wrong: `"ever" is missing`},
		"back_from_a_purge": {stored: rows, latest: 12, purged: 10, wrong: `"early" expired`},
		"expiry_lost": {stored: map[string]killRow{"early": rows["early"], "late": {value: "v"},
			"ever": rows["ever"]}, wrong: `"late" expires`},
		"expiry_from_nowhere": {stored: map[string]killRow{"early": rows["early"], "late": rows["late"],
			"ever": {"v", late}},
			wrong: `"ever" expires`},
	} {
		t.Run(name, func(t *testing.T) {
			db, err := kv.OpenMemory(&kv.Options{Clock: func() time.Time { return longAgo }})
			require.NoError(t, err)
			defer db.Close()
			for key, row := range c.stored {
				o := kv.PutOptions{ExpireAt: row.expiry}
				_, err := db.PutWith([]byte(key), []byte(row.value), o)
				require.NoError(t, err)
			}
			m := newKillModel(1)
			m.families["default"] = rows
			gone, err := m.compare(db, killTime(c.latest), killTime(c.purged))
			if c.wrong != "" {
				require.ErrorContains(t, err, c.wrong)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.gone, gone)
		})
	}
}
