package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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
		require.FailNow(tw.t, "somebody writes", "at %d", off)
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

// TestTwoGroupsAreInFlightAtATime: the second is written beside the first, the third waits, and
// each is told in its turn.
func TestTwoGroupsAreInFlightAtATime(t *testing.T) {
	l, _, tw := towered(t, nil)
	before := l.Durable()
	first := l.fly("first")
	one := tw.next()
	second := l.fly("second")
	two := tw.next()
	require.Greater(t, two, one)
	third := l.fly("third")
	tw.noWrite()

	tw.land(two) // out of order
	unanswered(t, first, second, third)
	require.Equal(t, before, l.Durable())
	tw.noWrite()
	tw.land(one)
	require.NoError(t, <-first)
	require.NoError(t, <-second)
	three := tw.next()
	unanswered(t, third)
	tw.land(three)
	require.NoError(t, <-third)
	require.Equal(t, l.End(), l.Durable())
	require.Equal(t, uint64(4), l.Groups())
	mustReplay(t, l.opts, l.start, l.Durable(), []string{"before", "first", "second", "third"})
}

// TestFirstGroupIsPublishedBeforeTheSecondCompletes: it does not wait for what it need not.
func TestFirstGroupIsPublishedBeforeTheSecondCompletes(t *testing.T) {
	l, _, tw := towered(t, nil)
	first := l.fly("first")
	one := tw.next()
	second := l.fly("second")
	two := tw.next()
	tw.land(one)
	require.NoError(t, <-first)
	unanswered(t, second)
	third := l.fly("third") // beside the second
	three := tw.next()
	tw.land(two)
	require.NoError(t, <-second)
	tw.land(three)
	require.NoError(t, <-third)
}

// threeOnTheirWay sends a group of three commits, and returns the answer to the last of them, and
// what lands the group.
func threeOnTheirWay(t *testing.T, l *testLog, tw *tower) (first chan error, one int64) {
	for range 2 {
		_, err := l.Append([]byte("company"), true)
		require.NoError(t, err)
	}
	first = l.fly("first")
	return first, tw.next()
}

// TestSecondGroupWaitsForFollowers: it departs beside another one when it ends as many commits, and
// not before.
func TestSecondGroupWaitsForFollowers(t *testing.T) {
	l, _, tw := towered(t, nil)
	first, one := threeOnTheirWay(t, l, tw)
	a := l.fly("a")
	b := l.fly("b")
	tw.noWrite()
	c := l.fly("c")
	two := tw.next()
	tw.land(one)
	require.NoError(t, <-first)
	d := l.fly("d") // alone: it waits for the three to land
	tw.noWrite()
	tw.land(two)
	for _, answer := range []chan error{a, b, c} {
		require.NoError(t, <-answer)
	}
	tw.land(tw.next())
	require.NoError(t, <-d)
}

// A waiter for a commit in flight does not lead; a waiter for a later one does.
func TestWaiterForWriteInFlightDoesNotLead(t *testing.T) {
	l, _, tw := towered(t, nil)
	end, err := l.Append([]byte("first"), true)
	require.NoError(t, err)
	first, again := make(chan error, 1), make(chan error, 1)
	go func() { first <- l.Wait(end, true) }()
	one := tw.next()
	second := l.fly("second")
	two := tw.next()
	go func() { again <- l.Wait(end, true) }()
	require.Eventually(
		t,
		func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.waiters) == 1 },
		time.Minute,
		time.Millisecond,
	)
	l.mu.Lock()
	require.False(t, l.leading)
	l.mu.Unlock()
	third := l.fly("third")
	tw.noWrite()
	tw.land(one)
	require.NoError(t, errors.Join(<-first, <-again))
	three := tw.next() // beside the second
	tw.land(two)
	tw.land(three)
	require.NoError(t, errors.Join(<-second, <-third))
}

// failSecond lets the second direct write from now on fail with the error that it gives, without a
// byte.
func failSecond(d *disk) error {
	boom, writes := errors.New("boom"), 0
	d.hook = func(op, _ string, n int) (int, error) {
		if op == "direct" {
			if writes++; writes == 2 {
				return 0, boom
			}
		}
		return n, nil
	}
	return boom
}

// TestNoWriteStartsBehindAFailedGroup, though the one before it is still on its way.
func TestNoWriteStartsBehindAFailedGroup(t *testing.T) {
	l, d, tw := towered(t, nil)
	boom, writes := failSecond(d), d.count("direct")
	first := l.fly("first")
	one := tw.next()
	second := l.fly("second")
	require.Eventually(
		t,
		func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.writeFailed },
		time.Minute,
		time.Millisecond,
	)
	third := l.fly("third")
	tw.land(one)
	require.NoError(t, <-first)
	require.ErrorIs(t, <-second, boom)
	require.ErrorIs(t, <-third, ErrFailed)
	require.Equal(t, writes+2, d.count("direct"))
}

