package wal

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestClosedSegmentIsSyncedByFirstSyncWaiter: commits without a sync cause none at the end of a segment.
// The first waiter that wants a sync syncs the closed segments, each once and in their order, with
// all that they refer to.
func TestClosedSegmentIsSyncedByFirstSyncWaiter(t *testing.T) {
	forKinds(t, func(t *testing.T, block int) {
		d := newDisk(t, block)
		o := testOptions(d)
		o.SyncRefs = func() error { _, err := d.do("before", "", 0); return err }
		l := createTest(t, o)
		l.commit("durable", true)
		durable := l.Durable()
		// Segments are synced when they are made; that is not what is looked at.
		synced := func(ops []string) (names []string) {
			for _, op := range ops {
				if number, ok := strings.CutPrefix(op, "syncdata dir/app.ebb-wal-"); ok {
					names = append(names, number)
				} else if strings.HasPrefix(op, "before") {
					names = append(names, "before")
				}
			}
			return names
		}
		l.commit("perhaps written directly", false)
		before := len(d.ops)
		l.AddExternalRef(false)
		for l.syncer.segment.number < 4 {
			l.commit(text(len(l.commits), 900), false)
		}
		require.Empty(t, synced(d.ops[before:]))
		require.LessOrEqual(t, l.Durable(), durable+LSN(1000), "at most what had to be written directly")
		require.True(t, l.syncer.hasUnsyncedSegments())

		before = len(d.ops)
		l.commit("durable again", true)
		require.Equal(t, []string{"before", "000001", "000002", "000003", "000004"}, synced(d.ops[before:]))
		require.Equal(t, l.End(), l.Durable())
		require.False(t, l.syncer.hasUnsyncedSegments())

		before = len(d.ops)
		l.commit("and again", true)
		require.Equal(t, block > 0, len(synced(d.ops[before:])) == 0, "directly, where it can be")
		mustReplay(t, o, l.start, l.Durable(), l.commits)
	})
}

// TestPowerCutBehindUnsyncedSegments: whatever sectors of ended segments and of the current one
// are left, what is found is a prefix with all that was durable, and what lies behind a gap is
// counted.
func TestPowerCutBehindUnsyncedSegments(t *testing.T) {
	forKinds(t, func(t *testing.T, block int) {
		gaps := 0
		for seed := range uint64(80) {
			rng := rand.New(rand.NewPCG(seed, 9))
			d := newDisk(t, block)
			o := testOptions(d)
			// Then the first ones are short.
			o.SegmentSize, o.FirstSegmentBytes = o.SegmentSize<<(2*(seed%2)), 1
			l := createTest(t, o)
			acked := 0
			for range 2 + rng.IntN(3) {
				for first := l.syncer.segment.number; l.syncer.segment.number == first; {
					l.commit(text(len(l.commits), 3+rng.IntN(3000)), false)
				}
				if rng.IntN(3) == 0 {
					require.NoError(t, l.Sync())
					acked = len(l.commits)
				}
			}
			rate := rng.IntN(4)
			after := l.opts
			after.FS = d.crash(func() bool { return rng.IntN(12) > rate })
			got, tail, err := replayAll(after, l.start, l.Durable())
			require.NoError(t, err, "seed %d", seed)
			require.GreaterOrEqual(t, len(got), acked, "seed %d", seed)
			require.True(t, slices.Equal(got, l.commits[:len(got)]), "seed %d", seed)
			// more than one segment has
			if len(got) < len(l.commits) && tail.Dropped > MinSegmentSize-firstRecord {
				gaps++
			}
		}
		require.Greater(t, gaps, 10, "records of later segments behind a gap")
	})
}

// heldLog is a log with a closed segment whose sync a waiter has started, and which the test holds
// up.
type heldLog struct {
	*testLog
	d        *disk
	inside   chan struct{}
	proceed  chan error
	settled  chan error // result of the waiter that syncs
	settling LSN
}

func holdSettling(t *testing.T, block int) *heldLog {
	d := newDisk(t, block)
	o := testOptions(d)
	h := &heldLog{d: d, inside: make(chan struct{}), proceed: make(chan error), settled: make(chan error, 1)}
	o.SyncRefs = func() error { h.inside <- struct{}{}; return <-h.proceed }
	h.testLog = createTest(t, o)
	h.AddExternalRef(false)
	h.commit("in the first segment", false)
	next, err := h.Rotate()
	require.NoError(t, err)
	h.settling = next
	go func() { h.settled <- h.Sync() }()
	soon(t, h.inside)
	return h
}

