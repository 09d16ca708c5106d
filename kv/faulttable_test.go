package kv_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	faultRow  = regexp.MustCompile(`^\| F(\d+) \|`)
	namedTest = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`")
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)
)

// TestEveryFaultHasItsTest reads the table of docs/testing.md: each fault has one row with at least
// one test, and each test that a row names is there.
func TestEveryFaultHasItsTest(t *testing.T) {
	text, err := os.ReadFile("../docs/testing.md")
	require.NoError(t, err)
	there := testsOf(t, "..")
	last, model := 0, 0
	for line := range strings.Lines(string(text)) {
		row := faultRow.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		number, err := strconv.Atoi(row[1])
		require.NoError(t, err)
		require.Greater(t, number, last, "faults are in order, one row each")
		if last = number; number <= 34 {
			model++
		}
		names := namedTest.FindAllStringSubmatch(line, -1)
		require.NotEmpty(t, names, "F%s has no test", row[1])
		for _, name := range names {
			require.True(t, there[name[1]], "F%s names %s, which is no test", row[1], name[1])
		}
	}
	require.Equal(t, 34, model, "faults from F1 to F34; later ones have a row once they have a test")
}

// testsOf lists the tests and fuzz targets in all source files below a directory.
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		src, err := os.ReadFile(name)
		for _, f := range testFunc.FindAllSubmatch(src, -1) {
			all[string(f[1])] = true
		}
		return err
	}))
	return all
}
