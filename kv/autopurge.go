package kv

import (
	"context"
	"errors"
	"time"
)

// defaultPurgeInterval is the time between two purges of AutoPurge.
const defaultPurgeInterval = time.Minute

// autoPurge is the goroutine of Options.AutoPurge. The caller of start and stop holds DB.closeMu,
// or is Open. On nil they do nothing.
type autoPurge struct {
	db     *DB
	o      AutoPurge
	cancel context.CancelFunc
	done   chan struct{} // closed by the goroutine; nil while there is none
}

// start starts the goroutine, unless it runs.
func (a *autoPurge) start() {
	if a == nil || a.done != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel, a.done = cancel, make(chan struct{})
	go a.run(ctx, a.done)
}

// stop ends the goroutine and waits for it: at most for one batch.
func (a *autoPurge) stop() {
	if a == nil || a.done == nil {
		return
	}
	a.cancel()
	<-a.done
	a.done = nil
}

func (a *autoPurge) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	interval := a.o.Interval
	if interval == 0 {
		interval = defaultPurgeInterval
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		_, err := a.db.PurgeExpired(ctx, PurgeOptions{Limit: a.o.Limit, Batch: a.o.Batch})
		if errors.Is(err, ErrClosed) || errors.Is(err, ErrFailed) {
			return // Later purges would fail, too.
		}
		if err != nil && ctx.Err() == nil && a.db.log != nil {
			a.db.log.Warn("purge of expired keys failed", "error", err)
		}
		timer.Reset(interval)
	}
}
