package kv

import (
	"context"
	"time"
)

// A batch of a purge makes a commit wait that comes meanwhile, for longer than commits take. So
// that p99 of commits stays what it is without a purge, far more than a hundred pass between two
// batches that met one: what the purge writes makes others slow, too.
const (
	passBy    = 256 // commits
	passTimes = 16  // the most that is waited for them, in times that the batch took: a purge comes to its end
)

// throttle waits for passBy commits after a batch that somebody waited for, and that took held. It
// looks as often as a batch could have run: when no commit came in such a time, nobody is in a
// hurry.
func throttle(ctx context.Context, held time.Duration, commits func() uint64) {
	timer := time.NewTimer(held)
	defer timer.Stop()
	first := commits()
	for last, i := first, 1; ; i++ {
		select {
		case <-ctx.Done(): // The purge looks at it itself.
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
