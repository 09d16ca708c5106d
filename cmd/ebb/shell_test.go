package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// script runs lines in a shell without a terminal.
func script(t *testing.T, store string, lines ...string) answer {
	t.Helper()
	return ebbIn(t, strings.NewReader(strings.Join(lines, "\n")), "shell", store)
}

func TestShellRunsTheCommandsOfTheCommandLine(t *testing.T) {
	s := storePath(t)
	a := script(t, s,
		"# a comment, and an empty line", "",
		"put greeting 'hello you'", `put "a\nb" "\x00"`, "incr visits 2", "use users", "put ann 1",
		"scan", "use", "scan --keys-only", "family", "count --json", `get "a\nb"`, "exit", "unread")
	require.Equal(t, exitOK, a.code, a.stderr)
	require.Equal(t, "2\nann\t1\n\"a\\nb\"\ngreeting\nvisits\ndefault\nusers\n"+
		`{"family":"default","rows":3}`+"\n\"a\\nb\"\t\"\\x00\"\n", a.out)
	require.Equal(t, "hello you", good(t, "get", s, "greeting"))
}

func TestHelpInAShellIsOfTheShell(t *testing.T) {
	a := script(t, storePath(t), "help put")
	require.Equal(t, exitOK, a.code, a.stderr)
	require.Contains(t, a.out, "\n  put greeting hello\n")
	require.NotContains(t, a.out, "date |", "a shell has no pipes")
	require.NotContains(t, a.out, "my.ebb")
}

func TestShellShowsExpiries(t *testing.T) {
	s := storePath(t)
	a := script(t, s, "put a 1 --expire-at 2100-01-02T03:04:05Z", "put b 2", "scan", "get a")
	require.Equal(t, exitOK, a.code, a.stderr)
	require.Equal(t, "a\t1\t2100-01-02T03:04:05Z\nb\t2\na\t1\t2100-01-02T03:04:05Z\n", a.out)
	require.Equal(t, "a\t1\nb\t2\n", good(t, "scan", s))
	require.Equal(t, "a\t1\t2100-01-02T03:04:05Z\nb\t2\n", good(t, "scan", s, "--expiry"))
}

// TestShellWithoutATerminalEndsAtTheFirstError, with the exit code of that line.
func TestShellWithoutATerminalEndsAtTheFirstError(t *testing.T) {
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"get absent":            {exitNotFound, "get: not found"},
		"put k w --if-absent":   {exitExists, "put"},
		"gte k":                 {exitError, `there is no command "gte": is it get`},
		"put k":                 {exitError, "too few arguments: 1\nhint: call it as: put KEY VALUE"},
		"put 'k v":              {exitError, "no other one behind it"},
		`put "\q" v`:            {exitError, "no Go string"},
		"put k -":               {exitError, "has no input"},
		"shell other.ebb":       {exitError, "no command"},
		"commit":                {exitError, "no transaction is open"},
		"begin\nbegin":          {exitError, "begin: a transaction is open"},
		"begin\nput k w\npurge": {exitError, "a transaction is open"},
		"begin\nput k w":        {exitError, "was not committed"},
	} {
		t.Run(line, func(t *testing.T) {
			s := storePath(t)
			more := "\nput behind it"
			if strings.HasSuffix(want.text, "committed") {
				more = ""
			}
			a := script(t, s, "put k v", line+more)
			require.Equal(t, want.code, a.code)
			require.Contains(t, a.stderr, want.text)
			require.Equal(t, "k\tv\n", good(t, "scan", s))
		})
	}
	t.Run("read_only", func(t *testing.T) {
		s := storePath(t)
		good(t, "put", s, "k", "v")
		a := ebbIn(t, strings.NewReader("begin\nget k\nput k w"), "shell", s, "--read-only")
		require.Equal(t, exitError, a.code)
		require.Equal(t, "k\tv\n", a.out)
		require.Contains(t, a.stderr, "read-only")
		require.Equal(t, exitError, ebb(t, "shell", s+".absent", "--read-only").code)
	})
}

func TestShellTransactions(t *testing.T) {
	s := storePath(t)
	a := script(t, s, "put k 0", "begin", "put k 1", "put l 1", "get k", "rollback", "get k",
		"begin", "put k 2", "incr n", "commit", "scan --keys-only")
	require.Equal(t, exitOK, a.code, a.stderr)
	require.Equal(t, "k\t1\nk\t0\n1\nk\nn\n", a.out)
	require.Equal(t, "2", good(t, "get", s, "k"))
}

// TestACommandThatFailsInATransactionUndoesItself, on a terminal, where the shell goes on.
func TestACommandThatFailsInATransactionUndoesItself(t *testing.T) {
	sh, stderr := openShell(t)
	lines := []string{"put a 1", "begin", "put b 1", "del a absent", "put --family new c 1", "commit",
		"scan", "nope"}
	require.NoError(t, sh.interactive(t.Context(), func(string) (string, error) {
		if len(lines) == 0 {
			return "", io.EOF
		}
		line := lines[0]
		lines = lines[1:]
		return line, nil
	}))
	require.Contains(t, stderr.String(), "not found")
	require.Contains(t, stderr.String(), `no command "nope"`)
	sh.app.out.Flush()
	names, err := sh.held.db.ListCFs()
	require.NoError(t, err)
	require.Equal(t, []string{"default", "new"}, names)
}

