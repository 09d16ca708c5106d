package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/platformtest"
	"github.com/ebbkv/ebb/kv"
)

// files gives all regular files below dir.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	tree, err := listTree(dir, filepath.Join(dir, "no.ebb"))
	require.NoError(t, err)
	for _, f := range tree.files {
		b, err := os.ReadFile(tree.path(f))
		require.NoError(t, err)
		m[f.name] = string(b)
	}
	return m
}

func sampleTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i := range 40 {
		writeFile(t, filepath.Join(dir, fmt.Sprintf("d%d", i%3), fmt.Sprintf("f%d", i)),
			strings.Repeat("x", i*i*7))
	}
	writeFile(t, filepath.Join(dir, "big"), strings.Repeat("0123456789abcdef", 20_000))
	writeFile(t, filepath.Join(dir, "bytes"), "\x00\xff\r\n")
	return dir
}

func TestExportWritesBackWhatImportStored(t *testing.T) {
	src, dst, s := sampleTree(t), filepath.Join(t.TempDir(), "new", "dir"), storePath(t)
	out := good(t, "import", s, src, "--batch-bytes", "20000")
	require.Contains(t, out, "stored 42 files")
	m := object(t, good(t, "import", s, src, "--resume", "--json"))
	require.Equal(t, 42.0, m["equal"])
	require.Equal(t, 0.0, m["files"])
	require.Equal(t, []any{}, m["errors"])

	good(t, "export", s, dst)
	require.Equal(t, files(t, src), files(t, dst))
	good(t, "check", s)
}

func TestImportWorksInSeveralTransactionsAndReportsThem(t *testing.T) {
	src, s := sampleTree(t), storePath(t)
	a := ebb(t, "import", s, src, "--batch-bytes", "20000", "--json", "--progress=lines")
	require.Equal(t, exitOK, a.code, a.stderr)
	lines := strings.Split(strings.TrimSpace(a.stderr), "\n")
	require.Equal(t, object(t, a.out)["transactions"], float64(len(lines)))
	require.Greater(t, len(lines), 3)
	var last step
	for _, line := range lines {
		var next step
		require.NoError(t, json.Unmarshal([]byte(line), &next))
		require.GreaterOrEqual(t, next.Done, last.Done)
		last = next
	}
	require.Equal(t, last.Total, last.Done)
}

func TestImportResumesWithWhatHasChanged(t *testing.T) {
	src, s := sampleTree(t), storePath(t)
	good(t, "import", s, src)
	writeFile(t, filepath.Join(src, "bytes"), "changed")
	writeFile(t, filepath.Join(src, "new"), "new")
	m := object(t, good(t, "import", s, src, "--resume", "--json"))
	require.Equal(t, 2.0, m["files"])
	require.Equal(t, 41.0, m["equal"])
	require.Equal(t, "changed", good(t, "get", s, "bytes"))
}

// TestImportThatHasNothingLeftToDoSaysSo: it said "stored 0 files, 0 B, in 1 transaction", which
// reads like a failure.
func TestImportThatHasNothingLeftToDoSaysSo(t *testing.T) {
	src, s := sampleTree(t), storePath(t)
	good(t, "import", s, src)
	out := good(t, "import", s, src, "--resume")
	require.Contains(t, out, "nothing to do: 42 files already stored with equal content")
	require.NotContains(t, out, "0 files")
	require.Equal(t, 0.0, object(t, good(t, "import", s, src, "--resume", "--json"))["transactions"])
	writeFile(t, filepath.Join(src, "new"), "new")
	require.Contains(t, good(t, "import", s, src, "--resume"), "stored 1 file, 3 B, in 1 transaction")
	require.Equal(t, "nothing to do: the directory holds no files\n", good(t, "import", s, t.TempDir()))
}

func TestImportWithPrefixAndFamily(t *testing.T) {
	src, dst, s := sampleTree(t), t.TempDir(), storePath(t)
	good(t, "import", s, src, "--prefix", "src/", "--family", "code")
	require.Equal(t, "\x00\xff\r\n", good(t, "get", s, "src/bytes", "--family", "code"))
	require.Empty(t, good(t, "scan", s))
	good(t, "export", s, dst, "--prefix", "src/", "--family", "code")
	require.Equal(t, files(t, src), files(t, dst))
}

// TestStoreThroughALink: the log that a killed process leaves lies beside the file, and commands
// that are given a link find it there.
func TestStoreThroughALink(t *testing.T) {
	dir := t.TempDir()
	at, link := filepath.Join(dir, "real", "a.ebb"), filepath.Join(dir, "link.ebb")
	require.NoError(t, os.Mkdir(filepath.Dir(at), 0o755))
	platformtest.MayRefuse(t, os.Symlink(at, link), "windows")
	good(t, "put", link, "a", "1")
	require.FileExists(t, at)
	killed := filepath.Join(dir, "killed")
	db, err := kv.Open(at, nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("b"), []byte("2")))
	require.NoError(t, os.CopyFS(killed, os.DirFS(filepath.Dir(at))))
	require.NoError(t, db.Close())
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Symlink(filepath.Join(killed, "a.ebb"), link))

	require.Equal(t, good(t, "wal", filepath.Join(killed, "a.ebb")), good(t, "wal", link))
	require.Contains(t, good(t, "wal", link), "a.ebb-wal-0")
	good(t, "check", link)
	require.Equal(t, "a\t1\nb\t2\n", good(t, "scan", link))
	left, err := filepath.Glob(filepath.Join(dir, "link.ebb?*"))
	require.NoError(t, err)
	require.Empty(t, left)
	tree, err := listTree(killed, link)
	require.NoError(t, err)
	require.Empty(t, tree.files, "all of them are the store's own")
}

