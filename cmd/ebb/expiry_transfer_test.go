package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/platformtest"
)

func TestExportSaysThatFilesHaveNoExpiry(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "x/a", "1", "--ttl", "10s")
	s.good("put", "y/b", "2")
	require.Contains(
		t,
		s.good("export", t.TempDir()),
		"\n1 file of a key with an expiry, which a file does not have\n",
	)
	require.EqualValues(t, 1, object(t, s.good("export", t.TempDir(), "--json"))["timed"])
	require.NotContains(t, s.good("export", t.TempDir(), "--prefix", "y/"), "expiry")
	s.now = s.now.Add(time.Minute)
	require.EqualValues(t, 0, object(t, s.good("export", t.TempDir(), "--json"))["timed"])
}

// TestExpiriesGoOutAndComeBack exports a store with the expiries of its keys beside the files, and
// imports both into another one.
func TestExpiriesGoOutAndComeBack(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "x/a", "1", "--ttl", "10s")
	s.good("put", "x/b", "2")
	s.good("put", "x/c", "3", "--ttl", "48h")
	s.good("put", "z/far", "5", "--expire-at", "600000000000000") // a year of five digits
	s.good("put", "y", "4", "--ttl", "1h")
	dir, notes := t.TempDir(), filepath.Join(t.TempDir(), "expiries")
	require.Contains(
		t,
		s.good("export", dir, "--prefix", "x/", "--expiries", notes),
		"\n2 files of a key with an expiry, noted in "+notes+"\n",
	)
	text, err := os.ReadFile(notes)
	require.NoError(t, err)
	require.Equal(
		t,
		`{"file":"a","expires":"2030-01-31T12:00:10Z"}`+"\n"+
			`{"file":"c","expires":"2030-02-02T12:00:00Z"}`+"\n",
		string(text),
	)

	back := newTimedStore(t)
	back.now = back.now.Add(9999 * time.Millisecond)
	back.good("import", dir, "--prefix", "x/", "--expiries", notes)
	require.Equal(t, "1ms\n", back.good("ttl", "x/a"))
	require.Equal(t, "none\n", back.good("ttl", "x/b"))
	require.Equal(t, s.good("get", "x/c"), back.good("get", "x/c"))
	m := object(t, back.good("import", dir, "--prefix", "x/", "--expiries", notes, "--resume", "--json"))
	require.EqualValues(t, 3, m["equal"])
	back.good("persist", "x/c")
	m = object(t, back.good("import", dir, "--prefix", "x/", "--expiries", notes, "--resume", "--json"))
	require.EqualValues(t, 2, m["equal"], "the value is equal, the expiry is not")
	require.Equal(t, "1d23h59m50.001s\n", back.good("ttl", "x/c"))

	far := t.TempDir()
	s.good("export", far, "--prefix", "z/", "--expiries", notes, "--overwrite")
	back.good("import", far, "--expiries", notes)
	require.Contains(t, back.good("ttl", "far", "--json"), "600000000000000")
	require.Equal(
		t,
		s.good("ttl", "z/far", "--json"),
		strings.Replace(back.good("ttl", "far", "--json"), "far", "z/far", 1),
	)
	s.good("export", dir, "--prefix", "x/", "--expiries", notes, "--overwrite")

	late := newTimedStore(t)
	late.now = late.now.Add(24 * time.Hour)
	require.Contains(
		t,
		late.good("import", dir, "--expiries", notes),
		"\nskipped 1 file whose expiry has passed\n",
	)
	require.Equal(t, "1d\n", late.good("ttl", "c"))
	late.code(exitNotFound, "not_found", "get", "a")

	s.code(exitError, "error", "export", t.TempDir(), "--expiries", notes)
	s.code(exitError, "error", "export", dir, "--overwrite", "--expiries", filepath.Join(dir, "expiries"))
	s.good("export", dir, "--overwrite", "--prefix", "x/", "--expiries", notes)
	for _, wrong := range []string{"{", `{"file":"a"}`, `{"expires":"2030-01-31T12:00:10Z"}`,
		`{"file":"a","expires":"soon"}`,
		`{"file":"a","file_base64":"YQ==","expires":"2030-01-31T12:00:10Z"}`,
		`{"file_base64":"?","expires":"2030-01-31T12:00:10Z"}`,
		`{"file":"a","expires":"2030-01-31T12:00:10Z"}`} { // contradicts the first line
		require.NoError(
			t,
			os.WriteFile(notes, []byte(`{"file":"a","expires":"2031-01-31T12:00:10Z"}`+"\n"+wrong), 0o666),
		)
		a := s.ebb("import", dir, "--expiries", notes)
		require.Equal(t, exitError, a.code)
		require.Contains(t, a.stderr, "line 2")
	}
	twice := `{"file":"a","expires":"2030-02-01T12:00:10Z"}` + "\n"
	require.NoError(t, os.WriteFile(notes, []byte(twice+twice), 0o666))
	s.good("import", dir, "--expiries", notes)
	s.code(exitError, "error", "import", dir, "--expiries", filepath.Join(dir, "absent"))
}

