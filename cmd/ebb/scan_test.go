package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScanBounds(t *testing.T) {
	s := storePath(t)
	for _, k := range []string{"a", "ab", "abc", "b", "c"} {
		good(t, "put", s, k, "="+k)
	}
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{nil, "a ab abc b c"},
		{[]string{"--prefix", "ab"}, "ab abc"},
		{[]string{"--from", "ab", "--to", "c"}, "ab abc b"},
		{[]string{"--reverse", "--limit", "2"}, "c b"},
		{[]string{"--prefix", "a", "--from", "ab", "--reverse"}, "abc ab"},
		{[]string{"--prefix", "x"}, ""},
	} {
		out := good(t, append([]string{"scan", s, "--keys-only"}, c.flags...)...)
		require.Equal(t, c.want, strings.Join(strings.Fields(out), " "), "%q", c.flags)
	}
	require.Equal(t, "b\t=b\n", good(t, "scan", s, "--prefix", "b"))
	good(t, "put", s, "j", `{"text": "a \ and é"}`)
	require.Equal(t, "j\t"+`{"text": "a \ and é"}`+"\n", good(t, "scan", s, "--prefix", "j"))
	good(t, "put", s, "q", `"quoted"`)
	require.Equal(t, "q\t"+`"\"quoted\""`+"\n", good(t, "scan", s, "--prefix", "q"))
	require.Equal(t, exitError, ebb(t, "scan", s, "--limit", "-1").code)
}

func TestBinaryKeysInEachEncoding(t *testing.T) {
	s := storePath(t)
	good(t, "put", s, "--hex", "00ff0a", "v")
	require.Equal(t, "v", good(t, "get", s, "--base64", "AP8K"))
	require.Equal(t, "\"\\x00\\xff\\n\"\tv\n", good(t, "scan", s))
	require.Equal(t, "00ff0a\t76\n", good(t, "scan", s, "--hex"))
	require.Equal(t, "AP8K\tdg==\n", good(t, "scan", s, "--base64"))
	require.Equal(t, map[string]any{"key_base64": "AP8K", "value": "v"},
		object(t, good(t, "scan", s, "--json")))
	require.Equal(
		t,
		map[string]any{"key_hex": "00ff0a", "value_hex": "76"},
		object(t, good(t, "scan", s, "--json", "--hex")),
	)
	good(t, "del", s, "--base64", "AP8K")
	require.Empty(t, good(t, "scan", s))
}

func TestDumpPrintsAllFamilies(t *testing.T) {
	s := storePath(t)
	good(t, "put", s, "k", "v")
	good(t, "put", s, "p", "w", "--family", "photos")
	require.Equal(t, "family default: 1 row\nk\tv\nfamily photos: 1 row\np\tw\n", good(t, "dump", s))
	lines := strings.Split(strings.TrimSpace(good(t, "dump", s, "--json")), "\n")
	require.Len(t, lines, 2)
	require.Equal(t, map[string]any{"family": "default", "key": "k", "value": "v"}, object(t, lines[0]))
	require.Equal(t, map[string]any{"family": "photos", "key": "p", "value": "w"}, object(t, lines[1]))
}

// TestDumpPrintsTheFamilyThatIsNamed: --family was ignored, and all of them were printed.
func TestDumpPrintsTheFamilyThatIsNamed(t *testing.T) {
	s := storePath(t)
	good(t, "put", s, "k", "v")
	good(t, "put", s, "p", "w", "--family", "photos")
	require.Equal(t, "family photos: 1 row\np\tw\n", good(t, "dump", s, "--family", "photos"))
	require.Equal(t, "family default: 1 row\nk\tv\n", good(t, "dump", s, "--family", "default"))
	require.Equal(
		t,
		map[string]any{"family": "photos", "key": "p", "value": "w"},
		object(t, good(t, "dump", s, "--family", "photos", "--json")),
	)
	for _, flags := range [][]string{nil, {"--json"}} {
		a := ebb(t, append(flags, "dump", s, "--family", "absent")...)
		require.Equal(t, exitNotFound, a.code)
		require.Empty(t, a.out)
	}
}

// TestAFamilyIsNotNamedInVain: commands that do not work on one family answered as if --family had not
// been given.
func TestAFamilyIsNotNamedInVain(t *testing.T) {
	s := storePath(t)
	good(t, "put", s, "p", "w", "--family", "photos")
	for _, args := range [][]string{{"family", s}, {"stats", s}, {"check", s}, {"pages", s},
		{"wal", s}, {"bench-quick"}, {"version"}} {
		a := ebb(t, append(args, "--family", "photos", "--json")...)
		require.Equal(t, exitError, a.code, "%q", args)
		require.Equal(t, "usage", object(t, a.stderr)["kind"], "%q", args)
		require.Empty(t, a.out)
	}
}