func TestImportSkipsLinksAndItsOwnStore(t *testing.T) {
	src := t.TempDir()
	writeFile(t, filepath.Join(src, "a"), "a")
	platformtest.MayRefuse(t, os.Symlink("a", filepath.Join(src, "link")), "windows")
	s := filepath.Join(src, "own.ebb")
	m := object(t, good(t, "import", s, src, "--json"))
	require.Equal(t, 1.0, m["files"])
	require.Equal(t, 1.0, m["symlinks"])
	require.Equal(t, "a\ta\n", good(t, "scan", s))
}

// TestATreeLeavesOutTheFilesOfTheStoreAndNoOthers: they were known by their paths, so that a store
// that was there was imported into itself if the directory was given through a symbolic link; and
// all names that began like theirs were left out.
func TestATreeLeavesOutTheFilesOfTheStoreAndNoOthers(t *testing.T) {
	root := t.TempDir()
	src, link := filepath.Join(root, "src"), filepath.Join(root, "link")
	want := []string{
		"a.ebb-wal-000001.bak",
		"a.ebb-wal-1",
		"a.ebb-wal-notes",
		"a.ebb.new.txt",
		"a.ebb.newer",
		"b.ebb",
		"d/a.ebb",
		"d/a.ebb-wal-000001",
	}
	for _, name := range append([]string{"a.ebb", "a.ebb.new", "a.ebb-wal-000001", "a.ebb-wal-1234567"},
		want...) {
		writeFile(t, filepath.Join(src, name), "x")
	}
	platformtest.MayRefuse(t, os.Symlink(src, link), "windows")
	t.Chdir(src)
	for _, dir := range []string{src, link, ".", filepath.Join(link, "d", "..")} {
		for _, store := range []string{filepath.Join(src, "a.ebb"), filepath.Join(link, "a.ebb"), "a.ebb"} {
			tree, err := listTree(dir, store)
			require.NoError(t, err)
			require.Empty(t, tree.errors)
			var names []string
			for _, f := range tree.files {
				names = append(names, f.name)
			}
			require.Equal(t, want, names, "the files below %s, for a store at %s", dir, store)
		}
	}
}

func TestImportThroughALinkSkipsTheStoreThatIsThere(t *testing.T) {
	root := t.TempDir()
	src, link := filepath.Join(root, "src"), filepath.Join(root, "link")
	writeFile(t, filepath.Join(src, "a"), "a")
	platformtest.MayRefuse(t, os.Symlink(src, link), "windows")
	s := filepath.Join(link, "own.ebb")
	good(t, "import", s, link)
	good(t, "import", s, link)
	require.Equal(t, "a\n", good(t, "scan", s, "--keys-only"))
}

func TestImportReportsPathsThatAreNoKeysAtTheEnd(t *testing.T) {
	src, s := t.TempDir(), storePath(t)
	writeFile(t, filepath.Join(src, "a"), "a")
	writeFile(t, filepath.Join(src, "z"), "z")
	long := filepath.Join(
		strings.Repeat("d", 200),
		strings.Repeat("e", 200),
		strings.Repeat("f", 200),
		strings.Repeat("g", 200),
		strings.Repeat("h", 200),
		strings.Repeat("i", 200),
	)
	platformtest.MayRefuse(t, os.MkdirAll(filepath.Join(src, long), 0o777), "windows", "darwin", "freebsd")
	writeFile(t, filepath.Join(src, long, "file"), "x")
	a := ebb(t, "import", s, src)
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "not stored: ddd")
	require.Contains(t, a.out, "stored 2 files")
	require.Equal(t, "a\ta\nz\tz\n", good(t, "scan", s), "the others are stored")
}

func TestExportRefusesToLeaveItsDirectory(t *testing.T) {
	s, outer := storePath(t), t.TempDir()
	dir := filepath.Join(outer, "inner")
	bad := []string{"../escape", "/etc/escape", "a/../../escape", "a/./b", "a//b", "..", "x/", "link/escape"}
	require.NoError(t, os.MkdirAll(dir, 0o777))
	platformtest.MayRefuse(t, os.Symlink(outer, filepath.Join(dir, "link")), "windows")
	for _, k := range append(bad, "fine/file") {
		good(t, "put", s, k, "v")
	}
	a := ebb(t, "export", s, dir, "--json")
	require.Equal(t, exitError, a.code)
	require.Len(t, object(t, a.out)["errors"], len(bad))
	require.Equal(t, map[string]string{"inner/fine/file": "v"}, files(t, outer))
}

