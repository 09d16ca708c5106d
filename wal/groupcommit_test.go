package wal

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// tower holds direct writes back between the moment at which they are written and the one at which
// they are durable.
type tower struct {
	t       testing.TB
	arrived chan int64 // offsets, in the order in which they were written
	mu      sync.Mutex // guards the fields below
	open    bool
	held    map[int64]chan struct{}
}

// towered is a log with one commit, whose further direct writes of records wait to be let land.
func towered(t *testing.T, o func(*Options)) (*testLog, *disk, *tower) {
	d := newDisk(t, 512)
	opts := testOptions(d)
	opts.SegmentSize = 4 * MinSegmentSize
	if o != nil {
		o(&opts)
	}
	tw := &tower{t: t, arrived: make(chan int64, 100), held: map[int64]chan struct{}{}}
	tw.open = true
	d.landing = func(off int64) {
		tw.mu.Lock()
		if tw.open || off < firstRecord {
			tw.mu.Unlock()
			return
		}
		ch := make(chan struct{})
		tw.held[off] = ch
		tw.mu.Unlock()
		tw.arrived <- off
		<-ch
	}
	l := createTest(t, opts)
	l.commit("before", true)
	tw.open = false
	t.Cleanup(func() { // before the log is closed
		tw.mu.Lock()
		defer tw.mu.Unlock()
		tw.open = true
		for _, ch := range tw.held {
			close(ch)
		}
	})
	return l, d, tw
}

// next waits until another write is held, and gives its offset.
func (tw *tower) next() int64 {
	tw.t.Helper()
	select {
	case off := <-tw.arrived:
		return off
	case <-time.After(10 * time.Second):
		require.FailNow(tw.t, "no write")
		return 0
	}
}

// noWrite checks that no other write is held, a moment from now.
func (tw *tower) noWrite() {
	tw.t.Helper()
	select {
	case off := <-tw.arrived:
		require.FailNow(tw.t, "another write is in flight", "at %d", off)
	case <-time.After(20 * time.Millisecond):
	}
}

func (tw *tower) land(off int64) {
	tw.mu.Lock()
	close(tw.held[off])
	delete(tw.held, off)
	tw.mu.Unlock()
}

// fly commits by a goroutine, and gives the channel of its answer.
func (l *testLog) fly(payload string) (answer chan error) {
	l.t.Helper()
	end, err := l.Append([]byte(payload), true)
	require.NoError(l.t, err)
	answer = make(chan error, 1)
	go func() { answer <- l.Wait(end, true) }()
	return answer
}

func unanswered(t *testing.T, answers ...chan error) {
	t.Helper()
	time.Sleep(5 * time.Millisecond)
	for i, a := range answers {
		require.Empty(t, a, "answer %d", i)
	}
}

// whileGathering runs fn once while a leader waits for followers.
func whileGathering(t *testing.T, fn func()) {
	gosched = func() { fn() }
	t.Cleanup(func() { gosched = runtime.Gosched })
}

// crowdedLog is a log whose last group had three commits, with one more appended.
func crowdedLog(t *testing.T) (l *testLog, d *disk, end LSN) {
	d = newDisk(t, 512)
	l = createTest(t, testOptions(d))
	for range 3 {
		var err error
		end, err = l.Append([]byte("before"), true)
		require.NoError(t, err)
	}
	require.NoError(t, l.Wait(end, true))
	end, err := l.Append([]byte("first"), true)
	require.NoError(t, err)
	return l, d, end
}

// TestLeaderWritesConcurrentCommits: one sync does for both.
func TestLeaderWritesConcurrentCommits(t *testing.T) {
	l, _, end := crowdedLog(t)
	groups, yields := l.Groups(), 0
	var second LSN
	whileGathering(t, func() {
		yields++
		var err error
		second, err = l.Append([]byte("second"), true)
		require.NoError(t, err)
	})
	require.NoError(t, l.Wait(end, true))
	require.Equal(t, 1, yields)
	require.Equal(t, second, l.Durable())
	require.Equal(t, groups+1, l.Groups())
}

