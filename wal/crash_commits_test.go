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
)

// TestPowerCutDuringAGroup: whatever sectors of it a power cut leaves, the log ends before the first
// torn record, and the commits that wait for the next write are not there.
func TestPowerCutDuringAGroup(t *testing.T) {
	l, d, tw := towered(t, nil)
	_, err := l.Append([]byte(text(1, 1500)), true)
	require.NoError(t, err)
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
	forKinds(t, func(t *testing.T, block int) {
		d := newDisk(t, block)
		var pace sync.Mutex
		rng := rand.New(rand.NewPCG(5, uint64(block)))
		random := func(n int) int { pace.Lock(); defer pace.Unlock(); return rng.IntN(n) }
		var writing atomic.Bool
		d.landing = func(off int64) {
			if off >= firstRecord && writing.Swap(true) {
				t.Error("two groups are written at a time")
			}
			time.Sleep(time.Duration(random(200)) * time.Microsecond)
			writing.Store(false)
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
		require.NoError(t, l.Sync())
		require.Equal(t, len(order), told, "commits that OnGroup was told of")
		mustReplay(t, l.opts, l.start, l.Durable(), order)
	})
}
