package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// interruptedEbb runs a command that must end because its context does.
func interruptedEbb(ctx context.Context, t *testing.T, stdin io.Reader, args ...string) answer {
	t.Helper()
	var out, stderr bytes.Buffer
	code := run(ctx, append(args, "--json"), stdin, &out, &stderr)
	require.Equal(t, exitError, code, "ebb %q", args)
	m := object(t, stderr.String())
	require.Equal(t, "interrupted", m["kind"], "ebb %q: %s", args, stderr.String())
	require.Contains(t, m["error"], "interrupted", "ebb %q", args)
	require.NotContains(t, m["error"], "context", "ebb %q", args)
	return answer{code, out.String(), stderr.String()}
}

// ended is a context that has been interrupted.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// endsAfter is a context that is looked at so many times before it has ended.
type endsAfter struct {
	context.Context
	looks int
}

func (c *endsAfter) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}

type readerFunc func(b []byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// TestAnInterruptEndsAPutThatReadsItsValue: the first interrupt was swallowed until standard input
// ended.
func TestAnInterruptEndsAPutThatReadsItsValue(t *testing.T) {
	s := storePath(t)
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	defer w.Close() // only now does the read end
	stdin := readerFunc(func(b []byte) (int, error) {
		cancel()
		return r.Read(b)
	})
	interruptedEbb(ctx, t, stdin, "put", s, "k", "-")
	_, err := os.Stat(s)
	require.ErrorIs(t, err, os.ErrNotExist, "nothing was stored")
}

// TestAnInterruptEndsTheWaitForALock: it was not heard before --wait was over.
func TestAnInterruptEndsTheWaitForALock(t *testing.T) {
	s := storePath(t)
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	defer db.Close()
	for _, args := range [][]string{{"get", s, "k"}, {"put", s, "k", "v"}, {"check", s}, {"pages", s},
		{"wal", s}} {
		interruptedEbb(ended(t), t, nil, append(args, "--wait", "20s")...)
	}
}

// TestAnInterruptHasOneName: some commands said "context canceled", others "interrupt signal
// received".
func TestAnInterruptHasOneName(t *testing.T) {
	s, dir := storePath(t), t.TempDir()
	good(t, "put", s, "k", "v")
	writeFile(t, filepath.Join(dir, "file"), "v")
	for _, args := range [][]string{
		{"put", s, "k", "w"}, {"del", s, "k"}, {"scan", s}, {"dump", s}, {"expire", s, "k",
			"1h"}, {"persist", s, "k"},
		{"import", s, dir}, {"export", s, t.TempDir()}, {"family", s, "a", "--create"}, {"pages", s},
		{"bench-quick", "--dir", t.TempDir()}, {"demo", s + ".demo", dir},
	} {
		interruptedEbb(ended(t), t, nil, args...)
	}
	require.Equal(t, "k\tv\n", good(t, "scan", s))
}

// TestAnInterruptedCheckAccusesNoStore: it called a sound store damaged, with a problem that was
// the interrupt.
func TestAnInterruptedCheckAccusesNoStore(t *testing.T) {
	s := filledStore(t)
	require.Empty(t, interruptedEbb(ended(t), t, nil, "check", s).out)
}

// TestAnInterruptedCheckKeepsWhatItHasFound ends the search of a damaged store at each place where
// it can end.
func TestAnInterruptedCheckKeepsWhatItHasFound(t *testing.T) {
	s := filledStore(t)
	for _, line := range objects(t, good(t, "pages", s, "--json")) {
		if line["kind"] == "leaf" && line["use"] == "used" && line["count"].(float64) > 20 { // of rows
			flip(t, s, int64(line["pgid"].(float64))*4096+1000)
		}
	}
	db, err := kv.Open(s, &kv.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	whole, cut := findProblems(t.Context(), db)
	require.NoError(t, cut)
	some := false
	for looks := 0; ; looks++ {
		found, cut := findProblems(&endsAfter{t.Context(), looks}, db)
		if cut == nil {
			require.Equal(t, whole, found)
			break
		}
		require.Equal(t, whole[:len(found)], found)
		some = some || len(found) > 0
	}
	require.True(t, some)
}

// TestAnInterruptOfAReaderSaysNothingOfCommits: it was told that everything committed before is
// durable.
func TestAnInterruptOfAReaderSaysNothingOfCommits(t *testing.T) {
	s, dir := filledStore(t), t.TempDir()
	writeFile(t, filepath.Join(dir, "file"), "v")
	for _, args := range [][]string{{"scan", s}, {"dump", s}, {"check", s}, {"pages", s},
		{"bench-quick", "--dir", t.TempDir()}} {
		require.NotContains(t, object(t, interruptedEbb(ended(t), t, nil, args...).stderr), "hint",
			"ebb %q", args)
	}
	for _, args := range [][]string{{"put", s, "k", "v"}, {"import", s, dir}} {
		require.Contains(
			t,
			object(t, interruptedEbb(ended(t), t, nil, args...).stderr)["hint"],
			"durable",
			"ebb %q",
			args,
		)
	}
}

// TestOnlyImportHasResume: the demo, which imports too, advised to resume with a flag that it does
// not have.
func TestOnlyImportHasResume(t *testing.T) {
	s, dir := storePath(t), t.TempDir()
	writeFile(t, filepath.Join(dir, "file"), "v")
	require.Contains(t, interruptedEbb(ended(t), t, nil, "import", s, dir).stderr, "--resume")
	tree, err := listTree(dir, s)
	require.NoError(t, err)
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	defer db.Close()
	im := importer{app: &app{family: defaultFamily}, batchBytes: 1, resume: true}
	_, err = im.run(ended(t), db, tree)
	require.ErrorIs(t, err, context.Canceled)
	require.NotContains(t, err.Error(), "--resume")
}
