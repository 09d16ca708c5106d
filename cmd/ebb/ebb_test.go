package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/golden"
	"github.com/ebbkv/ebb/kv"
)

// answer is what a command gave back.
type answer struct {
	code        int
	out, stderr string
}

// ebb runs a command in this process.
func ebb(t *testing.T, args ...string) answer {
	t.Helper()
	return ebbIn(t, strings.NewReader(""), args...)
}

func ebbIn(t *testing.T, stdin io.Reader, args ...string) answer {
	t.Helper()
	var out, stderr bytes.Buffer
	code := run(t.Context(), args, stdin, &out, &stderr)
	return answer{code, out.String(), stderr.String()}
}

// good runs a command that must succeed and returns its output.
func good(t *testing.T, args ...string) string {
	t.Helper()
	a := ebb(t, args...)
	require.Equal(t, exitOK, a.code, "ebb %q: %s", args, a.stderr)
	return a.out
}

// object decodes the one JSON object that a command printed.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	m := map[string]any{}
	require.NoError(t, json.Unmarshal([]byte(text), &m), "%q", text)
	return m
}

func storePath(t *testing.T) string { return filepath.Join(t.TempDir(), "test.ebb") }

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o777))
	require.NoError(t, os.WriteFile(name, []byte(content), 0o666))
}

func TestGetPrintsWhatPutStoredByteForByte(t *testing.T) {
	s := storePath(t)
	require.Empty(t, good(t, "put", s, "k", "a value\x00\xff"))
	require.Equal(t, "a value\x00\xff", good(t, "get", s, "k"))
	good(t, "put", s, "empty", "")
	require.Empty(t, good(t, "get", s, "empty"))
}

func TestPutTakesItsValueFromArgumentInputOrFile(t *testing.T) {
	s := storePath(t)
	file := filepath.Join(t.TempDir(), "value")
	writeFile(t, file, "from a file")
	require.Equal(t, exitOK, ebbIn(t, strings.NewReader("from input"), "put", s, "in", "-").code)
	good(t, "put", s, "file", "@"+file)
	good(t, "put", s, "at", "@@home")
	good(t, "put", s, "--", "dash", "-x")
	require.Equal(t, "from input", good(t, "get", s, "in"))
	require.Equal(t, "from a file", good(t, "get", s, "file"))
	require.Equal(t, "@home", good(t, "get", s, "at"))
	require.Equal(t, "-x", good(t, "get", s, "dash"))

	absent := ebb(t, "put", s, "file", "@"+file+".absent")
	require.Equal(t, exitError, absent.code)
	require.Contains(t, absent.stderr, "value.absent")
}

// TestAValueOfAFileIsReadIntoOneSlice: what is read into a slice that grows was in memory more than
// twice.
func TestAValueOfAFileIsReadIntoOneSlice(t *testing.T) {
	const size = 4 << 20
	for expected, want := range map[int64]int{size: size, 0: size, size / 2: size, -1: size} {
		value, err := readValue(io.LimitReader(zeroes{}, size), expected)
		require.NoError(t, err)
		require.Len(t, value, want)
		if expected == size {
			require.Less(t, cap(value), size+size/8)
		}
	}
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) { return len(b), nil }

func TestWhatIsNotThereIsCode2(t *testing.T) {
	s := storePath(t)
	good(t, "put", s, "k", "v")
	for _, args := range [][]string{
		{"get", s, "other"},
		{"get", s, "k", "--family", "nothing"},
		{"scan", s, "--family", "nothing"},
		{"del", s, "k", "other"},
		{"del", s, "k"}, // gone by now
	} {
		a := ebb(t, args...)
		require.Equal(t, exitNotFound, a.code, "ebb %q: %s", args, a.stderr)
		require.Empty(t, a.out)
		require.Contains(t, a.stderr, "ebb: ")

		a = ebb(t, append(args, "--json")...)
		require.Equal(t, exitNotFound, a.code)
		require.Contains(t, []any{"not_found", "family_not_found"}, object(t, a.stderr)["kind"])
	}
}

func TestDelDeletes(t *testing.T) {
	s := storePath(t)
	for _, k := range []string{"a", "b", "c"} {
		good(t, "put", s, k, "v")
	}
	good(t, "del", s, "a", "c")
	require.Equal(t, "b\n", good(t, "scan", s, "--keys-only"))
	m := object(t, good(t, "del", s, "b", "--json"))
	require.Equal(t, map[string]any{"family": "default", "deleted": 1.0, "absent": 0.0}, m)
}

