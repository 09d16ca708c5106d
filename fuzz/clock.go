package fuzz

import (
	"context"
	"math"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// The oracle looks at each image with three clocks.
//
// The first stands longAgo, before every expiry there can be, and by more than MaxClockStep before
// every clock mark: the store takes the mark for wrong and follows the clock, nothing has expired,
// and what is seen is what is stored.
//
// The second stands longAgo too, but with a MaxClockStep that no mark exceeds: now the store holds
// its time at the mark. What is seen proves the mark of that commit, and that a key which was seen
// expired does not come back.
//
// The third stands laterMs after the mark: keys die by themselves, and exactly those whose time has
// come.
const (
	startMs = 1_700_000_000_000 // of every workload

	longAgo      = -2 * int64(time.Minute/time.Millisecond)
	anyStep      = time.Duration(math.MaxInt64)
	maxStepMs    = int64(time.Minute / time.Millisecond) // the default of kv.Options.MaxClockStep
	longestTTL   = time.Hour                             // of what the workloads make
	longestTTLMs = int64(longestTTL / time.Millisecond)

	// The ends of what clocks say that are wrong. The last one is the end of what a time.Duration
	// since 1970 holds, less what anyStep has to span as well.
	year1970 = 5_000
	year2262 = 9_214_646_400_000
)

// clock is the clock of a run, and what the store makes of it: the rules of docs/ttl.md once more,
// for one process and without concurrency.
type clock struct {
	ms    int64 // what it says
	mark  int64 // highest instant that a transaction was told; math.MinInt64: none
	steps uint64
}

// now is what the store reads.
func (c *clock) now() time.Time { return time.UnixMilli(c.ms) }

// standing is a clock that stands still.
func standing(ms int64) func() time.Time {
	return func() time.Time { return time.UnixMilli(ms) }
}

// opened takes over the mark that a store was opened with.
func (c *clock) opened(stored int64) {
	c.mark, c.steps = stored, 0
	if stored == 0 {
		c.mark = math.MinInt64
	}
}

// read is the instant of a transaction that begins now. Without a move it is the same when asked
// again.
func (c *clock) read() int64 {
	if c.ms < c.mark && c.mark-c.ms > maxStepMs {
		c.steps++
		c.mark = c.ms
	}
	c.mark = max(c.mark, c.ms)
	return c.mark
}

// sign gives a commit its mark. One that is not after 1970 is not stored.
func (c *clock) sign(m *Model) {
	if c.mark > 0 {
		m.mark = c.mark
	}
}

// moveClock sets the clock. A transaction that begins then must be told what the rules say.
func (r *Run) moveClock(ms int64) error {
	r.clock.ms = ms
	if r.db == nil {
		return nil
	}
	tx, err := r.db.Begin(context.Background(), false)
	if err != nil {
		return err
	}
	got, want := tx.Now().UnixMilli(), r.clock.read()
	if err := tx.Rollback(); err != nil {
		return err
	}
	if got != want {
		return wrong("with the clock at %d a transaction is told %d, want %d", ms, got, want)
	}
	if n := r.db.Stats().ClockSteps; n != r.clock.steps {
		return wrong("%d steps of the clock are counted, want %d", n, r.clock.steps)
	}
	return nil
}

// options are the options of a workload's own store: its clock, and an ear for what it deletes by
// itself.
func (r *Run) options() *kv.Options {
	o := r.config.options(r.clock.now)
	if r.derives() {
		o.OnExpireTx = r.heardWithin
	} else {
		o.OnExpire = r.heard
	}
	if r.relaxed {
		o.Durability = kv.NoSync
	}
	return o
}