// TestWaiterForASyncSendsTheSecondGroup: a leader that wants no sync writes it.
func TestWaiterForASyncSendsTheSecondGroup(t *testing.T) {
	l, _, tw := towered(t, nil)
	first, one := threeOnTheirWay(t, l, tw)
	end, err := l.Append([]byte("unsynced"), true)
	require.NoError(t, err)
	unsynced := make(chan error, 1)
	go func() { unsynced <- l.Wait(end, false) }()
	require.Eventually(
		t,
		func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.leading },
		time.Minute,
		time.Millisecond,
	)
	a := l.fly("a")
	require.Eventually(
		t,
		func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.waiters) == 1 },
		time.Minute,
		time.Millisecond,
	)
	b := l.fly("b")
	two := tw.next()
	tw.land(one)
	tw.land(two)
	require.NoError(t, errors.Join(<-first, <-unsynced, <-a, <-b))
}

// TestSyncWaiterWakesALeaderWithoutSync: there had been enough commits before it came.
func TestSyncWaiterWakesALeaderWithoutSync(t *testing.T) {
	l, _, tw := towered(t, nil)
	first := l.fly("first")
	one := tw.next()
	end, err := l.Append([]byte("unsynced"), true)
	require.NoError(t, err)
	unsynced := make(chan error, 1)
	go func() { unsynced <- l.Wait(end, false) }()
	tw.noWrite()
	a := l.fly("a")
	two := tw.next()
	tw.land(one)
	tw.land(two)
	require.NoError(t, errors.Join(<-first, <-unsynced, <-a))
}

// TestSyncDoesNotWaitForUnfinishedParts: a checkpoint syncs the log while a transaction hands
// it parts, and then rolls back. Sync waited for a place that the log had not reached, and synced
// again and again meanwhile.
func TestSyncDoesNotWaitForUnfinishedParts(t *testing.T) {
	l, d, tw := towered(t, nil)
	first := l.fly("first")
	one := tw.next()
	_, err := l.Append([]byte(text(1, 5000)), false)
	require.NoError(t, err)
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

// TestExclusiveWritesAreAloneInFlight: groups that close a segment, refer to bytes outside the
// log, or need no sync are written alone.
func TestExclusiveWritesAreAloneInFlight(t *testing.T) {
	for name, alone := range map[string]func(l *testLog) error{
		"a_seal": func(l *testLog) error {
			_, err := l.Append([]byte("last"), true)
			_, turn := l.Rotate()
			return errors.Join(err, turn, l.Sync())
		},
		"a_reference": func(l *testLog) error { l.AddExternalRef(true); return <-l.fly("refers") },
		"no_sync": func(l *testLog) error {
			end, err := l.Append([]byte("x"), true)
			return errors.Join(err, l.Wait(end, false))
		},
	} {
		t.Run(name, func(t *testing.T) {
			writing := make(chan struct{}, 100)
			l, d, tw := towered(
				t,
				func(o *Options) { o.SyncRefs = func() error { writing <- struct{}{}; return nil } },
			)
			require.NoError(t, l.Prepare())
			d.hook = func(op, _ string, n int) (int, error) {
				if op == "write" {
					writing <- struct{}{}
				}
				return n, nil
			}
			first := l.fly("first")
			one := tw.next()
			answer := make(chan error, 1)
			go func() { answer <- alone(l) }()
			select {
			case <-writing:
				require.Fail(t, "it does not wait")
			case <-time.After(20 * time.Millisecond):
			}
			tw.noWrite()
			tw.land(one)
			require.NoError(t, <-first)
			for done := false; !done; {
				select {
				case <-writing:
				case off := <-tw.arrived:
					tw.land(off)
				case err := <-answer:
					require.NoError(t, err)
					done = true
				}
			}
			d.mu.Lock()
			d.hook = nil
			d.mu.Unlock()
		})
	}
}

// TestCrashWithTwoGroupsInFlight: whatever sectors of them a power cut leaves, the log ends
// before the first that is torn, and a group is there only with the one before it.
func TestCrashWithTwoGroupsInFlight(t *testing.T) {
	for _, landed := range []bool{false, true} { // the second
		t.Run(fmt.Sprintf("second_has_landed_%v", landed), func(t *testing.T) {
			l, d, tw := towered(t, nil)
			first := l.fly(text(1, 1500))
			one := tw.next()
			second := l.fly(text(2, 1500))
			two := tw.next()
			if landed {
				tw.land(two)
				require.Eventually(
					t,
					func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.inflight[1].returned },
					time.Minute,
					time.Millisecond,
				)
			}
			rng, seen := rand.New(rand.NewPCG(3, 4)), map[int]int{}
			all := []string{"before", text(1, 1500), text(2, 1500)}
			for range 300 {
				after := d.crash(func() bool { return rng.IntN(8) > 0 })
				o := l.opts
				o.FS = after
				got, _, err := replayAll(o, l.start, l.Durable())
				require.NoError(t, err)
				require.NotEmpty(t, got)
				require.Equal(t, all[:len(got)], got)
				seen[len(got)]++
			}
			require.NotZero(t, seen[1], "neither")
			require.NotZero(t, seen[3], "both")
			require.Equal(t, landed, seen[2] == 0, "the first alone, unless the second is there for certain")
			if !landed {
				tw.land(two)
			}
			tw.land(one)
			require.NoError(t, errors.Join(<-first, <-second))
		})
	}
}

