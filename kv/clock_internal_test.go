package kv

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestJumpIsKnownBeforeItIsTakenForTheTime: one goroutine detects a jump, and another one that
// compares after it sees no step any more. It must then find jumped set. A test cannot stop the first
// goroutine between the two stores, so this one tries often.
func TestJumpIsKnownBeforeItIsTakenForTheTime(t *testing.T) {
	clocks := make([]clock, 50_000)
	for i := range clocks {
		clocks[i].maxStep = 1000
		clocks[i].mono = func(time.Time) int64 { return 0 }
	}
	at, late := time.UnixMilli(5000), 0
	spin := func(until func() bool) {
		for n := 1; !until(); n++ {
			if n%1000 == 0 {
				runtime.Gosched() // There may be one processor.
			}
		}
	}
	var here atomic.Int64 // the clock that the second one watches
	var second sync.WaitGroup
	second.Go(func() {
		for i := range clocks {
			c := &clocks[i]
			here.Store(int64(i))
			spin(func() bool { return c.offset.Load() != 0 })
			if c.compare(at); !c.jumped.Load() {
				late++
			}
		}
	})
	for i := range clocks {
		spin(func() bool { return here.Load() == int64(i) })
		clocks[i].compare(at)
	}
	second.Wait()
	require.Zero(t, late, "times in %d that it was not", len(clocks))
}

// TestForcedJumpStaysBelieved: a call that read the clock before a purge with Force accepted a jump,
// and compares after it, does not report the same jump again.
func TestForcedJumpStaysBelieved(t *testing.T) {
	const old, leap = 5000, 500_000 // what the clock is ahead of monotonic time
	mono := int64(0)                // of the reading
	read := func(c *clock, at, ahead int64) {
		mono = at
		c.compare(time.UnixMilli(at + ahead))
	}
	for name, late := range map[string]func(c *clock){
		"read before it, and again after it": func(c *clock) {
			read(c, 99, old)
			read(c, 102, leap)
		},
		"met it as well":              func(c *clock) { c.jump(100, leap) },
		"met it as well, a bit later": func(c *clock) { c.jump(101, leap+1) },
	} {
		t.Run(name, func(t *testing.T) {
			jumps := 0
			mono = 0
			c := &clock{maxStep: 1000, onJump: func(time.Duration) { jumps++ }}
			c.now = func() time.Time { return time.UnixMilli(old) }
			c.watch(func(time.Time) int64 { return mono })
			read(c, 100, leap)
			require.True(t, c.jumped.Load())
			require.Equal(t, 1, jumps)
			c.jumped.Store(false) // as Force does
			late(c)
			require.False(t, c.jumped.Load())
			require.Equal(t, 1, jumps)
			read(c, 200, leap+2000)
			require.True(t, c.jumped.Load(), "another one")
			require.Equal(t, 2, jumps)
		})
	}
}

// TestStepsThatNoDurationHoldsAreTheLongestOne: a clock returned the zero Time, two thousand years
// back. The store reported a step of some years, or one forward.
func TestStepsThatNoDurationHoldsAreTheLongestOne(t *testing.T) {
	today := time.Date(2023, 11, 14, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		to            time.Time
		back, forward time.Duration
	}{
		{to: time.Time{}, back: math.MaxInt64},
		{to: today.AddDate(-293, 0, 0), back: math.MaxInt64},
		{to: today.Add(-100 * time.Hour), back: 100 * time.Hour},
		{to: today.Add(100 * time.Hour), forward: 100 * time.Hour},
		{to: today.AddDate(293, 0, 0), forward: math.MaxInt64},
		{to: today.AddDate(7000, 0, 0), forward: math.MaxInt64},
	} {
		at := today
		var back, forward time.Duration
		c := &clock{
			now: func() time.Time { return at }, maxStep: 1000,
			onStep: func(d time.Duration) { back = d }, onJump: func(d time.Duration) { forward = d },
		}
		c.start(0)
		c.watch(func(time.Time) int64 { return 0 })
		require.Equal(t, today.UnixMilli(), c.read())
		at = test.to
		require.Equal(t, test.to.UnixMilli(), c.read())
		require.Equal(t, test.back, back, "to %v", test.to)
		require.Equal(t, test.forward, forward, "to %v", test.to)
	}
}