// TestDelTakesAKeyThatIsNamedTwiceForOne: the second time it counted as absent, and the exit code
// was 2.
func TestDelTakesAKeyThatIsNamedTwiceForOne(t *testing.T) {
	s := storePath(t)
	good(t, "put", s, "a", "v")
	require.Equal(
		t,
		map[string]any{"family": "default", "deleted": 1.0, "absent": 0.0},
		object(t, good(t, "del", s, "a", "a", "--json")),
	)
	a := ebb(t, "del", s, "a", "a")
	require.Equal(t, exitNotFound, a.code)
	require.Contains(t, a.stderr, "0 deleted, 1 absent")
}

func TestErrorsSayWhatToDo(t *testing.T) {
	s := storePath(t)
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	writeFile(t, text, strings.Repeat("this is no store\n", 1000))
	earlier := filepath.Join(dir, "earlier")
	writeFile(t, earlier, string(golden.Read(t, "../../pager/testdata/earlier-version.hex")))
	good(t, "put", s, "k", "v")

	for _, c := range []struct {
		name string
		args []string
		kind string
		hint string
	}{
		{"missing", []string{"get", s + ".absent", "k"}, "missing", "ebb put"},
		{"no_directory", []string{"put", filepath.Join(dir, "absent", "a.ebb"), "k", "v"}, "missing",
			"make it first"},
		{"not_a_store", []string{"get", text, "k"}, "not_a_store", "something else"},
		{"earlier_version", []string{"get", earlier, "k"}, "version", "another version of Ebb"},
		{"later_export", []string{"export", earlier, filepath.Join(dir, "out")}, "version",
			"ebb command of that version"},
		{"directory", []string{"get", dir, "k"}, "path", "regular file"},
		{"empty_key", []string{"put", s, "", "v"}, "key_empty", "at least one byte"},
		{"long_key", []string{"put", s, strings.Repeat("k", 5000), "v"}, "key_too_large", "--page-size"},
		{"other_page_size", []string{"put", s, "k", "v", "--page-size", "8192"}, "page_size", "created with"},
		{"reserved_family", []string{"put", s, "k", "v", "--family", "__x"}, "reserved", "belong to Ebb"},
		{"default_family", []string{"family", s, "default", "--drop"}, "reserved", "always there"},
		{"too_few_arguments", []string{"get", s}, "usage", "get STORE KEY"},
		{"unknown_flag", []string{"get", s, "k", "--frob"}, "usage", "--help"},
		{"two_encodings", []string{"get", s, "k", "--hex", "--base64"}, "usage", "--help"},
		{"bad_progress", []string{"get", s, "k", "--progress=loud"}, "usage", "--help"},
		{"not_hex", []string{"get", s, "xyz", "--hex"}, "usage", "6b6579"},
		{"not_base64", []string{"get", s, "?", "--base64"}, "usage", "a2V5"},
		{"value_with_a_dash", []string{"put", s, "k", "-5"}, "usage", "go behind --"},
		{"unknown_command", []string{"frob"}, "usage", "lists the commands"},
		{"unknown_help_topic", []string{"help", "frob"}, "usage", "lists the commands"},
		{"command_misspelt", []string{"gte", "k"}, "usage", `there is no command "gte": is it get`},
		{"unknown_shell", []string{"completion", "zhs"}, "usage", "bash|zsh|fish|powershell"},
		{"completion_of_more", []string{"completion", "zsh", "bash"}, "usage", "completion zsh"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := ebb(t, c.args...)
			require.Equal(t, exitError, a.code)
			require.Empty(t, a.out)
			require.Contains(t, a.stderr, c.hint)
			m := object(t, ebb(t, append(c.args, "--json")...).stderr)
			require.Equal(t, c.kind, m["kind"])
			require.NotEmpty(t, m["error"])
		})
	}
	_, err := os.Stat(s + ".absent")
	require.ErrorIs(t, err, os.ErrNotExist, "a command that reads creates nothing")
}

func TestLockedStoreIsAnErrorForWritersAndReaders(t *testing.T) {
	s := storePath(t)
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	defer db.Close()
	for _, args := range [][]string{{"get", s, "k"}, {"put", s, "k", "v"}, {"check", s}, {"pages", s},
		{"wal", s}} {
		a := ebb(t, args...)
		require.Equal(t, exitError, a.code, "%q", args)
		require.Contains(t, a.stderr, "--wait", "%q", args)
	}
}

