package wal

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ebbkv/ebb/internal/invariant"
)

// syncer writes and syncs what the appender has queued, one group at a time: a waiter becomes the
// leader if there is none, and leads for all. Outside the functions that hold mu it always holds
// that
//
//	(1) durable <= written <= maxSubmitted <= the appender's end.
//	(2) if leading is false, waiters wait for the sync of closed segments only.
type syncer struct {
	opts     *Options
	state    *state
	appender *appender
	pool     *segmentPool

	// Positions that are changed with mu held. Each is the end of a record, or the position of a
	// segment's first one.
	durable atomic.Uint64 // everything before it is durable
	written atomic.Uint64 // everything before it was given to the operating system
	groups  atomic.Uint64 // see Log.Groups

	// mu guards the fields below. It is taken after segmentPool.mu and before appender.mu, and
	// never held across a write or a sync.
	mu               sync.Mutex
	leading          bool // some goroutine takes groups from the queue, or is about to
	writing          bool // the leader's write has not completed; maxSubmitted is its end
	waiters          []*waiter
	leadResigned     sync.Cond // signalled when there is no leader any more
	syncingClosed    bool      // a goroutine is in syncClosedSegments
	maxSubmitted     LSN       // bytes before it may be in a file
	lastGroupCommits int       // in the group published last

	eventMu sync.Mutex // held during OnGroup; taken with no other lock held

	// The leader changes these with mu held, and may read them without.
	segment *segment // to be written to; its end record is not written, so Release keeps it
	direct  bool     // the last write to segment was direct

	// Owned by the leader, which may use them without mu.
	zeroedTo     LSN  // zeros were written through the cache from the last record to here
	writebackTo  LSN  // writeback has started for writes before it
	hintedLSN    LSN  // position in the last hint
	unsyncedRefs bool // written records refer to bytes that are not durable yet
	hintBuf      [hintLen]byte
}

// begin sets the segment of the first record. The caller leads, or no other goroutine has the log.
func (s *syncer) begin(seg *segment) {
	at := seg.start()
	s.segment, s.direct = seg, false
	s.maxSubmitted, s.hintedLSN = at, at
	s.written.Store(uint64(at)) // first: a reader without mu never sees durable past written
	s.durable.Store(uint64(at))
}

func (s *syncer) durableEnd() LSN { return LSN(s.durable.Load()) }
func (s *syncer) writtenEnd() LSN { return LSN(s.written.Load()) }

// waiter is a goroutine in wait that does not lead. The pool keeps it with its channel; each use
// ends with exactly one message.
type waiter struct {
	end  LSN
	sync bool
	err  error
	done chan wakeReason // capacity 1, so that waking never waits
	next *waiter         // in a list of completed waiters
}

type wakeReason uint8

const (
	answered wakeReason = iota // err is set
	lead                       // the waiter leads from now on
)

var waiters = sync.Pool{New: func() any { return &waiter{done: make(chan wakeReason, 1)} }}

// wait is Log.Wait; it is called with mu held and returns without it.
func (s *syncer) wait(end LSN, sync bool) error {
	if at := s.appender.end.Load(); uint64(end) > at {
		invariant.Fail("wal: wait for LSN %d, the log ends at %d", end, at)
	}
	if done, err := s.result(end, sync); done {
		s.mu.Unlock()
		return err
	}
	if !s.leading && !s.waitsForSegmentSync(end) {
		s.leading = true
		return s.lead(end, sync)
	}
	w := waiters.Get().(*waiter)
	w.end, w.sync, w.err = end, sync, nil
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()
	got := <-w.done
	err := w.err
	waiters.Put(w)
	if got == lead {
		s.mu.Lock()
		return s.lead(end, sync)
	}
	return err
}

// result gives the result of a wait that is over. mu is held.
func (s *syncer) result(end LSN, sync bool) (done bool, err error) {
	stopped := s.state.stopped.Load()
	switch {
	case end <= s.durableEnd():
		return true, nil
	case stopped == nil:
		return !sync && end <= s.writtenEnd(), nil
	case stopped.cause == nil:
		return true, ErrClosed
	case end > s.maxSubmitted:
		return true, fmt.Errorf("%w: %w", ErrFailed, stopped.cause)
	case s.writing:
		return false, nil // the write may still complete
	}
	return true, fmt.Errorf("%w: %w", ErrUnknown, stopped.cause)
}

// lead writes groups until the leader's own wait is over, then hands the lead to a remaining waiter
// or resigns it. It is called with mu held and leading set, and returns without mu.
func (s *syncer) lead(end LSN, sync bool) error {
	for {
		if done, err := s.result(end, sync); done {
			s.resignLead()
			return err
		}
		// Everything is written, and a sync is wanted: closed segments are synced first.
		if s.hasUnsyncedSegments() && end <= s.writtenEnd() {
			s.syncClosedSegments()
			return s.wait(end, sync)
		}
		s.waitForFollowers(sync)
		if s.state.err() != nil { // meanwhile
			continue
		}
		g := s.takeGroup(sync)
		s.mu.Unlock()
		outcome, err := s.writeGroup(&g)
		s.mu.Lock()
		completed, event := s.completeWrite(&g, outcome, err)
		if done, err := s.result(end, sync); done {
			s.finish(completed, event)
			return err
		}
		s.mu.Unlock()
		s.notify(completed, event)
		s.mu.Lock()
	}
}

// gosched lets other goroutines run. Tests replace it.
var gosched = runtime.Gosched

// waitForFollowers yields once to the committers of the previous group that have not committed
// again: a sync is expensive, and they are probably about to wait for one. It waits for no
// goroutine that is not runnable. mu is held at both ends, not in between.
func (s *syncer) waitForFollowers(sync bool) {
	if !sync {
		return
	}
	if commits, any := s.appender.queued(); !any || commits >= s.lastGroupCommits {
		return
	}
	s.mu.Unlock()
	gosched()
	s.mu.Lock()
}

