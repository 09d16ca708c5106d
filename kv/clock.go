package kv

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// clock gives each transaction its instant: whole milliseconds since the Unix epoch, which do not
// decrease when the system's clock is set back a little. The mark is the highest instant so far;
// commits and Close store it, and Open reads it. A step back by more than maxStep means that the
// clock was wrong before: the mark follows it.
//
// The clock also compares the system's clock with the monotonic time of this process. A step forward
// by more than maxStep may be right, but may be a mistake that makes everything look expired: while
// jumped is set, the store deletes no expired key. (Monotonic time may stop while the machine
// sleeps, so a wake-up looks the same.)
//
// The size of a step is computed by ttl.Remaining, at most the longest Duration.
//
// It is safe for concurrent use.
type clock struct {
	now         func() time.Time
	system      bool                      // now is systemNow
	last        atomic.Pointer[time.Time] // its newest full reading
	maxStep     int64                     // milliseconds
	mark        atomic.Int64
	steps       atomic.Uint64
	seenExpired atomic.Int64 // highest expiry that a caller has seen pass: see hides
	onStep      func(back time.Duration)

	mono     func(at time.Time) int64 // monotonic milliseconds at a reading of now; nil: not compared
	offset   atomic.Int64             // of the clock against mono, as last seen
	jumpedAt atomic.Int64             // monotonic time of the last jump
	jumped   atomic.Bool
	jumping  sync.Mutex // held while a jump is recorded
	onJump   func(forward time.Duration)
}

// start sets the mark of the opened store. 0 is the mark of a store that never had a commit: every
// first reading is above it, even of a clock before 1970.
func (c *clock) start(stored int64) {
	if stored == 0 {
		stored = math.MinInt64
	}
	c.mark.Store(stored)
}

// watch begins the comparison with monotonic time.
func (c *clock) watch(mono func(at time.Time) int64) {
	at := c.now()
	c.mono = mono
	c.jumpedAt.Store(math.MinInt64)
	c.offset.Store(at.UnixMilli() - mono(at))
}

// compare detects jumps. Corrections of the clock that are smaller than maxStep move the offset;
// tiny ones accumulate first, so that readers do not write to shared memory. compare ignores
// readings from before a jump: one would look like a step back, and the next reading like the same
// jump again, which a purge with Force may have accepted already.
func (c *clock) compare(at time.Time) {
	mono := c.mono(at)
	offset, last := at.UnixMilli()-mono, c.offset.Load()
	step := offset - last
	switch {
	case mono < c.jumpedAt.Load():
	case step > c.maxStep:
		c.jump(mono, offset)
	case step > c.maxStep/4 || step < -c.maxStep/4:
		c.offset.CompareAndSwap(last, offset)
	}
}

// jump records an offset that is more than maxStep above the last one. Of concurrent callers that
// detect a jump, one records it.
func (c *clock) jump(mono, offset int64) {
	c.jumping.Lock()
	last := c.offset.Load()
	if offset-last <= c.maxStep {
		c.jumping.Unlock()
		return // another call recorded it, and Force may have accepted it since
	}
	// Before the offset moves: a reader of the new offset sees no step, and would delete by it.
	c.jumped.Store(true)
	c.jumpedAt.Store(mono)
	c.offset.Store(offset)
	c.jumping.Unlock()
	if c.onJump != nil {
		c.onJump(ttl.Remaining(last, offset))
	}
}

// systemNow is time.Now, which reads two clocks. Within a millisecond of such a reading it adds
// monotonic time to that: so a step of the system's clock is seen a millisecond late at most.
func (c *clock) systemNow() time.Time {
	if last := c.last.Load(); last != nil {
		if d := time.Since(*last); d < time.Millisecond {
			return last.Add(d)
		}
	}
	at := time.Now()
	c.last.Store(&at)
	return at
}

// read returns the instant of a transaction that begins now.
func (c *clock) read() int64 { return c.readAt(c.now()) }

// readAt is read with a reading of now from before a read transaction has got its snapshot. If a
// purge with a later instant comes between, it has raised the mark.
func (c *clock) readAt(at time.Time) int64 {
	if c.mono != nil {
		c.compare(at)
	}
	now := at.UnixMilli() // rounds towards the past
	for {
		mark := c.mark.Load()
		if now <= mark && uint64(mark-now) <= uint64(c.maxStep) { // The difference may overflow an int64.
			return mark
		}
		if !c.mark.CompareAndSwap(mark, now) {
			continue
		}
		if now < mark {
			c.steps.Add(1)
			if c.onStep != nil {
				c.onStep(ttl.Remaining(now, mark))
			}
		}
		return now
	}
}

// hides says whether a row with that expiry is expired at now, for a call whose result shows that.
func (c *clock) hides(now, expiry int64) bool {
	if !ttl.Expired(now, expiry) {
		return false
	}
	c.observeExpired(expiry)
	return true
}

// observeExpired records that a caller has seen a key expired, at that instant or before it.
func (c *clock) observeExpired(expiry int64) {
	seen := c.seenExpired.Load()
	for expiry > seen && !c.seenExpired.CompareAndSwap(seen, expiry) {
		seen = c.seenExpired.Load()
	}
}

// closing is the mark for Close to store. It is needed if with the stored mark a key that a call has
// seen expired would return, should the clock be set back by at most maxStep meanwhile.
func (c *clock) closing(stored int64) (mark int64, needed bool) {
	mark = c.mark.Load()
	if mark <= 0 { // It would read as no mark.
		return stored, false
	}
	met := c.seenExpired.Load()
	return mark, met > stored || mark < stored && met > 0
}

// clamp returns now, an instant that read returned, or the present mark if the clock was set back
// since and the store has followed it. A purge that took its instant before the writer lock clamps
// it under the lock: keys that were expired at that instant may have been written, or read as
// live, meanwhile.
func (c *clock) clamp(now int64) int64 { return min(now, c.mark.Load()) }

// stamp sets the mark that the commit of a transaction stores: at its begin, and again at its
// commit, since other calls may have read the clock. The mark of a clock before 1970 would read as
// no mark.
func (c *clock) stamp(tx *txn.Tx) {
	if mark := c.mark.Load(); mark > 0 {
		tx.SetMark(mark)
	}
}
