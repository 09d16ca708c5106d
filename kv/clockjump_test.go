package kv

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestJumpIsKnownBeforeItIsTakenForTheTime: one goroutine meets a jump, and another one that compares after it sees no step any more. It
// must find then that the clock has jumped. There is no place between the two where a test could stop the first, so this one tries often.
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
