package wal

import (
	"slices"
	"time"
)

// maxInflight bounds the concurrent writes of groups. A second one doubles the rate of small synced
// writes on many disks, which wait rather than transfer; a third one gained nothing on any measured
// disk.
const maxInflight = 2

// An inflightWrite is a group whose write has started. Only groups that are written directly and
// synced overlap; every other group is written alone. Writes may complete in any order, and are
// published in the order of their positions: no waiter learns that a commit is durable before all
// commits before it are.
//
//	crash ...                      the segment holds                recovery
//	both in flight                 any blocks of either             ends where the first record is torn. No later record claims
//	                                                                that more was durable: its synced field is as of its start
//	only the second written        a hole, and records behind it    ends at the hole: the chain of records is broken there
//	both written, none notified    both                             finds both, which it may
//
// If the first write fails, the log truncates the file before both once neither is being written
// any more.
type inflightWrite struct {
	group                      // run is nil in a write that only syncs
	began        time.Time     // if OnGroup wants to know
	took         time.Duration // until the write returned
	overlappable bool          // others may start before it completes
	returned     bool          // the write has returned
	removed      bool          // from Log.inflight
	outcome      writeOutcome
	err          error
}

// writeOutcome is the result of a write.
type writeOutcome uint8

const (
	// The system has all of it; after an error of the sync it may or may not be durable.
	writeComplete writeOutcome = iota
	writePartial               // the write failed
	writeNone                  // nothing was written
)

// canStartWrite says whether the next group may start beside the writes in flight; sync says
// whether the leader wants it synced. The group must end as many commits as the one in flight: two
// small groups cost the processor more than one that waits for followers, and the disk gains
// nothing. mu is held.
func (l *Log) canStartWrite(sync bool) bool {
	switch n := len(l.inflight); {
	case n == 0:
		return true
	case n == maxInflight || l.writeFailed || !l.inflight[0].overlappable || len(l.queue) == 0:
		return false
	}
	r := l.queue[0]
	return r.commits >= l.inflight[0].run.commits && overlappable(r, l.wantsSync(r.end, sync))
}

// wakeLeader wakes a leader that waits for more commits, or for a waiter that wants a sync, so that
// it may start a group behind the one in flight. Each new waiter calls it. mu is held.
func (l *Log) wakeLeader() {
	if l.leading && len(l.inflight) > 0 && l.canStartWrite(true) {
		l.writeDone.Broadcast()
	}
}

// overlappable says whether a buffer, if it is written directly, may be in flight together with
// others: it is synced, closes no segment, and need not wait for SyncRefs. A buffer that closes no
// segment is the whole queue, so each waiter then waits for it or for an earlier write. The group
// after it begins in the same segment, at a block.
func overlappable(r *writeBuffer, sync bool) bool { return sync && !r.sealed && r.ref == 0 }

// startWrite adds a group to the writes in flight. mu is held.
func (l *Log) startWrite(g group) *inflightWrite {
	var f *inflightWrite
	if n := len(l.freeInflight); n > 0 {
		f, l.freeInflight = l.freeInflight[n-1], l.freeInflight[:n-1]
	} else {
		f = new(inflightWrite)
	}
	*f = inflightWrite{group: g}
	if g.run != nil {
		f.overlappable = g.direct && overlappable(g.run, g.sync)
		if l.opts.OnGroup != nil {
			f.began = time.Now()
		}
	}
	l.inflight = append(l.inflight, f)
	return f
}

// completeWrite is called when the write has returned. It returns once the result is published,
// after those of earlier writes, with the call of OnGroup. mu is held at both ends, not in between.
func (l *Log) completeWrite(f *inflightWrite, outcome writeOutcome, err error) (event func()) {
	f.returned, f.outcome, f.err = true, outcome, err
	l.writeFailed = l.writeFailed || err != nil
	if l.opts.OnGroup != nil {
		f.took = time.Since(f.began)
	}
	l.writeDone.Broadcast()
	for !f.removed && l.inflight[0] != f {
		l.writeDone.Wait()
	}
	switch {
	case f.removed: // failInflight removed it with the one before it
	case err == nil:
		l.inflight = l.inflight[:copy(l.inflight, l.inflight[1:])]
		event = l.groupEvent(f)
		l.publish(f.group)
	default:
		l.failInflight(f)
	}
	l.writeDone.Broadcast()
	return event
}

// recycleWrite keeps a published inflightWrite for reuse. mu is held.
func (l *Log) recycleWrite(f *inflightWrite) { l.freeInflight = append(l.freeInflight, f) }

// finishWrite ends an overlapped write, whose goroutine does not lead. completed are its waiters,
// event is the call of OnGroup. It is called with mu held and returns without mu.
func (l *Log) finishWrite(f *inflightWrite, completed *waiter, event func()) {
	l.recycleWrite(f)
	l.mu.Unlock()
	completed.wakeAll()
	l.finishFollower()
	if event != nil {
		event()
	}
}

// failInflight truncates the group of the first write in flight, which has failed, together with
// those behind it. mu is held at both ends, not in between.
func (l *Log) failInflight(f *inflightWrite) {
	for _, behind := range l.inflight[1:] {
		for !behind.returned {
			l.writeDone.Wait()
		}
	}
	takenBack := f.outcome == writeNone
	if f.outcome == writePartial {
		l.mu.Unlock()
		takenBack = f.run.truncate()
		l.mu.Lock()
	}
	for _, each := range l.inflight {
		each.removed = true
	}
	l.inflight = l.inflight[:0]
	l.fail(f.err)
	if takenBack {
		l.maxSubmitted = l.Written()
	}
}

// isInflight says whether a waiter for end waits for writes in flight only: their completion
// notifies it. mu is held.
func (l *Log) isInflight(end LSN) bool { return len(l.inflight) > 0 && end <= l.maxSubmitted }

// handOffLead hands the lead to a waiter whose commit is neither in flight nor in the running sync
// of closed segments, or resigns it. The other waiters are notified when those complete, or the log
// has failed. mu is held.
func (l *Log) handOffLead() {
	i := slices.IndexFunc(l.waiters, func(w *waiter) bool { return !l.waitsForSegmentSync(w.end) })
	if i < 0 || len(l.inflight) > 0 {
		l.leading = false
		l.writeDone.Broadcast()
		return
	}
	w := l.waiters[i]
	n := i + copy(l.waiters[i:], l.waiters[i+1:])
	l.waiters[n] = nil
	l.waiters = l.waiters[:n]
	w.done <- lead
}

// finishFollower is called by a goroutine that has completed a write and does not lead: if there is
// no leader and no work, it does the final work of one. No lock is held.
func (l *Log) finishFollower() {
	l.mu.Lock()
	if !l.leading {
		l.leading = true
		l.resignLead()
		return
	}
	prepare := l.needsSpare()
	l.mu.Unlock()
	if prepare {
		l.prepareInBackground()
	}
}