// TestLogFailedDuringWaitForFollowersIsNotWritten: the leader lets go of the lock before it
// writes, and must look again.
func TestLogFailedDuringWaitForFollowersIsNotWritten(t *testing.T) {
	l, d, end := crowdedLog(t)
	boom := errors.New("boom")
	whileGathering(t, func() { l.Fail(boom) })
	d.hook = func(op, _ string, n int) (int, error) {
		t.Errorf("%s after the failure", op)
		return n, nil
	}
	err := l.Wait(end, true)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, err, boom)
	require.Less(t, l.Written(), end)
	d.hook = nil
}

// TestSingleCommitterDoesNotWaitForFollowers: a lone writer's commits go at once.
func TestSingleCommitterDoesNotWaitForFollowers(t *testing.T) {
	l := createTest(t, testOptions(newDisk(t, 512)))
	whileGathering(t, func() { t.Error("it waits") })
	for range 3 {
		end := l.mustAppend([]byte("alone"), true)
		require.NoError(t, l.Wait(end, true))
	}
}

// TestOneGroupIsWrittenAtATime: commits that are appended during a write share the next one, which
// starts when the first has completed.
func TestOneGroupIsWrittenAtATime(t *testing.T) {
	l, _, tw := towered(t, nil)
	before := l.Durable()
	first := l.fly("first")
	one := tw.next()
	second := l.fly("second")
	third := l.fly("third")
	l.parked(2)
	tw.noWrite()
	unanswered(t, first, second, third)
	require.Equal(t, before, l.Durable())
	tw.land(one)
	require.NoError(t, <-first)
	two := tw.next()
	unanswered(t, second, third)
	tw.land(two)
	require.NoError(t, errors.Join(<-second, <-third))
	require.Equal(t, l.End(), l.Durable())
	require.Equal(t, uint64(3), l.Groups())
	mustReplay(t, l.opts, l.start, l.Durable(), []string{"before", "first", "second", "third"})
}

// TestCommitInFlightIsUndecidedUntilItsWriteReturns: a log that fails for another reason reports
// neither ErrUnknown nor ErrFailed for a group that is being written.
func TestCommitInFlightIsUndecidedUntilItsWriteReturns(t *testing.T) {
	l, _, tw := towered(t, nil)
	end := l.mustAppend([]byte("also"), true)
	first := l.fly("first")
	one := tw.next()
	second := l.fly("second")
	also := make(chan error, 1)
	go func() { also <- l.Wait(end, true) }()
	l.parked(2)
	boom := errors.New("boom")
	l.Fail(boom)
	late := make(chan error, 1)
	go func() { late <- l.Wait(end, true) }()
	unanswered(t, first, also, late)
	tw.land(one)
	require.NoError(t, errors.Join(<-first, <-also, <-late))
	err := <-second
	require.ErrorIs(t, err, boom)
	require.ErrorIs(t, err, ErrFailed)
	require.NotErrorIs(t, err, ErrUnknown)
	tw.noWrite()
	mustReplay(t, l.opts, l.start, l.Durable(), []string{"before", "also", "first"})
}

// TestFailedGroupFailsTheNextOne: the group that was not written is not in the log for certain; the
// one that was is not if it could be truncated.
func TestFailedGroupFailsTheNextOne(t *testing.T) {
	for name, c := range map[string]struct {
		failing string // of the truncation
		result  error
	}{
		"truncated":     {result: ErrFailed},
		"not_truncated": {failing: "truncate", result: ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			l, d, _ := towered(t, nil)
			boom, writing, proceed := errors.New("boom"), make(chan bool), make(chan bool)
			d.hook = func(op, _ string, n int) (int, error) {
				switch op {
				case "direct":
					d.mu.Unlock()
					writing <- true
					<-proceed
					d.mu.Lock()
					return n - 1, boom
				case c.failing:
					return 0, boom
				}
				return n, nil
			}
			first := l.fly("first")
			<-writing
			second := l.fly("second")
			l.parked(1)
			proceed <- true
			err := <-first
			require.ErrorIs(t, err, boom)
			require.ErrorIs(t, err, c.result)
			err = <-second
			require.ErrorIs(t, err, boom)
			require.ErrorIs(t, err, ErrFailed)
			require.NotErrorIs(t, err, ErrUnknown)
			want := []string{"before", "first"}
			if c.failing == "" {
				want = want[:1]
			}
			mustReplay(t, l.opts, l.start, l.Durable(), want)
			require.Equal(t, 1, d.count("truncate"))
		})
	}
}

