package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/leak"
	"github.com/ebbkv/ebb/kv"
)

// objects decodes JSON lines.
func objects(t *testing.T, text string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(text) {
		all = append(all, object(t, line))
	}
	return all
}

// filledStore makes a store with small rows and one large value, and returns its path.
func filledStore(t *testing.T) string {
	t.Helper()
	s := storePath(t)
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 500 {
			if err := tx.Put(fmt.Appendf(nil, "key-%05d", i), fmt.Appendf(nil, "value %d", i)); err != nil {
				return err
			}
		}
		return tx.Put([]byte("large"), []byte(strings.Repeat("large value ", 2000)))
	}))
	require.NoError(t, db.Close())
	return s
}

// flip changes one byte of a file.
func flip(t *testing.T, file string, off int64) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, off)
	require.NoError(t, err)
	b[0] ^= 0x40
	_, err = f.WriteAt(b, off)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestCheckOfASoundStore(t *testing.T) {
	s := filledStore(t)
	require.Contains(t, good(t, "check", s), "no problems")
	require.Equal(
		t,
		map[string]any{"store": s, "ok": true, "problems": []any{}},
		object(t, good(t, "check", s, "--json")),
	)
}

// TestCheckTellsHowFarItIs: it read a store of any size without a word.
func TestCheckTellsHowFarItIs(t *testing.T) {
	s := storePath(t)
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	for i := range 20 {
		require.NoError(t, db.Put(fmt.Appendf(nil, "k%d", i), make([]byte, 1<<20)))
	}
	require.NoError(t, db.Close())
	t.Chdir(filepath.Dir(s))
	for _, path := range []string{s, filepath.Base(s)} {
		a := ebb(t, "check", path, "--progress=lines")
		require.Equal(t, exitOK, a.code)
		stats := object(t, good(t, "stats", s, "--json"))["stats"].(map[string]any)
		used := stats["file_bytes"].(float64) - stats["free_bytes"].(float64)
		steps := objects(t, a.stderr)
		require.GreaterOrEqual(t, len(steps), 20)
		last := 0.0
		for _, step := range steps {
			require.Equal(t, used, step["total"])
			require.Greater(t, step["done"], last)
			last = step["done"].(float64)
		}
		require.Equal(t, used, last)
		require.Greater(t, steps[len(steps)-2]["done"], used*9/10, "the rest is no leap")
	}
}

func TestPagesListsEveryPageOfASoundStore(t *testing.T) {
	s := filledStore(t)
	info, err := os.Stat(s)
	require.NoError(t, err)
	kinds, pages := map[string]int{}, 0.0
	for _, line := range objects(t, good(t, "pages", s, "--json")) {
		require.Equal(t, pages, line["pgid"], "pages are listed in order, without a gap")
		require.Equal(t, false, line["bad"])
		pages += line["pages"].(float64)
		if line["use"] == "used" {
			require.Equal(t, "ok", line["checksum"], "%v", line)
			kinds[line["kind"].(string)]++
		}
	}
	require.Equal(t, float64(info.Size()/4096), pages)
	require.NotZero(t, kinds["leaf"])
	require.NotZero(t, kinds["overflow"])
	require.Contains(t, good(t, "pages", s), "0 bad")
}

// TestDamageIsNamed flips a byte in each page in turn. Whatever page it is, check and pages end in
// an answer; where the page is in use, pages names it, and check finds the damage unless it is in
// the one meta page that is not needed.
func TestDamageIsNamed(t *testing.T) {
	s := filledStore(t)
	sound, err := os.ReadFile(s)
	require.NoError(t, err)
	for _, line := range objects(t, good(t, "pages", s, "--json")) {
		pgid := int64(line["pgid"].(float64))
		t.Run(fmt.Sprintf("%s_%d", line["kind"], pgid), func(t *testing.T) {
			damaged := filepath.Join(t.TempDir(), "damaged.ebb")
			require.NoError(t, os.WriteFile(damaged, sound, 0o666))
			flip(t, damaged, pgid*4096+1000)
			check, pages := ebb(t, "check", damaged, "--json"), ebb(t, "pages", damaged, "--bad", "--json")
			dump := ebb(t, "dump", damaged)
			require.Contains(t, []int{exitOK, exitError}, dump.code)
			if line["use"] != "used" {
				require.Equal(t, exitOK, check.code, check.out)
				require.Equal(t, exitOK, pages.code, pages.out)
				return
			}
			require.Equal(t, exitError, pages.code)
			require.Contains(t, pages.out, fmt.Sprintf(`"pgid":%d,`, pgid))
			if pgid < 2 {
				return
			}
			require.Equal(t, exitError, check.code)
			found := object(t, check.out)
			require.Equal(t, false, found["ok"])
			require.NotEmpty(t, found["problems"])
			require.Contains(t, ebb(t, "check", damaged).out, "problem")
		})
	}
}

