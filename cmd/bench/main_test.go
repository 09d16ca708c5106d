package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cmd/bench/engine"
	"github.com/ebbkv/ebb/cmd/bench/workload"
	"github.com/ebbkv/ebb/internal/memgroup"
)

// tinyRows is enough for trees of two levels and for batches, and few enough for a test.
const tinyRows = 1000

// TestMain lets the test program be the child that the benchmark starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childCommand {
		os.Exit(child(os.Args[2], os.Stdout))
	}
	os.Exit(m.Run())
}

func allEngines(t *testing.T) []engine.Engine {
	t.Helper()
	list := ""
	if testing.Short() {
		list = "ebb,bbolt,bbolt-dual"
	}
	all, err := engine.Select(list)
	require.NoError(t, err)
	return all
}

// TestEveryEngineOnEveryWorkload runs the whole benchmark on few rows, in processes of their own as
// always. Every workload checks what the engine answered.
func TestEveryEngineOnEveryWorkload(t *testing.T) {
	for _, w := range workload.All() {
		if w.Memory > 0 && !strings.HasPrefix(w.Name, "memory-256-half") {
			continue // The others differ in sizes alone, and take a third of the test.
		}
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel() // Half of the time goes into waiting for the disk.
			if w.Memory > 0 {
				g, err := memgroup.New(w.Memory)
				if errors.Is(err, memgroup.ErrUnsupported) {
					t.Skip(err)
				}
				require.NoError(t, err)
				require.NoError(t, g.Close())
			}
			b := bench{
				engines: allEngines(t),
				chosen:  []workload.Workload{w},
				n:       tinyRows,
				rounds:  1,
				dir:     t.TempDir(),
				log:     io.Discard,
			}
			results, err := b.all(t.Context())
			require.NoError(t, err)
			require.Len(t, results, len(b.entrants(&w)))
			require.Contains(t, b.entrants(&w), "ebb")
			for _, r := range results {
				require.Empty(t, r.Failure, r.Engine)
				require.Equal(t, w.Name, r.Workload)
				require.Positive(t, r.Value, r.Engine)
				require.Positive(t, r.Seconds, r.Engine)
			}
			left, err := os.ReadDir(b.dir)
			require.NoError(t, err)
			require.Empty(t, left, "directories left behind")
		})
	}
}

// TestRunWritesWhatItWasAskedFor goes through the flags: table, JSON, page, profile.
func TestRunWritesWhatItWasAskedFor(t *testing.T) {
	dir := t.TempDir()
	json, html, profile := filepath.Join(dir, "r.json"), filepath.Join(dir,
		"r.html"), filepath.Join(dir, "cpu")
	var stdout, stderr bytes.Buffer
	err := run(
		t.Context(),
		[]string{"-n", "1000,2000", "-rounds", "2", "-engines", "ebb,bbolt", "-workloads", "get,scan-p*",
			"-dir", dir,
			"-json", json, "-html", html, "-cpuprofile", profile},
		&stdout,
		&stderr,
	)
	require.NoError(t, err, stderr.String())
	for _, want := range []string{
		"1000 rows", "2000 rows", "median of 2", "get, /s", "scan-prefix, /s", "bbolt", "times the best peer",
	} {
		require.Contains(t, stdout.String(), want)
	}
	require.Contains(t, stderr.String(), "12/12 scan-prefix, 2000 rows")
	for _, name := range []string{json, html, profile + ".ebb.get.1"} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Positive(t, info.Size(), name)
	}
}

func TestRunRefusesWhatItCannotDo(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
		code int
	}{
		{"unknown engine", []string{"-engines", "nosuch"}, `no engine "nosuch"`, 2},
		{"unknown workload", []string{"-workloads", "nosuch"}, `no workload "nosuch"; see -list`, 2},
		{"too few rows", []string{"-n", "10"}, "-n must be", 2},
		{"rows that are no number", []string{"-n", "1000,many"}, "-n must be", 2},
		{"an argument", []string{"get"}, `what is "get"`, 2},
		{"unknown flag", []string{"-frob"}, "not defined: -frob", 2},
		{"a directory that is not there", []string{"-dir", filepath.Join(t.TempDir(), "none")},
			"no such file", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said bytes.Buffer
			require.Equal(t, c.code, status(run(t.Context(), c.args, io.Discard, io.Discard), &said))
			require.Contains(t, said.String(), c.want)
		})
	}
}