// TestNoWriteStartsDuringTruncate: it would end up behind a hole, and the cut would not
// know of it.
func TestNoWriteStartsDuringTruncate(t *testing.T) {
	l, d, tw := towered(t, nil)
	boom, cutting, cut := errors.New("boom"), make(chan struct{}), make(chan struct{})
	d.hook = func(op, _ string, n int) (int, error) {
		switch op {
		case "direct":
			return 0, boom
		case "truncate":
			close(cutting)
			d.mu.Unlock()
			<-cut
			d.mu.Lock()
		}
		return n, nil
	}
	first := l.fly("first")
	<-cutting
	writes := d.count("direct")
	second := l.fly("second")
	tw.noWrite()
	unanswered(t, first, second)
	close(cut)
	require.ErrorIs(t, <-first, ErrFailed)
	require.ErrorIs(t, <-second, ErrFailed)
	require.Equal(t, writes, d.count("direct"))
}

// TestSyncDoesNotWaitForUnfinishedParts: a checkpoint syncs the log while a transaction hands
// it parts, and then rolls back. Sync waited for a place that the log had not reached, and synced
// again and again meanwhile.
func TestSyncDoesNotWaitForUnfinishedParts(t *testing.T) {
	l, d, tw := towered(t, nil)
	first := l.fly("first")
	one := tw.next()
	l.mustAppend([]byte(text(1, 5000)), false)
	synced := make(chan error, 1)
	go func() { synced <- l.Sync() }()
	unanswered(t, synced)
	l.Abort()
	syncs := d.count("syncdata")
	tw.land(one)
	require.NoError(t, errors.Join(<-first, <-synced))
	require.Equal(t, syncs, d.count("syncdata"))
	require.Equal(t, l.End(), l.Durable())
}

// TestSyncWaiterForWrittenBytesLeads: nothing of it is in the queue, or on its way.
func TestSyncWaiterForWrittenBytesLeads(t *testing.T) {
	d := newDisk(t, 0)
	l := createTest(t, testOptions(d))
	writing, proceed := make(chan struct{}), make(chan struct{})
	d.hook = func(op, _ string, n int) (int, error) {
		if op == "write" {
			d.hook = nil
			close(writing)
			d.mu.Unlock()
			<-proceed
			d.mu.Lock()
		}
		return n, nil
	}
	end := l.mustAppend([]byte("x"), true)
	unsynced, synced := make(chan error, 1), make(chan error, 1)
	go func() { unsynced <- l.Wait(end, false) }()
	<-writing
	go func() { synced <- l.Wait(end, true) }()
	l.parked(1)
	close(proceed)
	require.NoError(t, errors.Join(<-unsynced, <-synced))
	require.Equal(t, end, l.Durable())
}

// TestCommitAllocatesNothing, synced or not, once the log has what it uses again.
func TestCommitAllocatesNothing(t *testing.T) {
	for _, sync := range []bool{false, true} {
		o := testOptions(vfs.NewMemory())
		o.SegmentSize = 4 << 20
		l := createTest(t, o)
		payload := []byte(text(1, 100))
		require.Zero(t, testing.AllocsPerRun(500, func() {
			end, err := l.Append(payload, true)
			if err == nil {
				err = l.Wait(end, sync)
			}
			if err != nil {
				t.Error(err)
			}
		}), "sync %v", sync)
	}
}

// TestHintIsWrittenAfterTheLastGroup: a log without waiters writes its durability hint.
func TestHintIsWrittenAfterTheLastGroup(t *testing.T) {
	l, d, tw := towered(t, nil)
	first := l.fly("first")
	one := tw.next()
	second := l.fly("second")
	l.parked(1)
	hints := d.count("write")
	tw.land(one)
	require.NoError(t, <-first)
	two := tw.next()
	require.Equal(t, hints, d.count("write"), "the second is still being written")
	tw.land(two)
	require.NoError(t, <-second)
	require.Eventually(t, func() bool { return d.count("write") == hints+1 }, time.Minute, time.Millisecond)
	l.syncer.mu.Lock()
	defer l.syncer.mu.Unlock()
	require.False(t, l.syncer.leading)
	require.Equal(t, l.Durable(), l.syncer.hintedLSN)
}
