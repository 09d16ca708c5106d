package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPurgeDeletesWhatIsDueInBatches(t *testing.T) {
	s := newTimedStore(t)
	s.fill("default", 300)
	s.fill("other", 20)
	none := map[string]any{"purged": 0.0, "batches": 0.0, "more": false, "bytes_reclaimed": 0.0}
	require.Equal(t, none, object(t, s.good("purge", "--json")))
	s.now = s.now.Add(time.Second)

	require.Equal(t, "20 keys purged in 1 batch, 200 B\n", s.good("purge", "--family", "other"))
	require.Equal(t, "0 keys purged in 0 batches, 0 B\n", s.good("purge", "--family", "other"))
	require.Equal(t, "10 keys purged in 1 batch, 100 B; more are due\n", s.good("purge", "--limit", "10"))

	a := s.ebb("purge", "--batch", "100", "--json", "--progress=lines")
	require.Equal(t, exitOK, a.code, a.stderr)
	require.Equal(
		t,
		map[string]any{"purged": 290.0, "batches": 3.0, "more": false, "bytes_reclaimed": 2900.0},
		object(t, a.out),
	)
	require.Equal(t, []map[string]any{
		{"done": 100.0, "total": 290.0}, {"done": 200.0, "total": 290.0}, {"done": 290.0, "total": 290.0},
	}, objects(t, a.stderr))

	require.Equal(t, "permanent\n", s.good("scan", "--keys-only"))
	require.Equal(t, none, object(t, s.good("purge", "--json", "--force")))
	s.good("check")
	s.code(exitNotFound, "family_not_found", "purge", "--family", "absent")
}

func TestPurgeTakesTheWholeOfADefaultSizedBatchAtOnce(t *testing.T) {
	s := newTimedStore(t)
	s.fill("default", 257)
	s.now = s.now.Add(time.Second)
	require.Equal(t, "257 keys purged in 2 batches, 2.5 KiB\n", s.good("purge"))
}

// TestAnInterruptedPurgeReportsWhatItDid cancels after the first batch; the batch stays purged.
func TestAnInterruptedPurgeReportsWhatItDid(t *testing.T) {
	s := newTimedStore(t)
	s.fill("default", 30)
	s.now = s.now.Add(time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	stderr := writerFunc(func(b []byte) { cancel() }) // the first progress line comes after the first commit
	a := &app{
		stdin:  strings.NewReader(""),
		out:    newOutput(&out),
		stderr: stderr,
		clock:  func() time.Time { return s.now },
	}
	code := a.run(ctx, []string{"purge", s.path, "--batch", "10", "--progress=lines"})
	require.Equal(t, exitError, code)
	require.Equal(t, "10 keys purged in 1 batch, 100 B; more are due\n", out.String())
	require.Equal(t, 20.0, familyStats(t, s.good("stats", "--json"), "default")["due"])
}

type writerFunc func(b []byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}