// TestFailedGroupFailsTheNextOne: its bytes are cut off when neither is being written
// any more.
func TestFailedGroupFailsTheNextOne(t *testing.T) {
	for name, c := range map[string]struct {
		failing string // of what takes them back
		fate    error
	}{
		"taken_back":        {fate: ErrFailed},
		"they_could_not_be": {failing: "truncate", fate: ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			l, d, tw := towered(t, nil)
			boom, writes, proceed := errors.New("boom"), 0, make(chan struct{})
			d.hook = func(op, _ string, n int) (int, error) {
				switch {
				case op == "direct":
					if writes++; writes == 1 {
						d.mu.Unlock()
						<-proceed // until the second has departed
						d.mu.Lock()
						return n - 1, boom
					}
				case op == c.failing:
					return 0, boom
				}
				return n, nil
			}
			first := l.fly("first")
			require.Eventually(
				t,
				func() bool { d.mu.Lock(); defer d.mu.Unlock(); return writes == 1 },
				time.Minute,
				time.Millisecond,
			)
			second := l.fly("second")
			two := tw.next()
			close(proceed)
			require.Eventually(
				t,
				func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.writeFailed },
				time.Minute,
				time.Millisecond,
			)
			third := l.fly("third")
			tw.noWrite()
			unanswered(t, first, second, third)
			require.Zero(t, d.count("truncate"), "the second is still being written")
			tw.land(two)
			for i, answer := range []chan error{first, second, third} {
				err := <-answer
				require.ErrorIs(t, err, boom)
				if i == 2 {
					require.ErrorIs(t, err, ErrFailed, "it was never written")
					continue
				}
				require.ErrorIs(t, err, c.fate, "group %d", i)
			}
			got, _, err := replayAll(l.opts, l.start, l.Durable())
			require.NoError(t, err)
			if c.failing == "" {
				require.Equal(t, []string{"before"}, got)
				require.Equal(t, 1, d.count("truncate"))
			} else {
				require.Equal(t, []string{"before", "first", "second"}, got)
			}
		})
	}
}

// TestGroupFailsBehindACompletedOne: the one before it is durable, whichever comes back first.
func TestGroupFailsBehindACompletedOne(t *testing.T) {
	l, d, tw := towered(t, nil)
	boom := failSecond(d)
	first := l.fly("first")
	one := tw.next()
	second := l.fly("second")
	require.Eventually(
		t,
		func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.inflight) == 2 && l.inflight[1].returned },
		time.Minute,
		time.Millisecond,
	)
	unanswered(t, first, second)
	require.Zero(t, d.count("truncate"))
	tw.land(one)
	require.NoError(t, <-first)
	err := <-second
	require.ErrorIs(t, err, boom)
	require.ErrorIs(t, err, ErrFailed)
	require.NotErrorIs(t, err, ErrUnknown)
	mustReplay(t, l.opts, l.start, l.Durable(), []string{"before", "first"})
}

