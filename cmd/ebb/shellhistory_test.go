package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recall opens the history at path, adds lines, and returns all it has, the latest first.
func recall(t *testing.T, path string, add ...string) (all []string) {
	t.Helper()
	h, err := openHistory(path)
	require.NoError(t, err)
	defer h.close()
	for _, line := range add {
		h.Add(line)
	}
	for i := range h.Len() {
		all = append(all, h.At(i))
	}
	return all
}

func TestHistoryKeepsLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "ebb", "history")
	long := strings.Repeat("x", historyLine+1)
	recall(t, path, "scan", "scan ", "", " put token s3cret", "get a", "scan", long)
	require.Equal(t, []string{"scan", "get a", "scan"}, recall(t, path))
	if runtime.GOOS != "windows" {
		for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
			info, err := os.Stat(name)
			require.NoError(t, err)
			require.Equal(t, want, info.Mode().Perm(), "%s", name)
		}
	}
}

// TestHistoryIsBounded in its file and in a session.
func TestHistoryIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	var lines []string
	for i := range historyLines + 7 {
		lines = append(lines, fmt.Sprintf("get %d", i))
	}
	require.Len(t, recall(t, path, lines...), historyLines)
	recalled := recall(t, path)
	require.Len(t, recalled, historyLines)
	require.Equal(t, lines[len(lines)-1], recalled[0])
	require.Equal(t, lines[7], recalled[historyLines-1])
	stored, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, historyLines, strings.Count(string(stored), "\n"), "the file is cut when it is opened")
	beside, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, beside, 1)

	// A file that something else wrote is read from a line on that is whole.
	require.NoError(t, os.WriteFile(path, make([]byte, 2*historyLines*historyLine), 0o600))
	require.Empty(t, recall(t, path))
}

// TestTwoShellsShareAHistory: neither loses the lines of the other.
func TestTwoShellsShareAHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	a, err := openHistory(path)
	require.NoError(t, err)
	b, err := openHistory(path)
	require.NoError(t, err)
	a.Add("first")
	b.Add("second")
	a.Add("third")
	a.close()
	b.close()
	require.Equal(t, []string{"third", "second", "first"}, recall(t, path))
}

func TestWhereTheHistoryIs(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", home)
	t.Setenv("XDG_STATE_HOME", "")
	usual := filepath.Join(home, ".local", "state", "ebb", "history")
	t.Setenv(historyVariable, "") // puts it back in the end
	require.NoError(t, os.Unsetenv(historyVariable))
	require.Equal(t, usual, historyPath())
	t.Setenv("XDG_STATE_HOME", "relative")
	require.Equal(t, usual, historyPath())
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	require.Equal(t, filepath.Join(state, "ebb", "history"), historyPath())
	t.Setenv(historyVariable, "elsewhere")
	require.Equal(t, "elsewhere", historyPath())
	t.Setenv(historyVariable, "")
	require.Empty(t, historyPath())
	require.Equal(t, []string{"scan"}, recall(t, "", "scan"), "a history of the session")
}

// TestAShellWithoutAPlaceForItsHistoryHasOne of its session, and a warning.
func TestAShellWithoutAPlaceForItsHistoryHasOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	h, err := openHistory(filepath.Join(file, "history"))
	require.ErrorContains(t, err, "no history is kept")
	h.Add("scan")
	require.Equal(t, 1, h.Len())
	h.close()
}
