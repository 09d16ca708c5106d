package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

// TestDamageHidesOnlyTheRowsThatItHit: 300 files of 20,000 random bytes were imported and three
// bytes overwritten at a third of the store. `get` found 299 of the files; `dump` and `export` gave
// 99 and ended.
func TestDamageHidesOnlyTheRowsThatItHit(t *testing.T) {
	racetest.NotQuick(t)
	src, s := t.TempDir(), storePath(t)
	rnd := rand.New(rand.NewPCG(46, 7))
	for i := range 300 {
		b := make([]byte, 20_000)
		for j := range b {
			b[j] = byte(rnd.Uint32())
		}
		writeFile(t, filepath.Join(src, fmt.Sprintf("f%03d", i)), string(b))
	}
	good(t, "import", s, src)
	f, err := os.OpenFile(s, os.O_RDWR, 0)
	require.NoError(t, err)
	info, err := f.Stat()
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{0xff, 0xff, 0xff}, info.Size()/3)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	found, lost := 0, ""
	for i := range 300 {
		if name := fmt.Sprintf("f%03d", i); ebb(t, "get", s, name).code == exitOK {
			found++
		} else {
			lost = name
		}
	}
	require.Equal(t, 299, found)
	require.Equal(t, 300, strings.Count(good(t, "scan", s, "--keys-only"), "\n"))
	out := filepath.Join(t.TempDir(), "out")
	for _, args := range [][]string{{"dump", s}, {"scan", s}, {"scan", s, "--reverse"}, {"export", s, out}} {
		a := ebb(t, args...)
		require.Equal(t, exitError, a.code, "%q", args)
		require.Contains(t, a.stderr, "missing: family default: the value of "+lost+": ", "%q", args)
		require.Contains(
			t,
			a.stderr,
			"damage in 1 place; up to 1 row or value is missing, all others were read",
			"%q",
			args,
		)
		require.Contains(t, a.stderr, "page ", "%q", args)
		if args[0] != "export" {
			require.Equal(t, 299, strings.Count(a.out, "\t"), "%q: a value that is lost is none", args)
			require.Contains(t, a.out, lost+"\n")
		}
	}
	got, want := files(t, out), files(t, src)
	delete(want, lost)
	require.Equal(t, want, got)

	m := object(t, ebb(t, "export", s, filepath.Join(t.TempDir(), "out"), "--json").out)
	require.Equal(t, 299.0, m["files"])
	require.Len(t, m["missing"], 1)
	for _, command := range []string{"dump", "scan"} {
		a := ebb(t, command, s, "--json")
		require.Equal(t, exitError, a.code)
		require.Equal(t, "corrupt", object(t, a.stderr)["kind"])
		records := 0
		for _, line := range objects(t, a.out) {
			if place, ok := line["missing"].(map[string]any); ok {
				records++
				require.Equal(t, lost, place["key"])
				require.Equal(t, "value", place["what"])
				require.NotZero(t, place["page"])
				require.NotZero(t, place["offset"])
			}
			require.Equal(t, line["key"] == lost, line["value_missing"] == true)
		}
		require.Equal(t, 1, records)
	}
}

// TestEveryDamagedPageIsAccountedFor damages each page in turn: the rows that dump, scan and export
// give, and those that they say are missing, are what is stored.
func TestEveryDamagedPageIsAccountedFor(t *testing.T) {
	s := newTimedStore(t)
	s.fill("default", 300)
	s.good("put", "permanent", strings.Repeat("large", 2000))
	stored := map[string]string{}
	for _, line := range objects(t, s.good("scan", "--json")) {
		stored[line["key"].(string)] = line["value"].(string)
	}
	sound, err := os.ReadFile(s.path)
	require.NoError(t, err)
	hidden, catalogs := 0, 0
	for i, line := range objects(t, s.good("pages", "--json")) {
		if line["use"] != "used" || (i+1)%racetest.Sample(1, 3) != 0 {
			continue
		}
		require.NoError(t, os.WriteFile(s.path, sound, 0o666))
		flip(t, s.path, int64(line["pgid"].(float64))*4096+1000)
		if a := s.ebb("family"); a.code != exitOK && !strings.Contains(a.stderr, "cannot be opened") {
			a = s.ebb("dump")
			require.Equal(t, exitError, a.code)
			require.Contains(t, a.stderr, "missing: 1 family: ")
			require.Equal(t, "families", object(t,
				s.ebb("dump", "--json").out)["missing"].(map[string]any)["what"])
			catalogs++
			continue
		}
		for _, args := range [][]string{{"dump"}, {"scan"}, {"scan", "--reverse"},
			{"export", filepath.Join(t.TempDir(), "out")}} {
			a := s.ebb(args[0], append(args[1:], "--json")...)
			if strings.Contains(a.stderr, "cannot be opened") {
				continue
			}
			given, missing := accountOf(t, a.out, stored)
			if args[0] == "export" {
				m := object(t, a.out)
				given, missing = int(m["files"].(float64)), 0
				for _, place := range m["missing"].([]any) {
					missing += rowsOf(place.(map[string]any))
				}
			}
			require.Equal(t, len(stored), given+missing, "%q %v: %s", args, line, a.stderr)
			require.Equal(t, missing > 0, a.code == exitError, "%q: %s", args, a.stderr)
			hidden += missing
		}
		a := s.ebb("scan", "--expiring-before", "2050-01-01T00:00:00Z", "--json")
		if strings.Contains(a.stderr, "cannot be opened") {
			continue
		}
		given, missing := accountOf(t, a.out, nil)
		require.Equal(t, len(stored)-1, given+missing)
		require.Equal(t, missing > 0, a.code == exitError, a.stderr)
	}
	require.Greater(t, hidden, 300)
	require.NotZero(t, catalogs)
}

// accountOf counts the rows of JSON, which must be those that are stored, unless that is nil, and
// those said to be missing.
func accountOf(t *testing.T, out string, stored map[string]string) (given, missing int) {
	t.Helper()
	for line := range strings.Lines(out) {
		var row map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		if place, ok := row["missing"].(map[string]any); ok {
			missing += rowsOf(place)
			continue
		}
		if row["key"] == nil || row["value_missing"] == true {
			continue
		}
		if given++; stored != nil {
			require.Equal(t, stored[row["key"].(string)], row["value"])
		}
	}
	return given, missing
}

func rowsOf(place map[string]any) int {
	if place["what"] == "value" {
		return 1
	}
	return int(place["rows"].(float64))
}

// TestTheHintOnAStoreThatCannotBeOpenedLeadsToRows: it named `pages` and `wal`, which yield none.
func TestTheHintOnAStoreThatCannotBeOpenedLeadsToRows(t *testing.T) {
	s := filledStore(t)
	info, err := os.Stat(s)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(s, info.Size()/2))
	a := ebb(t, "get", s, "large")
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "ebb salvage STORE OUT")
	require.Contains(t, a.stderr, "ebb restore")
	require.NotContains(t, a.stderr, "ebb dump")
}