// TestOutputsAreTriedBeforeAnythingIsMeasured: a file that cannot be written used to be found out
// when all was measured, and the results were lost.
func TestOutputsAreTriedBeforeAnythingIsMeasured(t *testing.T) {
	for _, flag := range []string{"-json", "-html", "-cpuprofile"} {
		t.Run(flag, func(t *testing.T) {
			dir := t.TempDir()
			var stdout, log bytes.Buffer
			err := run(
				t.Context(),
				[]string{"-n", "1000", "-rounds", "1", "-engines", "ebb", "-workloads", "get", "-dir", dir,
					flag, filepath.Join(dir, "none", "out")},
				&stdout,
				&log,
			)
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.Empty(t, log.String())
			require.Empty(t, stdout.String())
		})
	}
	require.Error(t, writable(t.TempDir()))
}

// TestOutputsStayAsTheyAreUntilThereAreResults: where nothing is measured, no empty file is left,
// and no older one is lost.
func TestOutputsStayAsTheyAreUntilThereAreResults(t *testing.T) {
	dir := t.TempDir()
	json := filepath.Join(dir, "old.json")
	require.NoError(t, os.WriteFile(json, []byte("old"), 0o600))
	for _, wrong := range [][]string{{"-n", "1"}, {"-engines", "nosuch"},
		{"-html", filepath.Join(dir, "none", "out")}, {"-dir", filepath.Join(dir, "none")}} {
		args := append(
			[]string{"-json", json, "-html", filepath.Join(dir, "new.html"), "-cpuprofile",
				filepath.Join(dir, "cpu")},
			wrong...)
		require.Error(t, run(t.Context(), args, io.Discard, io.Discard))
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, left, 1, "%v", wrong)
		content, err := os.ReadFile(json)
		require.NoError(t, err)
		require.Equal(t, "old", string(content))
	}
}

func TestHelpIsNoFailure(t *testing.T) {
	var help, said bytes.Buffer
	require.Zero(t, status(run(t.Context(), []string{"-h"}, &help, io.Discard), &said))
	require.Contains(t, help.String(), "-workloads")
	require.Empty(t, said.String())
}

// TestAFailureFailsItsRow: an engine that cannot do its job is reported, and the others are
// measured.
func TestAFailureFailsItsRow(t *testing.T) {
	broken := engine.Engine{Name: "nosuch"} // The child does not know it.
	ebb, err := engine.ByName("ebb")
	require.NoError(t, err)
	chosen, err := workload.Select("get")
	require.NoError(t, err)
	b := bench{
		engines: []engine.Engine{broken, ebb},
		chosen:  chosen,
		n:       tinyRows,
		rounds:  1,
		dir:     t.TempDir(),
		log:     io.Discard,
	}
	results, err := b.all(t.Context())
	require.NoError(t, err)
	require.Len(t, results, 3)
	require.Contains(t, results[0].Failure, `no engine "nosuch"`)
	require.Empty(t, results[1].Failure)
}

// cancelAfter ends a context with the n-th line that is written to it.
type cancelAfter struct {
	n      int
	cancel func()
}

func (c *cancelAfter) Write(b []byte) (int, error) {
	if c.n--; c.n == 0 {
		c.cancel()
	}
	return len(b), nil
}

func TestAnInterruptKeepsWhatWasMeasured(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout bytes.Buffer
	dir := t.TempDir()
	err := run(
		ctx,
		[]string{"-n", "2000", "-engines", "ebb,bbolt", "-workloads", "get,scan", "-dir", dir},
		&stdout,
		&cancelAfter{3, cancel},
	)
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, stdout.String(), "get, /s")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestListNamesEverything(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-list"}, &out, io.Discard))
	for _, w := range workload.All() {
		require.Contains(t, out.String(), w.Name)
		require.Contains(t, out.String(), w.About)
	}
	for _, name := range engine.Names() {
		require.Contains(t, out.String(), name)
	}
}
