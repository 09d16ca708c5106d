package wal

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
)

// TestExternalRefsAreDurableFirst records the calls of SyncRefs: ahead of the write of the
// group that ends such a commit, on any leader, and of no other.
func TestExternalRefsAreDurableFirst(t *testing.T) {
	for _, block := range []int{0, 512} {
		d := newDisk(t, block)
		o := testOptions(d)
		o.SegmentSize, o.Inline = 4*MinSegmentSize, true
		o.SyncRefs = func() error {
			_, err := d.do("before", "", 0)
			return err
		}
		l := createTest(t, o)
		steps := func(call func()) (ops []string) {
			d.ops = nil
			call()
			for _, op := range d.ops {
				op, _, _ = strings.Cut(op, " ")
				ops = append(ops, op)
			}
			return ops
		}
		require.NotContains(t, steps(func() { l.commit("plain", true) }), "before")
		l.AddExternalRef(true)
		ops := steps(func() { l.commit("refers", true) })
		require.Equal(t, "before", ops[0])
		require.Greater(t, len(ops), 1)
		require.NotContains(t, steps(func() { l.commit("plain", true) }), "before",
			"it was said of one commit")

		// A part that does not end the commit is written without it.
		l.mustAppend(make([]byte, 100), false)
		require.NotContains(t, steps(func() { require.NoError(t, l.Sync()) }), "before")
		l.AddExternalRef(true)
		ops = steps(func() { l.commit("end", false) })
		require.Equal(t, "before", ops[0], "a commit that waits for no sync, too")

		// What is given up refers to nothing.
		l.mustAppend([]byte("void"), false)
		l.AddExternalRef(true)
		l.Abort()
		require.NotContains(t, steps(func() { l.commit("plain", true) }), "before")

		// One of many in a group, written by the waiter of another.
		end := l.mustAppend([]byte("a"), true)
		l.AddExternalRef(true)
		l.mustAppend([]byte("b"), true)
		l.mustAppend([]byte("c"), true)
		ops = steps(func() { require.NoError(t, l.Wait(end, true)) })
		require.Equal(t, 0, slices.Index(ops, "before"))
	}
}

// TestGroupIsNotWrittenIfItsRefsAreNotDurable: its commits are not in the log, for certain.
func TestGroupIsNotWrittenIfItsRefsAreNotDurable(t *testing.T) {
	boom := errors.New("boom")
	d := newDisk(t, 512)
	o := testOptions(d)
	o.SyncRefs = func() error { return boom }
	l := createTest(t, o)
	l.commit("there", true)
	l.AddExternalRef(true)
	end := l.mustAppend([]byte("not there"), true)
	d.ops = nil
	err := l.Wait(end, true)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, err, boom)
	require.NotErrorIs(t, err, ErrUnknown)
	require.Empty(t, d.ops)
	_, err = l.Append([]byte("after"), true)
	require.ErrorIs(t, err, ErrFailed)
	got, _, err := replayAll(l.opts, l.start, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"there"}, got)
}

