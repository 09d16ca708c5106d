package wal

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

// TestCrashBeforeCompensationIsDurable may bring the commit back, one after that may not.
func TestCrashBeforeCompensationIsDurable(t *testing.T) {
	l, d, tw := towered(t, nil)
	_, sent := l.launch("in question")
	tw.land(tw.next())
	l.CompleteWrite(sent)
	void, err := l.Compensate()
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- l.Wait(void, true) }()
	off := tw.next() // written, not durable
	rng, seen := rand.New(rand.NewPCG(1, 9)), map[int]int{}
	look := func() {
		for range 60 {
			o := l.opts
			o.FS = d.crash(func() bool { return rng.IntN(2) > 0 })
			got, _, err := replayAll(o, l.start, 0)
			require.NoError(t, err)
			require.Equal(t, []string{"before", "in question"}[:len(got)], got)
			seen[len(got)]++
		}
	}
	look()
	require.Positive(t, seen[1])
	require.Positive(t, seen[2])
	tw.land(off)
	require.NoError(t, <-done)
	seen = map[int]int{}
	look()
	require.Zero(t, seen[2])
}

// TestPowerCutDuringAGroup: whatever sectors of it a power cut leaves, the log ends before the first
// torn record, and the commits that wait for the next write are not there.
func TestPowerCutDuringAGroup(t *testing.T) {
	l, d, tw := towered(t, nil)
	l.mustAppend([]byte(text(1, 1500)), true)
	first := l.fly(text(2, 1500))
	one := tw.next()
	next := l.fly("next")
	l.parked(1)
	rng, seen := rand.New(rand.NewPCG(3, 4)), map[int]int{}
	all := []string{"before", text(1, 1500), text(2, 1500)}
	for range 300 {
		o := l.opts
		o.FS = d.crash(func() bool { return rng.IntN(8) > 0 })
		got, _, err := replayAll(o, l.start, l.Durable())
		require.NoError(t, err)
		require.NotEmpty(t, got)
		require.Equal(t, all[:len(got)], got)
		seen[len(got)]++
	}
	require.NotZero(t, seen[1], "neither")
	require.NotZero(t, seen[2], "the first alone")
	require.NotZero(t, seen[3], "both")
	tw.land(one)
	require.NoError(t, <-first)
	tw.land(tw.next())
	require.NoError(t, <-next)
}

// TestCrowdCrashesAtRandom lets goroutines commit side by side, over many segments, some of them
// without a sync, with writes that take their time, and cuts the power again and again: what was
// told to be durable is there, in order, and nothing after a hole.
func TestCrowdCrashesAtRandom(t *testing.T) {
	racetest.NotQuick(t)
	forKinds(t, func(t *testing.T, block int) {
		d := newDisk(t, block)
		var pace sync.Mutex
		rng := rand.New(rand.NewPCG(5, uint64(block)))
		random := func(n int) int { pace.Lock(); defer pace.Unlock(); return rng.IntN(n) }
		var writing, telling atomic.Bool
		d.landing = func(off int64) {
			if off >= firstRecord && writing.Swap(true) {
				t.Error("two groups are written at a time")
			}
			time.Sleep(time.Duration(random(200)) * time.Microsecond)
			writing.Store(false)
		}
		o := testOptions(d)
		o.SegmentSize, o.Inline = 4*MinSegmentSize, false
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
			last := slices.Max(append([]int{-1}, durable...))
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
		require.NoError(t, l.Sync())
		require.Equal(t, len(order), told, "commits that OnGroup was told of")
		mustReplay(t, l.opts, l.start, l.Durable(), order)
	})
}

// TestPowerCutLeavesAPrefix stops a disk after a random number of commits, mixed of durable and
// relaxed ones, keeps random sectors of what was not synced, and replays: all durable commits are
// there, and the rest is a prefix.
func TestPowerCutLeavesAPrefix(t *testing.T) {
	forKinds(t, func(t *testing.T, block int) {
		for seed := range uint64(60) {
			rng := rand.New(rand.NewPCG(seed, 1))
			d := newDisk(t, block)
			o := testOptions(d)
			// Then the first ones are short.
			o.SegmentSize, o.FirstSegmentBytes = o.SegmentSize<<(2*(seed%2)), 1
			l := createTest(t, o)
			start, durable := l.start, LSN(0)
			acked := 0
			for range 5 + rng.IntN(40) {
				sync := rng.IntN(2) == 0
				l.commit(text(len(l.commits), 3+rng.IntN(700)), sync)
				if sync {
					acked = len(l.commits)
				}
				if rng.IntN(12) == 0 {
					next := l.mustRotate()
					require.NoError(t, l.Sync())
					require.NoError(t, l.Release(next))
					start, acked, l.commits, durable = next, 0, nil, next
				}
			}
			rate := rng.IntN(4)
			after := l.opts
			after.FS = d.crash(func() bool { return rng.IntN(3) < rate })
			got, _, err := replayAll(after, start, durable)
			require.NoError(t, err, "seed %d", seed)
			require.GreaterOrEqual(t, len(got), acked, "seed %d", seed)
			require.True(t, slices.Equal(got, l.commits[:len(got)]), "seed %d", seed)
		}
	})
}

// TestKillDuringACopy: whatever part of a group is there, all before it is found, and nothing is
// taken for damage.
func TestKillDuringACopy(t *testing.T) {
	for _, durable := range []bool{false, true} { // is the commit before it
		for keep := 0; ; keep++ {
			d := newDisk(t, 0)
			l := createTest(t, testOptions(d))
			l.commit("first", durable)
			l.commit("second", false)
			size := 0
			d.hook = func(op, _ string, n int) (int, error) { // After the copy nothing happens any more.
				if op != "copy" {
					return 0, errBoom
				}
				size = n
				return min(keep, n), errBoom
			}
			l.mustAppend([]byte("third"), true)
			end := l.mustAppend([]byte("fourth"), true)
			require.ErrorIs(t, l.Wait(end, false), ErrUnknown)
			require.NotZero(t, size)
			got, tail, err := replayAll(l.opts, l.start, l.Durable())
			require.NoError(t, err, "%d bytes of %d", keep, size)
			all := append(l.commits, "third", "fourth")
			require.LessOrEqual(t, len(l.commits), len(got))
			require.Equal(t, all[:len(got)], got)
			require.Equal(t, len(got), tail.Commits)
			if keep == size {
				require.Len(t, got, 4)
				break
			}
			require.Less(t, len(got), 4)
		}
	}
}

// TestSecondHalfOfACopyAlone: a copy has no order.
func TestSecondHalfOfACopyAlone(t *testing.T) {
	d := newDisk(t, 0)
	o := testOptions(d)
	o.SegmentSize = 64 << 10
	l := createTest(t, o)
	l.commit("first", true)
	l.commit("second", false)
	from := int64(l.appender.pos - LSN(l.appender.live[0].number*uint64(l.appender.live[0].size)))
	l.commit("third", false)
	l.commit("fourth", false)
	whole := readFile(t, d, l.appender.live[0].name)
	for n := int64(1); n < 40; n++ { // of the third
		torn := append([]byte(nil), whole...)
		clear(torn[from : from+n])
		writeFile(t, d.FS, l.appender.live[0].name, torn)
		mustReplay(t, o, l.start, l.Durable(), l.commits[:2])
	}
	writeFile(t, d.FS, l.appender.live[0].name, whole)
	mustReplay(t, o, l.start, l.Durable(), l.commits)
}