func TestReadersRunBesideReaders(t *testing.T) {
	s := storePath(t)
	good(t, "put", s, "k", "v")
	db, err := kv.Open(s, &kv.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	require.Equal(t, "v", good(t, "get", s, "k"))
	good(t, "check", s)
	good(t, "pages", s)
}

func TestJSONOfOneKey(t *testing.T) {
	s := storePath(t)
	require.Equal(
		t,
		map[string]any{"family": "notes", "key": "k", "size": 5.0},
		object(t, good(t, "put", s, "k", "<v>&x", "--family", "notes", "--json")),
	)
	out := good(t, "get", s, "k", "--family", "notes", "--json")
	require.Equal(t, map[string]any{"family": "notes", "key": "k", "value": "<v>&x", "size": 5.0},
		object(t, out))
	require.Contains(t, out, "<v>&x", "not escaped for HTML")
}

// TestALargeValueIsPrintedInPieces: as a string of a JSON object, or in quotes, it took up to
// twenty times its size in memory.
func TestALargeValueIsPrintedInPieces(t *testing.T) {
	const size = 8 << 20
	for _, value := range []string{"text", "caf\xe9 é\x00"} {
		r := row{family: "f", key: []byte("k"), value: bytes.Repeat([]byte(value), size/len(value))}
		for _, a := range []app{{}, {json: true}, {json: true, hex: true}, {hex: true}, {base64: true}} {
			a.out = newOutput(io.Discard)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			require.NoError(t, a.printRow(r))
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*size), "%q, %+v", value, a)
		}
	}
}

// TestALargeValueIsInBase64InJSON beside the same fields that a small one has.
func TestALargeValueIsInBase64InJSON(t *testing.T) {
	s, file := newTimedStore(t), filepath.Join(t.TempDir(), "value")
	for _, size := range []int{largeValue - 1, largeValue, largeValue + 1} {
		value := strings.Repeat("é<", size)[:size]
		writeFile(t, file, value)
		s.good("put", "k<", "@"+file, "--ttl", "1m")
		want := map[string]any{
			"key":    "k<",
			"family": "default",
			"size":   float64(size),
			"ttl_ms": 60e3,
			"expiry": "2030-01-31T12:01:00Z",
		}
		want["value_base64"] = base64.StdEncoding.EncodeToString([]byte(value))
		if size < largeValue && utf8.ValidString(value) {
			delete(want, "value_base64")
			want["value"] = value
		}
		require.Equal(t, want, object(t, s.good("get", "k<", "--json")))
		hexed := object(t, s.good("get", "6b3c", "--json", "--hex"))
		require.Equal(t, hex.EncodeToString([]byte(value)), hexed["value_hex"])
		delete(want, "size")
		delete(want, "ttl_ms")
		require.Equal(t, want, object(t, s.good("dump", "--json")))
	}
}

// TestShowInPiecesIsShow quotes values whose characters lie across the ends of pieces.
func TestShowInPiecesIsShow(t *testing.T) {
	for _, filler := range []string{"é", "x", "\xff", "\x80", "€\n", "😀\x00", "\xf0\x9f"} {
		for lead := range 5 {
			value := strings.Repeat("a", lead) + strings.Repeat(filler, 3*pieceSize)
			want := value
			if !utf8.ValidString(value) || strings.ContainsAny(value, "\n\x00") {
				want = strconv.Quote(value)
			}
			require.Equal(t, want, (&app{}).show([]byte(value)), "%d and %q", lead, filler)
		}
	}
	require.Equal(t, `"\"a"`, (&app{}).show([]byte(`"a`)))
	require.Empty(t, (&app{}).show(nil))
}

func TestStatsTellsOfFamiliesAndRecovery(t *testing.T) {
	s := storePath(t)
	good(t, "put", s, "p", "w", "--family", "photos")
	text := good(t, "stats", s)
	require.Contains(t, text, "photos")
	require.Contains(t, text, "recovery")
	m := object(t, good(t, "stats", s, "--json"))
	require.Contains(t, m, "stats")
	require.Contains(t, m, "recovery")
}