// TestAnErrorKeepsTheNameThatIsNoUTF8: JSON put U+FFFD for the byte, so that the key could not be
// identified.
func TestAnErrorKeepsTheNameThatIsNoUTF8(t *testing.T) {
	s := storePath(t)
	good(t, "put", s, "../caf\xe9", "v")
	good(t, "put", s, "../tea", "v")
	a := ebb(t, "export", s, t.TempDir(), "--json")
	require.Equal(t, exitError, a.code)
	require.Equal(t, []any{
		map[string]any{"name_base64": "Li4vY2Fm6Q==", "error": errNoPath.Error()},
		map[string]any{"name": "../tea", "error": errNoPath.Error()},
	}, object(t, a.out)["errors"])
}

// TestProgressOfAnExportWithAPrefixHasNoTotal: it was that of the whole family, and the export
// seemed to end at a part of it.
func TestProgressOfAnExportWithAPrefixHasNoTotal(t *testing.T) {
	s := storePath(t)
	for _, k := range []string{"x/a", "x/b", "y"} {
		good(t, "put", s, k, "v")
	}
	a := ebb(t, "export", s, t.TempDir(), "--prefix", "x/", "--progress=lines")
	require.Equal(t, "{\"done\":1}\n{\"done\":2}\n", a.stderr)
	a = ebb(t, "export", s, t.TempDir(), "--progress=lines")
	require.True(t, strings.HasSuffix(a.stderr, "{\"done\":3,\"total\":3}\n"), a.stderr)
	a = ebb(t, "export", s, t.TempDir(), "--prefix", "x/", "--progress=bar")
	require.Equal(t, exitOK, a.code)
	require.NotContains(t, a.stderr, "/3")
}

// TestExportNeverWritesOverItsOwnStore: a key that was the name of the store's file below DIR, as
// an import of the store in itself had made it, cut the store to nothing while it was read.
func TestExportNeverWritesOverItsOwnStore(t *testing.T) {
	dir := t.TempDir()
	s := filepath.Join(dir, "own.ebb")
	for _, k := range []string{"a", "own.ebb", "own.ebb.txt"} {
		good(t, "put", s, k, "v")
	}
	a := ebb(t, "export", s, dir, "--overwrite")
	require.Equal(t, exitError, a.code)
	require.Equal(t, "not written: own.ebb: "+errOwnFile.Error()+"\n", a.stderr)
	a = ebb(t, "export", s, filepath.Join(dir, "other"), "--overwrite", "--expiries", s)
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, errOwnFile.Error())
	require.Contains(t, good(t, "check", s), "no problems")
	require.Equal(t, "v", files(t, dir)["a"])
	require.Equal(t, "v", files(t, dir)["own.ebb.txt"])
}

// TestNamesOfOthersDoNotReachTheTerminal: the name of a key or a file may contain commands for the
// terminal.
func TestNamesOfOthersDoNotReachTheTerminal(t *testing.T) {
	const evil, quoted = "\x1b[2J\n\u009b1m\xff", `\x1b[2J\n\u009b1m\xff`
	s, dir := storePath(t), t.TempDir()
	platformtest.MayRefuse(t, os.Mkdir(filepath.Join(dir, evil), 0o777), "windows", "darwin")
	good(t, "put", s, evil, "v")
	// The file is a directory, and the system's error names it too.
	a := ebb(t, "export", s, dir, "--overwrite")
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "not written: \""+quoted+"\": ")
	require.Equal(t, 2, strings.Count(a.stderr, quoted), a.stderr)
	require.Equal(t, 1, strings.Count(a.stderr, "\n"))

	a = ebb(t, "export", s, dir, "--overwrite", "--base64")
	require.Contains(t, a.stderr, "not written: "+base64.StdEncoding.EncodeToString([]byte(evil))+": ")

	// No key is that long.
	writeFile(t, filepath.Join(dir, "d", evil, strings.Repeat(strings.Repeat("l", 250)+"/", 5), "long"), "x")
	a = ebb(t, "import", s, dir)
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "not stored: \"d/"+quoted)
	require.NotContains(t, a.stderr, "\x1b")

	a = ebb(t, "import", s, filepath.Join(dir, evil+".absent"))
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, `\x1b[2J`)
	require.NotContains(t, a.stderr, "\x1b")
	require.NotContains(t, a.stderr, "\xff")
}

func TestExportLeavesFilesAloneUnlessTold(t *testing.T) {
	s, dir := storePath(t), t.TempDir()
	good(t, "put", s, "f", "new")
	writeFile(t, filepath.Join(dir, "f"), "old and longer")
	a := ebb(t, "export", s, dir)
	require.Equal(t, exitError, a.code)
	require.Contains(t, a.stderr, "--overwrite")
	require.Equal(t, map[string]string{"f": "old and longer"}, files(t, dir))
	good(t, "export", s, dir, "--overwrite")
	require.Equal(t, map[string]string{"f": "new"}, files(t, dir))
}