// TestDumpPrintsAllRowsWhereOnlyTheirCountIsLost: the error of counting what is expired was
// ignored, but it had ended the transaction, and a store whose rows were all sound was dumped
// without one. Damage that JSON, which counts nothing, does not meet must not cost text a row
// either.
func TestDumpPrintsAllRowsWhereOnlyTheirCountIsLost(t *testing.T) {
	s := newTimedStore(t)
	s.fill("default", 100)
	sound, err := os.ReadFile(s.path)
	require.NoError(t, err)
	_, rows, _ := strings.Cut(s.good("dump"), "\n")
	lost := 0
	for _, line := range objects(t, s.good("pages", "--json")) {
		pgid := int64(line["pgid"].(float64))
		if line["kind"] != "leaf" || line["use"] != "used" {
			continue
		}
		require.NoError(t, os.WriteFile(s.path, sound, 0o666))
		flip(t, s.path, pgid*4096+1000)
		a := s.ebb("dump")
		if s.ebb("dump", "--json").code != exitOK || a.code == exitOK {
			continue
		}
		lost++
		require.Equal(t, exitError, a.code)
		require.Equal(t, "family default: 101 rows, expired ones included\n"+rows, a.out)
		require.Contains(t, a.stderr, fmt.Sprintf("page %d", pgid))
	}
	require.NotZero(t, lost, "some page is only read to count")
}

func TestStoreThatCannotBeOpenedIsCheckedAllTheSame(t *testing.T) {
	s := filledStore(t)
	flip(t, s, 1000)
	flip(t, s, 4096+1000)
	a := ebb(t, "check", s)
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.out, "1 problem")
	require.Contains(t, a.out, ": offset 0: ", "the place of the first meta page")
	a = ebb(t, "get", s, "large")
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "cannot be opened")
	require.NotContains(t, a.stderr, "ebb dump", "it cannot open the store either")
	require.Equal(t, "corrupt", object(t, ebb(t, "get", s, "large", "--json").stderr)["kind"])
	a = ebb(t, "wal", s)
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "cannot be opened")
	a = ebb(t, "pages", s)
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "ebb pages STORE --page-size")
	require.NotContains(t, a.stderr, "ebb pages STORE`", "it has just refused that")
	a = ebb(t, "pages", s, "--page-size", "4096")
	require.Contains(t, a.out, "leaf")
	require.Equal(t, exitError, ebb(t, "pages", s, "--page-size", "5000").code)
}

// TestDamageBelowAStoreThatOpensIsAnotherMatter: what is sound there comes out with dump, and the hint
// says so.
func TestDamageBelowAStoreThatOpensIsAnotherMatter(t *testing.T) {
	s := filledStore(t)
	for _, line := range objects(t, good(t, "pages", s, "--json")) {
		if line["kind"] == "overflow" && line["use"] == "used" {
			flip(t, s, int64(line["pgid"].(float64))*4096+1000)
		}
	}
	a := ebb(t, "get", s, "large")
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "ebb salvage")
}

func TestWalOfACleanStoreIsEmpty(t *testing.T) {
	require.NotContains(t, good(t, "wal", filledStore(t)), "commit at")
}

// crashedStore gives a copy of the files of a store that is open: what a crash leaves after the puts.
func crashedStore(t *testing.T, s string, puts int, value []byte) (crashed string) {
	t.Helper()
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	for i := range puts {
		require.NoError(t, db.Put(fmt.Appendf(nil, "k%d", i), value))
	}
	crashed = filepath.Join(t.TempDir(), "test.ebb")
	left, err := filepath.Glob(s + "*")
	require.NoError(t, err)
	for _, name := range left {
		copyFile(t, name, filepath.Join(filepath.Dir(crashed), filepath.Base(name)))
	}
	require.NoError(t, db.Close())
	return crashed
}

