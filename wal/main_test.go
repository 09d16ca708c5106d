package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/leak"
	"github.com/ebbkv/ebb/internal/vfs"
)

// testOptions are those of most tests: small segments and salts that repeat from run to run.
func testOptions(fsys vfs.FS) Options {
	src := rand.NewPCG(1, 2)
	return Options{
		FS:          fsys,
		Path:        "dir/app.ebb",
		StoreID:     [16]byte{15: 7},
		SegmentSize: MinSegmentSize,
		Rand:        src.Uint64,
		Inline:      true,
	}
}

// testLog is a Log whose commits are remembered.
type testLog struct {
	*Log
	t       testing.TB
	opts    Options
	start   LSN
	commits []string
}

func createTest(t testing.TB, o Options) *testLog {
	l, err := Create(o, 1, 1)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close(false) })
	return &testLog{Log: l, t: t, opts: o, start: l.End()}
}

func (l *testLog) mustAppend(payload []byte, last bool) LSN {
	l.t.Helper()
	end, err := l.Append(payload, last)
	require.NoError(l.t, err)
	return end
}

func (l *testLog) mustRotate() LSN {
	l.t.Helper()
	cut, err := l.Rotate()
	require.NoError(l.t, err)
	return cut
}

// commit appends one commit and waits for it.
func (l *testLog) commit(payload string, sync bool) LSN {
	l.t.Helper()
	end := l.mustAppend([]byte(payload), true)
	require.NoError(l.t, l.Wait(end, sync))
	l.commits = append(l.commits, payload)
	return end
}

func mustScan(t testing.TB, o Options) *ScanResult {
	t.Helper()
	found, err := Scan(o)
	require.NoError(t, err)
	return found
}

// replayAll scans and replays.
func replayAll(o Options, start, durable LSN) (commits []string, tail Tail, err error) {
	found, err := Scan(o)
	if err != nil {
		return nil, Tail{}, err
	}
	if err := found.Chain(start); err != nil {
		return nil, Tail{}, err
	}
	tail, err = found.Replay(start, durable, joined(func(payload []byte, _ LSN) error {
		commits = append(commits, string(payload))
		return nil
	}))
	return commits, tail, err
}

// joined is for Replay, and calls fn with the parts of each commit joined.
func joined(fn func(payload []byte, lsn LSN) error) func(Part) error {
	var all []byte
	return func(p Part) error {
		if p.First {
			all = nil
		}
		if all = append(all, p.Payload...); !p.Last {
			return nil
		}
		return fn(all, p.Commit)
	}
}

// mustReplay wants exactly the given commits.
func mustReplay(t testing.TB, o Options, start, durable LSN, want []string) Tail {
	t.Helper()
	got, tail, err := replayAll(o, start, durable)
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i], got[i], "commit %d", i)
	}
	require.Equal(t, len(want), tail.Commits)
	return tail
}

// text makes a payload of the given size that, with a few bytes at least, tells itself apart from
// all others.
func text(i, size int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<%d>", i)
	for b.Len() < size {
		fmt.Fprintf(&b, "%d.", b.Len()*(i+1))
	}
	return b.String()[:size]
}

// readFile and writeFile go around the log.
func readFile(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	f, err := fsys.Open(name, 0)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	b := make([]byte, size)
	require.NoError(t, vfs.ReadFull(f, b, 0))
	require.NoError(t, f.Close())
	return b
}

func writeFile(t testing.TB, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fsys.Open(name, vfs.Write|vfs.Create)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(0))
	require.NoError(t, vfs.WriteFull(f, b, 0))
	require.NoError(t, f.Close())
}

var errBoom = errors.New("boom")

// parked waits until n waiters wait.
func (l *testLog) parked(n int) {
	l.t.Helper()
	require.Eventually(
		l.t,
		func() bool { l.syncer.mu.Lock(); defer l.syncer.mu.Unlock(); return len(l.syncer.waiters) == n },
		time.Minute,
		time.Millisecond,
	)
}

// kinds are the ways in which data reaches a disk.
var kinds = []struct {
	name  string
	block int
}{
	{"direct_512", 512},
	{"direct_4096", 4096},
	{"cached", 0},
}

func forKinds(t *testing.T, fn func(t *testing.T, block int)) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) { fn(t, kind.block) })
	}
}

func TestMain(m *testing.M) { leak.Main(m) }
