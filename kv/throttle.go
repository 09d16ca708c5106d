package kv

import (
	"context"
	"time"
)

// A commit that arrives during a batch of a purge waits for longer than commits take. More than a
// hundred times as many commits must pass between two such batches, or p99 of commits grows: the
// writes of a purge slow other commits, too.
const (
	passBy    = 256 // commits
	passTimes = 16  // bound of the wait, in durations of the batch: a purge must end
)

// throttle waits for passBy commits after a batch that took held and made a writer wait. It counts
// them once per held: if no commit was made in that time, no writer is waiting.
func throttle(ctx context.Context, held time.Duration, commits func() uint64) {
	timer := time.NewTimer(held)
	defer timer.Stop()
	first := commits()
	for last, i := first, 1; ; i++ {
		select {
		case <-ctx.Done(): // The purge checks ctx itself.
			return
		case <-timer.C:
		}
		now := commits()
		if now == last || now-first >= passBy || i == passTimes {
			return
		}
		last = now
		timer.Reset(held)
	}
}