// TestDamageOfTheLogIsNamedOnceAndWithAWayOn: it speaks against both meta pages, and what it says was
// printed twice. The hint on a store that cannot be opened named the pages, which are sound, and `ebb
// wal` gave one that only a store that opens can follow.
func TestDamageOfTheLogIsNamedOnceAndWithAWayOn(t *testing.T) {
	s := crashedStore(t, filledStore(t), 10, make([]byte, 100_000))
	require.NoError(t, os.Remove(s+"-wal-000002"))
	a := ebb(t, "check", s)
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.out, ": 1 problem\n")
	require.Equal(t, 1, strings.Count(a.out, "-wal-000002"), a.out)
	require.Equal(t, 1, strings.Count(ebb(t, "stats", s).stderr, "-wal-000002"))
	for _, command := range []string{"stats", "wal"} {
		a := ebb(t, command, s)
		require.Equal(t, exitError, a.code)
		require.Contains(t, a.stderr, "ebb wal")
		require.NotContains(t, a.stderr, "ebb dump")
	}
}

// TestCheckNamesAllThatKeepsAStoreFromBeingOpened: of several places only the first was printed.
func TestCheckNamesAllThatKeepsAStoreFromBeingOpened(t *testing.T) {
	s := filledStore(t)
	s = crashedStore(t, s, 10, make([]byte, 100_000))
	flip(t, s, 1000) // one of the meta pages: the other one is what is left, and needs the log
	require.NoError(t, os.Remove(s+"-wal-000002"))
	m := object(t, ebb(t, "check", s, "--json").out)
	require.Len(t, m["problems"], 2)
	require.Contains(t, ebb(t, "check", s).out, "meta page is not valid")
}

// TestWalListsTheCommitsAfterACrash looks at the log that replay would read.
func TestWalListsTheCommitsAfterACrash(t *testing.T) {
	crashed := crashedStore(t, storePath(t), 3, []byte("v"))
	commits := 0
	for _, line := range objects(t, good(t, "wal", crashed, "--json")) {
		if line["type"] == "commit" {
			commits++
		}
	}
	require.GreaterOrEqual(t, commits, 3)
	require.Contains(t, good(t, "wal", crashed), fmt.Sprintf("%d commits", commits))
	recovery := object(t, good(t, "stats", crashed, "--json"))["recovery"].(map[string]any)
	require.Equal(t, float64(commits), recovery["commits_replayed"])
	require.Equal(t, "k0\tv\nk1\tv\nk2\tv\n", good(t, "scan", crashed))
	good(t, "check", crashed)
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	require.NoError(t, err)
	defer in.Close()
	out, err := os.Create(to)
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Close())
}

// asCommand makes the test binary behave as the command: the demo starts its own executable again.
const asCommand = "EBB_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	leak.Main(m)
}

func TestDemoSurvivesTheKill(t *testing.T) {
	t.Setenv(asCommand, "1")
	src := t.TempDir()
	for i := range 300 {
		writeFile(t, filepath.Join(src, fmt.Sprintf("f%03d", i)), strings.Repeat(fmt.Sprint(i), 1000))
	}
	s := storePath(t)
	m := object(t, good(t, "demo", s, src, "--batch-bytes", "4000", "--json"))
	require.Equal(t, true, m["ok"])
	require.Equal(t, 300.0, m["files"])
	require.Less(t, m["recovered_files"], 300.0)
	require.GreaterOrEqual(t, m["killed_at_bytes"], m["bytes"].(float64)/2)
	require.Equal(t, exitError, ebb(t, "demo", s, src).code, "a store that exists is not touched")
}

// TestDemoSaysWhyItCannotBegin: it spoke as import, and said of a directory that it must not read that it
// holds no files.
func TestDemoSaysWhyItCannotBegin(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "file"), "v")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o777))
	for name, want := range map[string]string{
		"absent": "", "file": "is not a directory", "empty": "holds no files",
	} {
		a := ebb(t, "demo", filepath.Join(dir, "store"), filepath.Join(dir, name))
		require.Equal(t, exitError, a.code)
		require.Regexp(t, "^ebb: demo: .*"+want, a.stderr)
	}
}

func TestProgressLinesAreJSON(t *testing.T) {
	var lines strings.Builder
	a := &app{progress: progressLines, stderr: &lines}
	p := a.newProgress("x", 10, true)
	p.add(4)
	p.add(6)
	p.end()
	in := bufio.NewScanner(strings.NewReader(lines.String()))
	require.True(t, in.Scan())
	var s step
	require.NoError(t, json.Unmarshal(in.Bytes(), &s))
	require.Equal(t, step{4, 10}, s)
}

func TestNoProgressUnlessOnATerminal(t *testing.T) {
	var out strings.Builder
	a := &app{progress: progressAuto, stderr: &out}
	p := a.newProgress("x", 10, true)
	p.add(10)
	p.end()
	require.Empty(t, out.String())
}