// completeWrite is called when the write of a group has returned. It publishes the result, lists
// the waiters whose wait is over, and returns the call of OnGroup or nil. mu is held at both ends;
// after a failure not in between.
func (s *syncer) completeWrite(g *group, outcome writeOutcome, err error) (*waiter, func()) {
	var event func()
	if err == nil {
		event = s.groupEvent(g)
		s.publish(g)
	} else {
		s.failWrite(g, outcome, err)
	}
	s.writing = false
	return s.completedWaiters(), event
}

// failWrite truncates a group that was written in part, and fails the log. mu is held at both ends,
// not in between.
func (s *syncer) failWrite(g *group, outcome writeOutcome, cause error) {
	truncated := outcome == writeNone
	if outcome == writePartial {
		s.mu.Unlock()
		truncated = g.buffer.truncate()
		s.mu.Lock()
	}
	s.state.fail(cause)
	if truncated {
		s.maxSubmitted = s.writtenEnd()
	}
}

// publish moves written and durable past a written group. mu is held.
func (s *syncer) publish(g *group) {
	s.written.Store(uint64(g.end))
	if g.sync || g.direct {
		s.durable.Store(uint64(g.end))
	}
	if g.buffer == nil {
		return
	}
	s.direct = g.direct
	if g.buffer.sealed() {
		// Once Release sees that the end record is durable it may retire the segment: the leader is
		// done with it.
		s.segment, s.direct = g.buffer.next, false
	}
	s.appender.mu.Lock()
	s.appender.recycleBuffer(g.buffer)
	s.appender.mu.Unlock()
}

// groupEvent counts a completed group and returns the call of OnGroup for it, or nil. A write that
// holds only a part of a commit does not count; the write of its last part does. mu is held.
func (s *syncer) groupEvent(g *group) func() {
	if g.buffer == nil {
		return nil
	}
	few := int64(fewUnsyncedGroups)
	if g.sync {
		few = fewGroups
	}
	s.pool.unfilledSize.Store(few * int64(g.size))
	commits, size := g.buffer.commits, int64(g.size)
	s.lastGroupCommits = commits
	if commits > 0 {
		s.groups.Add(1)
	}
	if s.opts.OnGroup == nil {
		return nil
	}
	took := time.Since(g.began)
	return func() {
		s.eventMu.Lock()
		defer s.eventMu.Unlock()
		s.opts.OnGroup(commits, size, took)
	}
}

// finish ends the lead of a goroutine that has completed a write and whose own wait is over. It is
// called with mu held and returns without mu.
func (s *syncer) finish(completed *waiter, event func()) {
	if event == nil && len(s.waiters) > 0 {
		s.resignLead() // first: the disk is idle until the next leader runs
		completed.wakeAll()
		return
	}
	s.mu.Unlock()
	s.notify(completed, event)
	s.mu.Lock()
	s.resignLead()
}

// notify wakes completed waiters and calls OnGroup. If that panics or ends the goroutine, notify
// resigns the lead: no waiter may depend on a leader that is gone. No lock is held.
func (s *syncer) notify(completed *waiter, event func()) {
	completed.wakeAll()
	if event == nil {
		return
	}
	back := false
	defer func() {
		if !back {
			s.mu.Lock()
			s.resignLead()
		}
	}()
	event()
	back = true
}

// resignLead resigns the lead. If no goroutine waits it first writes the durability hint. It is
// called with mu held and returns without mu.
func (s *syncer) resignLead() {
	for s.hintedLSN < s.durableEnd() && s.idle() && s.state.err() == nil {
		// This goroutine still leads, so no other one writes to the segment.
		s.mu.Unlock()
		err := s.writeHint(s.durableEnd())
		s.mu.Lock()
		if err != nil {
			s.state.fail(err)
			completed := s.completedWaiters()
			s.mu.Unlock()
			completed.wakeAll()
			s.mu.Lock()
		}
	}
	s.handOffLead()
	s.mu.Unlock()
	if s.appender.needsSpare() && s.state.err() == nil {
		s.pool.prepareInBackground(false)
	}
}

// idle says whether there is nothing for a leader to do. mu is held.
func (s *syncer) idle() bool {
	if len(s.waiters) > 0 {
		return false
	}
	_, any := s.appender.queued()
	return !any
}

// handOffLead hands the lead to a waiter that does not wait for the running sync of closed segments,
// or resigns it. That sync notifies the others. mu is held.
func (s *syncer) handOffLead() {
	i := slices.IndexFunc(s.waiters, func(w *waiter) bool { return !s.waitsForSegmentSync(w.end) })
	if i < 0 {
		s.leading = false
		s.leadResigned.Broadcast()
		return
	}
	w := s.waiters[i]
	s.waiters = slices.Delete(s.waiters, i, i+1)
	w.done <- lead
}

// completedWaiters removes the waiters whose wait is over, and lists them with their results.
// Callers have completed a write or failed the log. It runs before any of them is woken: waiters
// that join later are not part of the list. mu is held.
func (s *syncer) completedWaiters() (first *waiter) {
	still, last := s.waiters[:0], &first
	for _, w := range s.waiters {
		if done, err := s.result(w.end, w.sync); done {
			w.err = err
			*last, last = w, &w.next
		} else {
			still = append(still, w)
		}
	}
	clear(s.waiters[len(still):])
	s.waiters = still
	return first
}

// wakeAll wakes a list of completed waiters. No lock is held.
func (w *waiter) wakeAll() {
	for w != nil {
		next := w.next
		w.next = nil
		w.done <- answered // w may be in use again
		w = next
	}
}