// TestLazyRefsAreDurableBeforeTheirCommit: Before is called by the first sync after it, of
// whatever is synced, and by no other.
func TestLazyRefsAreDurableBeforeTheirCommit(t *testing.T) {
	for _, block := range []int{0, 512} {
		for name, sync := range map[string]func(l *testLog){
			"alone":         func(l *testLog) { require.NoError(t, l.Sync()) },
			"with a commit": func(l *testLog) { l.commit("sync", true) },
			"behind a segment's end": func(l *testLog) {
				l.mustRotate()
				l.commit("next", false)
				l.commit("sync", true)
			},
			"with one that refers so": func(l *testLog) { l.AddExternalRef(false); l.commit("sync", true) },
			"firmly":                  func(l *testLog) { l.AddExternalRef(true); l.commit("firm", false) },
			"of a closed log":         func(l *testLog) { require.NoError(t, l.Close(false)) },
		} {
			d := newDisk(t, block)
			o := testOptions(d)
			o.SegmentSize, o.Inline = 4*MinSegmentSize, true
			befores := 0
			o.SyncRefs = func() error {
				befores++
				return nil
			}
			l := createTest(t, o)
			l.commit("plain", true)
			l.commit("plain", false) // written directly, perhaps, and what comes next is not
			l.AddExternalRef(false)
			l.commit("loose", false)
			l.commit("plain", false)
			require.Zero(t, befores, name)
			synced, early := l.Durable(), false
			d.hook = func(op, file string, n int) (int, error) {
				early = early ||
					op == "syncdata" && !strings.HasSuffix(file,
						"-000002") && l.Durable() == synced && befores == 0
				return n, nil
			}
			sync(l)
			d.hook = nil
			require.False(t, early, name)
			require.Equal(t, 1, befores, name)
			if name != "of a closed log" {
				l.commit("plain", true)
				require.NoError(t, l.Sync())
				require.Equal(t, 1, befores, "it was said of one commit")
			}
			if name == "with a commit" || name == "alone" {
				l.AddExternalRef(false)
				l.commit("loose", true)
				require.Equal(t, 2, befores)
			}
		}
	}
}

// TestSyncFailsIfExternalRefsAreNotDurable: the outcome of the written commit is unknown to a
// later waiter.
func TestSyncFailsIfExternalRefsAreNotDurable(t *testing.T) {
	boom := errors.New("boom")
	d := newDisk(t, 512)
	o := testOptions(d)
	o.SyncRefs = func() error { return boom }
	l := createTest(t, o)
	l.AddExternalRef(false)
	end := l.mustAppend([]byte("loose"), true)
	require.NoError(t, l.Wait(end, false))
	err := l.Sync()
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorIs(t, err, boom)
	_, err = l.Append([]byte("after"), true)
	require.ErrorIs(t, err, ErrFailed)
}

// TestLogEndsBeforeACommitWithLostRefs: of one that nothing says was durable; else that is
// damage.
func TestLogEndsBeforeACommitWithLostRefs(t *testing.T) {
	for name, test := range map[string]struct {
		then func(l *testLog)
		bad  bool
	}{
		"at the end":    {func(*testLog) {}, false},
		"before others": {func(l *testLog) { l.commit("plain", false); l.commit("plain", false) }, false},
		"many parts":    {func(l *testLog) { l.commit("plain", false) }, false},
		"synced": {func(l *testLog) {
			require.NoError(t, l.Sync())
			l.commit("one that says so", true)
		}, true},
		"noted": {func(l *testLog) { require.NoError(t, l.Close(false)) }, true},
		"in an earlier one": {func(l *testLog) {
			l.mustRotate()
			l.commit("next", false)
		}, false},
		"in one that is synced": {func(l *testLog) {
			_, err := l.Rotate()
			require.NoError(t, errors.Join(err, l.Sync()))
			l.commit("next", false)
		}, true},
		"on record as durable": {func(*testLog) {}, true},
	} {
		d := newDisk(t, 0)
		o := testOptions(d)
		o.SegmentSize, o.Inline = 4*MinSegmentSize, true
		o.SyncRefs = func() error { return nil }
		l := createTest(t, o)
		l.commit("before", false)
		taken := "taken"
		if name == "many parts" {
			taken = text(1, 5*MinSegmentSize)
		}
		l.AddExternalRef(false)
		l.commit(taken, false)
		durable := LSN(0)
		if name == "on record as durable" {
			durable = l.End()
		}
		test.then(l)
		found := mustScan(t, o)
		var got []string
		tail, err := found.Replay(l.start, durable, joined(func(payload []byte, _ LSN) error {
			if string(payload) == taken {
				return fmt.Errorf("%w: all of it", ErrRefLost)
			}
			got = append(got, string(payload))
			return nil
		}))
		require.Equal(t, []string{"before"}, got, name)
		if test.bad {
			require.ErrorIs(t, err, badfile.ErrCorrupt, name)
			require.ErrorContains(t, err, "all of it", name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, 1, tail.Commits, name)
		require.GreaterOrEqual(t, tail.Dropped, int64(len(taken)), name)
	}
}
