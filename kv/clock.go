package kv

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// clock gives each transaction its instant: whole milliseconds since the Unix epoch that do not run
// backwards when the system's clock is nudged. The mark is the highest instant given so far; it is
// stored with commits, and by Close, and comes back at Open. A step back by more than maxStep means
// that the clock was wrong before: the mark follows it.
//
// The system's clock is also compared with the monotonic time of this process. A step forward by
// more than maxStep may be right, but may as well be a mistake that makes everything look expired:
// jumped then keeps anything from being deleted for it. (Monotonic time may stand still while the
// machine sleeps, so waking up looks the same.)
//
// How far it was set is what is left from one instant to the other (ttl.Remaining), at most the
// longest Duration.
//
// It is safe for concurrent use.
type clock struct {
	now     func() time.Time
	maxStep int64 // milliseconds
	mark    atomic.Int64
	steps   atomic.Uint64
	met     atomic.Int64 // the highest expiry that a call was past: see hides
	onStep  func(back time.Duration)

	mono    func(at time.Time) int64 // monotonic milliseconds at a reading of now; nil: not compared
	offset  atomic.Int64             // of the clock against mono, as last seen
	leapt   atomic.Int64             // by mono, the reading that told of the last jump
	jumped  atomic.Bool
	jumping sync.Mutex // held while a jump is noted
	onJump  func(forward time.Duration)
}

// start sets the mark that a store was opened with. 0 is the mark of a store that never had a
// commit: every first reading is above it, even of a clock that stands before 1970.
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
	c.leapt.Store(math.MinInt64)
	c.offset.Store(at.UnixMilli() - mono(at))
}

// compare looks for a jump. Corrections of the clock that are smaller than maxStep move the offset
// bit by bit; tiny ones are left to add up, so that readers do not write to shared memory. What was
// read before a jump tells nothing any more: it would look like a step back, and the next reading
// like the same jump once more, which somebody may have been told to believe.
func (c *clock) compare(at time.Time) {
	mono := c.mono(at)
	offset, last := at.UnixMilli()-mono, c.offset.Load()
	step := offset - last
	switch {
	case mono < c.leapt.Load():
	case step > c.maxStep:
		c.jump(mono, offset)
	case step > c.maxStep/4 || step < -c.maxStep/4:
		c.offset.CompareAndSwap(last, offset)
	}
}

// jump is told of an offset that was more than maxStep above the one last seen. Of those who meet a
// jump at the same time one notes it.
func (c *clock) jump(mono, offset int64) {
	last, noted := c.noteJump(mono, offset)
	if noted && c.onJump != nil {
		c.onJump(ttl.Remaining(last, offset))
	}
}

func (c *clock) noteJump(mono, offset int64) (last int64, noted bool) {
	c.jumping.Lock()
	defer c.jumping.Unlock()
	last = c.offset.Load()
	if offset-last <= c.maxStep {
		return last, false // somebody has, and a purge was perhaps told to believe the clock since
	}
	// Before the offset moves: who compares with the new one sees no step, and would delete by it.
	c.jumped.Store(true)
	c.leapt.Store(mono)
	c.offset.Store(offset)
	return last, true
}

// read gives the instant of a transaction that begins now.
func (c *clock) read() int64 {
	at := c.now()
	if c.mono != nil {
		c.compare(at)
	}
	now := at.UnixMilli() // rounds towards the past
	for {
		mark := c.mark.Load()
		if now <= mark && uint64(mark-now) <= uint64(c.maxStep) { // The difference may be more than an int64 holds.
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

// hides says whether a row with that expiry is gone at now, for a call of the user's, who sees
// that.
func (c *clock) hides(now, expiry int64) bool {
	if !ttl.Expired(now, expiry) {
		return false
	}
	c.meet(expiry)
	return true
}

// meet notes that the user was told of something that it has expired, at that instant or before it.
func (c *clock) meet(expiry int64) {
	for met := c.met.Load(); expiry > met && !c.met.CompareAndSwap(met, expiry); met = c.met.Load() {
	}
}

// closing is the mark for Close to store. It is needed if the mark that is stored by then would
// bring back what a call has seen expired, should the clock be set back by no more than maxStep
// meanwhile.
func (c *clock) closing(stored int64) (mark int64, needed bool) {
	mark = c.mark.Load()
	if mark <= 0 { // It would look like none.
		return stored, false
	}
	met := c.met.Load()
	return mark, met > stored || mark < stored && met > 0
}

// clamp is now, an instant that read gave, unless the clock was set back since and the store has
// followed it: then it is what time has become. Whoever deletes for an instant that was read before
// the writer lock was had asks this under the lock: keys may have been written meanwhile, or seen
// alive, that were gone by then.
func (c *clock) clamp(now int64) int64 { return min(now, c.mark.Load()) }

// stamp gives a transaction the mark that its commit will store: when it begins, and once more when
// it commits, for others may have read the clock meanwhile. The mark of a clock before 1970 would
// look like none.
func (c *clock) stamp(tx *txn.Tx) {
	if mark := c.mark.Load(); mark > 0 {
		tx.SetMark(mark)
	}
}