// soon receives, and fails the test if there is nothing for long.
func soon[T any](t *testing.T, from chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(10 * time.Second):
		require.FailNow(t, "nothing comes")
	}
	return got
}

// TestCommitsContinueDuringSegmentSync: commits without a sync go on, over the ends of segments,
// too. A waiter that wants a sync returns when the segments closed before are synced, by any
// goroutine.
func TestCommitsContinueDuringSegmentSync(t *testing.T) {
	forKinds(t, func(t *testing.T, block int) {
		h := holdSettling(t, block)
		h.commit("beside", false)
		waiting := h.fly("wants a sync")
		h.commits = append(h.commits, "wants a sync")
		h.parked(1)
		for h.syncer.segment.number < 4 {
			h.commit(text(len(h.commits), 900), false)
		}
		unanswered(t, h.settled, waiting)
		require.Less(t, h.Durable(), h.settling)
		h.proceed <- nil
		require.NoError(t, soon(t, h.settled))
		require.GreaterOrEqual(t, h.Durable(), h.settling)
		require.NoError(t, soon(t, waiting)) // Nothing else was referred to: Before is not called again.
		require.GreaterOrEqual(t, h.Durable(), h.opts.start(4), "the others have ended by now")
		h.commit("durable", true)
		require.Equal(t, h.End(), h.Durable())
		h.syncer.mu.Lock()
		require.False(t, h.syncer.leading)
		require.Empty(t, h.syncer.waiters)
		h.syncer.mu.Unlock()
		mustReplay(t, h.opts, h.start, h.Durable(), h.commits)
	})
}

// TestWaiterBeyondSegmentSyncGetsALeader: the goroutine that synced the segments resigns the
// lead to it.
func TestWaiterBeyondSegmentSyncGetsALeader(t *testing.T) {
	h := holdSettling(t, 0)
	h.commit("beside", false)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- h.Sync() }()
	go func() { second <- h.Sync() }()
	h.parked(2)
	h.proceed <- nil
	require.NoError(t, errors.Join(soon(t, h.settled), soon(t, first), soon(t, second)))
	require.Equal(t, h.End(), h.Durable())
}

// TestExternalRefsDuringSegmentSync is made durable by the next sync.
func TestExternalRefsDuringSegmentSync(t *testing.T) {
	h := holdSettling(t, 512)
	h.AddExternalRef(false)
	h.commit("beside", false)
	h.proceed <- nil
	require.NoError(t, soon(t, h.settled))
	go func() { h.settled <- h.Sync() }()
	soon(t, h.inside)
	require.Less(t, h.Durable(), h.End())
	h.proceed <- nil
	require.NoError(t, soon(t, h.settled))
	require.Equal(t, h.End(), h.Durable())
}

// TestFailedSegmentSyncIsFinal: waiters for a sync get ErrUnknown, waiters without one have returned, and the
// log writes nothing more.
func TestFailedSegmentSyncIsFinal(t *testing.T) {
	for _, of := range []string{"before", "the segment"} {
		h := holdSettling(t, 0)
		h.commit("beside", false)
		waiting := h.fly("wants a sync")
		h.parked(1)
		if of == "before" {
			h.proceed <- errBoom
		} else {
			h.d.hook = func(op, name string, n int) (int, error) {
				if op == "syncdata" {
					require.Contains(t, name, "-000001")
					return 0, errBoom
				}
				return n, nil
			}
			h.proceed <- nil
		}
		for _, answer := range []chan error{h.settled, waiting} {
			err := soon(t, answer)
			require.ErrorIs(t, err, ErrUnknown)
			require.ErrorIs(t, err, errBoom)
		}
		h.d.hook = nil
		before := len(h.d.ops)
		_, err := h.Append([]byte("after"), true)
		require.ErrorIs(t, err, ErrFailed)
		require.ErrorIs(t, h.Close(false), errBoom)
		require.Len(t, h.d.ops, before)
	}
}