// TestFailLeavesWritesInFlightUndecided: no waiter gets ErrUnknown for a group while
// its write may still complete.
func TestFailLeavesWritesInFlightUndecided(t *testing.T) {
	l, _, tw := towered(t, nil)
	first := l.fly("first")
	one := tw.next()
	end, err := l.Append([]byte("also"), true)
	require.NoError(t, err)
	second := l.fly("second")
	two := tw.next()
	also := make(chan error, 1)
	go func() { also <- l.Wait(end, true) }() // it is on its way: nothing to lead
	l.Fail(errors.New("boom"))
	tw.land(one)
	require.NoError(t, <-first)
	unanswered(t, second, also)
	tw.land(two)
	require.NoError(t, <-second)
	require.NoError(t, <-also)
	_, err = l.Append([]byte("after"), true)
	require.ErrorIs(t, err, ErrFailed)
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
	end, err := l.Append([]byte("x"), true)
	require.NoError(t, err)
	unsynced, synced := make(chan error, 1), make(chan error, 1)
	go func() { unsynced <- l.Wait(end, false) }()
	<-writing
	go func() { synced <- l.Wait(end, true) }()
	require.Eventually(
		t,
		func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.waiters) == 1 },
		time.Minute,
		time.Millisecond,
	)
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

// TestHintIsWrittenAfterTheLastWriteCompletes: a log without waiters writes its durability hint,
// whichever write completes last.
func TestHintIsWrittenAfterTheLastWriteCompletes(t *testing.T) {
	l, d, tw := towered(t, nil)
	first := l.fly("first")
	one := tw.next()
	second := l.fly("second")
	two := tw.next()
	notes := d.count("write")
	tw.land(one)
	require.NoError(t, <-first)
	require.Equal(t, notes, d.count("write"), "the second is still being written")
	tw.land(two)
	require.NoError(t, <-second)
	require.Eventually(t, func() bool { return d.count("write") == notes+1 }, time.Minute, time.Millisecond)
	l.mu.Lock()
	require.False(t, l.leading)
	require.Equal(t, l.Durable(), l.hintedLSN)
	l.mu.Unlock()
}

// TestCrowdCrashesAtRandom lets goroutines commit side by side, over many segments, some of them
// without a sync, with writes that take their time, and cuts the power again and again: what was
// told to be durable is there, in order, and nothing after a hole.
func TestCrowdCrashesAtRandom(t *testing.T) {
	forKinds(t, func(t *testing.T, block int) {
		d := newDisk(t, block)
		var pace sync.Mutex
		rng := rand.New(rand.NewPCG(5, uint64(block)))
		random := func(n int) int { pace.Lock(); defer pace.Unlock(); return rng.IntN(n) }
		var beside, paired atomic.Int64
		d.landing = func(off int64) {
			if beside.Add(1) > 1 && off >= firstRecord {
				paired.Add(1)
			}
			time.Sleep(time.Duration(random(200)) * time.Microsecond)
			beside.Add(-1)
		}
		o := testOptions(d)
		o.SegmentSize, o.Inline = 4*MinSegmentSize, false
		var telling atomic.Bool
		told := 0
		o.OnGroup = func(commits int, _ int64, _ time.Duration) {
			if telling.Swap(true) {
				t.Error("two are told at a time")
			}
			runtime.Gosched()
			told += commits
			telling.Store(false)
		}
		l := createTest(t, o)
		var mu sync.Mutex // makes the order of commits known
		var order []string
		var durable []int // numbers of those that were told
		var crowd sync.WaitGroup
		for g := range 6 {
			crowd.Go(func() {
				for i := range 120 {
					mu.Lock()
					n := len(order)
					order = append(order, text(g*1000+i, 10+random(900)))
					end, err := l.Append([]byte(order[n]), true)
					mu.Unlock()
					if err != nil {
						t.Errorf("append: %v", err)
						return
					}
					sync := random(8) > 0
					if err := l.Wait(end, sync); err != nil {
						t.Errorf("wait: %v", err)
					}
					mu.Lock()
					if sync {
						durable = append(durable, n)
					}
					mu.Unlock()
				}
			})
		}
		done := make(chan struct{})
		go func() { crowd.Wait(); close(done) }()
		for over := false; !over; {
			select {
			case <-done:
				over = true
			default:
			}
			mu.Lock()
			last := -1
			for _, n := range durable {
				last = max(last, n)
			}
			mu.Unlock()
			o := l.opts
			o.FS = d.crash(func() bool { return random(3) > 0 })
			got, _, err := replayAll(o, l.start, 0)
			require.NoError(t, err)
			require.Greater(t, len(got), last, "a commit that was told to be durable is lost")
			mu.Lock()
			require.LessOrEqual(t, len(got), len(order))
			require.True(t, slices.Equal(got, order[:len(got)]))
			mu.Unlock()
		}
		require.Equal(
			t,
			block > 0,
			paired.Load() > 0,
			"two are on their way sometimes, if they are written directly",
		)
		require.NoError(t, l.Sync())
		require.Equal(t, len(order), told, "commits that OnGroup was told of")
		mustReplay(t, l.opts, l.start, l.Durable(), order)
	})
}
