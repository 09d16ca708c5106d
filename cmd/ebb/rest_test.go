package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKeysThatAreNoFileNamesGoOutAndComeBack: export left them out, and nothing else kept them.
func TestKeysThatAreNoFileNamesGoOutAndComeBack(t *testing.T) {
	s := newTimedStore(t)
	for _, key := range []string{
		"a", "a/below", "/absolute", "../up", ".", "x//y", strings.Repeat("n", 300), "plain/file",
	} {
		s.good("put", key, "value of "+key)
	}
	s.good("put", "--hex", "ff00", "binary")
	s.good("put", "../timed", "v", "--ttl", "1h")
	s.good("family", "default", "--default-ttl", "3h")
	dir := t.TempDir()
	out, rest, expiries := filepath.Join(dir, "out"), filepath.Join(dir, "rest"), filepath.Join(dir,
		"expiries")
	a := s.ebb("export", out)
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "../up")

	printed := s.good("export", out, "--overwrite", "--rest", rest, "--expiries", expiries)
	require.Contains(t, printed, "8 rows whose keys are no file names, in "+rest)
	c := newTimedStore(t)
	printed = c.good("import", out, "--rest", rest, "--expiries", expiries)
	require.Contains(t, printed, "stored 8 rows of --rest")
	require.Equal(t, s.good("dump", "--json"), c.good("dump", "--json"))
	c.good("import", out, "--rest", rest, "--expiries", expiries, "--resume")
	require.Equal(t, s.good("dump", "--json"), c.good("dump", "--json"))

	c = newTimedStore(t)
	c.good("import", out, "--rest", rest, "--family", "other")
	require.Equal(t, "binary", c.good("get", "--family", "other", "--hex", "ff00"))

	require.Equal(t, exitError, s.ebb("export", out, "--overwrite", "--rest",
		filepath.Join(out, "rest")).code)
	require.Equal(t, exitError, s.ebb("export", out, "--rest", rest).code, "the file is there")
	require.Equal(t, exitError, c.ebb("import", out, "--rest", rest+"-absent").code)
}