// TestNumbersThatMakeNoSenseAreUsageErrors: bench-quick took a time that is not positive for no
// limit, and never ended.
func TestNumbersThatMakeNoSenseAreUsageErrors(t *testing.T) {
	s, dir := storePath(t), t.TempDir()
	good(t, "put", s, "k", "v")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // of a bench-quick that has no end
	defer cancel()
	for _, args := range [][]string{
		{"bench-quick", "--dir", dir, "--each", "0"},
		{"bench-quick", "--dir", dir, "--each", "-1s"},
		{"get", s, "k", "--wait", "-1s"},
		{"pages", s, "--wait", "-1s"},
		{"pages", s, "--page-size", "-4096"},
		{"put", s + ".new", "k", "v", "--page-size", "2048"},
		{"import", s + ".new", dir, "--page-size", "12288"},
		{"family", s + ".new", "a", "--create", "--page-size", "-1"},
		{"family", s, "--page-size", "4096"},
		{"family", s, "a", "--drop", "--file-mode", "0600"},
		{"put", s + ".new", "k", "v", "--file-mode", "rw"},
		{"put", s + ".new", "k", "v", "--file-mode", "0400"},
		{"put", s + ".new", "k", "v", "--file-mode", "10600"},
		{"family", s, "a", "--rename", "b", "--page-size", "4096"},
		{"scan", s, "--limit", "-1"},
		{"purge", s, "--limit", "-1"},
		{"purge", s, "--batch", "-1"},
		{"import", s, dir, "--batch-bytes", "0"},
		{"import", s, dir, "--batch-bytes", "-1"},
		{"demo", s + ".demo", dir, "--batch-bytes", "0"},
		{"demo", s + ".demo", dir, "--batch-bytes", "-1"},
		{"demo", s + ".demo", dir, "--kill-percent", "-1"},
		{"demo", s + ".demo", dir, "--kill-percent", "101"},
	} {
		var out, stderr bytes.Buffer
		require.Equal(
			t,
			exitError,
			run(ctx, append(args, "--json"), strings.NewReader(""), &out, &stderr),
			"%q",
			args,
		)
		require.Equal(t, "usage", object(t, stderr.String())["kind"], "%q", args)
		require.Empty(t, out.String())
	}
}

func TestBenchQuickPrintsATable(t *testing.T) {
	dir := t.TempDir()
	require.Contains(t, good(t, "bench-quick", "--dir", dir, "--each", "1ms"), "scan")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestAStoreIsCreatedWithLargerPages: a key of 16 KiB fits into pages of 64 KiB, whichever command
// creates the store.
func TestAStoreIsCreatedWithLargerPages(t *testing.T) {
	long, dir := strings.Repeat("k", 16<<10), t.TempDir()
	for _, args := range [][]string{{"put", "", "k", "v"}, {"import", "", dir},
		{"family", "", "a", "--create"}} {
		s := storePath(t)
		args[1] = s
		good(t, append(args, "--page-size", "65536")...)
		require.Equal(t, 65536.0, object(t,
			good(t, "stats", s, "--json"))["stats"].(map[string]any)["page_size"])
		good(t, "put", s, long, "v")
		good(t, "put", s, long, "w", "--page-size", "65536")
		require.Equal(t, "w", good(t, "get", s, long))
	}
}

// TestErrorsAreOneSentence: it was `kv: not an Ebb store: txn: not a store: txt`, and of a lock
// `kv: store is locked by someone else: flock ...: vfs: file is locked by someone else`.
func TestErrorsAreOneSentence(t *testing.T) {
	dir := t.TempDir()
	text, held := filepath.Join(dir, "txt"), filepath.Join(dir, "held.ebb")
	writeFile(t, text, strings.Repeat("this is no store\n", 1000))
	db, err := kv.Open(held, nil)
	require.NoError(t, err)
	defer db.Close()
	for _, command := range []string{"dump", "check", "pages", "wal", "stats"} {
		line, _, _ := strings.Cut(ebb(t, command, text).stderr, "\n")
		require.Regexp(t, "^ebb: (pages: |wal: )?open "+regexp.QuoteMeta(text)+": not an Ebb store$", line)
		line, _, _ = strings.Cut(ebb(t, command, held).stderr, "\n")
		want := "^ebb: (pages: |wal: )?open " + regexp.QuoteMeta(
			held,
		) + ": store is locked by another process or handle"
		if runtime.GOOS == "linux" { // It tells which one; here it is this one.
			want += ": this process holds it"
		}
		require.Regexp(t, want+"$", line)
	}
	line, _, _ := strings.Cut(
		ebb(t, "put", filepath.Join(dir, "new.ebb"), strings.Repeat("k", 1025), "v").stderr,
		"\n",
	)
	require.Equal(t, "ebb: put: key is too large: 1025 bytes, at most 1024", line)
}