// TestExpiriesAreNoValuesWhicheverWayTheyAreReached: a file among the values is one of them for
// import.
func TestExpiriesAreNoValuesWhicheverWayTheyAreReached(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "a", "1", "--ttl", "10s")
	root := t.TempDir()
	link := filepath.Join(root, "link")
	require.NoError(t, os.Mkdir(filepath.Join(root, "dir"), 0o777))
	platformtest.MayRefuse(t, os.Symlink("dir", link), "windows")
	for _, c := range [][2]string{{"dir", "link/notes"}, {"link", "dir/notes"},
		{"link/new", "dir/new/notes"}, {"dir/new", "link/new/more/notes"}} {
		a := s.ebb("export", filepath.Join(root, c[0]), "--expiries", filepath.Join(root, c[1]))
		require.Equal(t, exitError, a.code, "%q", c)
		require.Contains(t, a.stderr, "among the files of values")
	}
	require.Empty(t, files(t, root))
	s.good("export", filepath.Join(link, "new"), "--expiries", filepath.Join(root, "dir", "notes"))
	require.Len(t, files(t, root), 2)
}

// TestExpiryOfANameThatIsNoUTF8GoesOutAndComesBack: JSON put U+FFFD for the byte, no file had that
// name, and a key that was to expire was permanent after the round trip.
func TestExpiryOfANameThatIsNoUTF8GoesOutAndComesBack(t *testing.T) {
	s := newTimedStore(t)
	dir, notes := t.TempDir(), filepath.Join(t.TempDir(), "expiries")
	writeFile(t, filepath.Join(dir, "café"), "1") // UTF-8, whose lines stay as they were
	err := os.WriteFile(filepath.Join(dir, "caf\xe9"), []byte("2"), 0o666)
	if err == nil && files(t, dir)["caf\xe9"] != "2" {
		err = errors.New("file names are UTF-8 here")
	}
	platformtest.MayRefuse(t, err, "darwin", "windows")
	s.good("put", "café", "1", "--ttl", "1h")
	s.good("put", "caf\xe9", "2", "--ttl", "2h")
	s.good("export", dir, "--overwrite", "--expiries", notes)
	text, err := os.ReadFile(notes)
	require.NoError(t, err)
	require.Equal(
		t,
		`{"file":"café","expires":"2030-01-31T13:00:00Z"}`+"\n"+
			`{"file_base64":"Y2Fm6Q==","expires":"2030-01-31T14:00:00Z"}`+"\n",
		string(text),
	)

	back := newTimedStore(t)
	back.good("import", dir, "--expiries", notes)
	require.Equal(t, "1h\n", back.good("ttl", "café"))
	require.Equal(t, "2h\n", back.good("ttl", "caf\xe9"))
}

// TestImportTellsOfExpiriesOfNoFile: an expiry that is not used is a key that lives for ever, or
// one that is not there.
func TestImportTellsOfExpiriesOfNoFile(t *testing.T) {
	s := newTimedStore(t)
	dir, notes := t.TempDir(), filepath.Join(t.TempDir(), "expiries")
	writeFile(t, filepath.Join(dir, "a"), "1")
	line := `{"file":"%s","expires":"2030-01-31T13:00:00Z"}` + "\n"
	writeFile(t, notes, fmt.Sprintf(line+line+line, "a", "b", "c"))
	a := s.ebb("import", dir, "--expiries", notes)
	require.Equal(t, exitOK, a.code)
	require.Equal(t, "warning: no file is there for 2 lines of --expiries\n", a.stderr)
	a = s.ebb("import", dir, "--expiries", notes, "--resume", "--json")
	require.Equal(t, 2.0, object(t, a.out)["expiries_unmatched"])
	require.Empty(t, a.stderr)

	writeFile(t, notes, fmt.Sprintf(line, "a"))
	require.Empty(t, s.ebb("import", dir, "--expiries", notes).stderr)
	require.Equal(t, 0.0, object(t, s.good("import", dir, "--json"))["expiries_unmatched"])
}