// openShell opens a shell on a store in memory.
func openShell(t *testing.T) (*shell, *bytes.Buffer) {
	t.Helper()
	db, err := kv.OpenMemory(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	var stderr bytes.Buffer
	a := &app{out: newOutput(io.Discard), stderr: &stderr, writes: true}
	return &shell{
		app: a, held: &held{db: db}, name: "t.ebb", family: defaultFamily, stdout: io.Discard,
		interruptible: context.WithCancel,
	}, &stderr
}

// TestShellCompletes what Tab completes, from the commands' own completion.
func TestShellCompletes(t *testing.T) {
	sh, _ := openShell(t)
	for _, line := range []string{"put --family users ann 1", "put user:1 a", "put user:2 b",
		"put 'with blank' c"} {
		require.Equal(t, exitOK, sh.line(t.Context(), line))
	}
	for line, want := range map[string]string{
		"pers":             "persist ",
		"p":                "p", // several
		"be":               "begin ",
		"get u":            "get user:",
		"get user:1":       "get user:1 ",
		"get w":            `get "with blank" `,
		`get "wi`:          `get "with blank" `,
		"scan --fam":       "scan --family ",
		"scan --family us": "scan --family users ",
		"use u":            "use users ",
		"family u":         "family users ",
		"get nothing":      "get nothing",
		"":                 "",
	} {
		got, _ := sh.complete(line)
		require.Equal(t, want, got, "%q", line)
	}
	_, list := sh.complete("get user:")
	require.Equal(t, []string{"user:1", "user:2"}, list)
}

// keyboard is a terminal: what is typed, and what is shown.
type keyboard struct {
	io.Reader
	bytes.Buffer
}

func (k *keyboard) Read(b []byte) (int, error) { return k.Reader.Read(b) }

func TestShellEditsLines(t *testing.T) {
	sh, _ := openShell(t)
	var seen bytes.Buffer
	sh.stdout = &seen
	const up = "\x1b[A"
	keys := "put greet hello\rge\tgr\t\r" + up + up + "\b\b\b\b\bhallo\r" + "get greet\r\x04"
	k := &keyboard{Reader: strings.NewReader(keys)}
	terminal := sh.terminal(k)
	require.NoError(t, sh.interactive(t.Context(), func(prompt string) (string, error) {
		terminal.SetPrompt(prompt)
		return terminal.ReadLine()
	}))
	require.Equal(t, "greet\thello\ngreet\thallo\n", seen.String())
	require.Contains(t, k.String(), "t.ebb> ")
}

func TestPromptShowsFamilyAndTransaction(t *testing.T) {
	sh, _ := openShell(t)
	require.Equal(t, "t.ebb> ", sh.prompt())
	sh.line(t.Context(), "use users")
	sh.line(t.Context(), "begin")
	require.Equal(t, "t.ebb users*> ", sh.prompt())
	sh.colours = true
	require.Equal(t, "\x1b[36mt.ebb users\x1b[33m*\x1b[0m\x1b[0m> ", sh.prompt())
	sh.line(t.Context(), "rollback")
}

// TestOutputIsPaged: after each page the shell asks, and q ends the command without an error.
func TestOutputIsPaged(t *testing.T) {
	sh, stderr := openShell(t)
	for range 5 {
		require.Equal(t, exitOK, sh.line(t.Context(), "incr n"))
		require.Equal(t, exitOK, sh.line(t.Context(), "put k"+strings.Repeat("x", int(sh.rows(t)))+" v"))
	}
	for answers, want := range map[string]int{"": 2, "y": 4, "yy": 6} {
		var seen bytes.Buffer
		sh.stdout = &seen
		sh.page = func(w io.Writer) io.Writer {
			left := answers
			return &pagedWriter{to: w, page: 2, ask: func() bool {
				more := left != ""
				left = strings.TrimPrefix(left, "y")
				return more
			}}
		}
		require.Equal(t, exitOK, sh.line(t.Context(), "scan --keys-only"))
		text := strings.ReplaceAll(seen.String(), "\r"+strings.Repeat(" ", len(askMore))+"\r", "")
		require.Equal(t, want, strings.Count(text, "\n"), "%q", text)
		require.Equal(t, min(len(answers)+1, 2), strings.Count(text, askMore))
	}
	require.Empty(t, stderr.String())
}

func (s *shell) rows(t *testing.T) int64 {
	n, err := s.held.db.Count()
	require.NoError(t, err)
	return n
}

// TestEveryCommandOfTheShellTakesAStoreFirst, which the shell inserts.
func TestEveryCommandOfTheShellTakesAStoreFirst(t *testing.T) {
	root := rootCommand(&app{})
	for name := range inShell {
		cmd, _, err := root.Find([]string{name})
		require.NoError(t, err)
		require.Equal(t, "STORE", strings.Fields(cmd.Use)[1], name)
	}
}
