package wal

import "fmt"

// A closed segment need not be durable before the next one is written to: a commit without a sync
// does not wait for one. The first waiter that wants a sync makes the closed segments durable, with
// all that they refer to, before anything behind them; others write to the current segment
// meanwhile. Those writers neither sync nor write directly: the durable part of the log has no
// gaps.
//
//	power cut ...                       the segments hold                       recovery
//	before closed ones are synced       any sectors of it, and of those behind  ends at the first gap; no record behind it says that more was durable
//	after that                          all of it, any sectors behind           goes on to the next one

// hasUnsyncedSegments says that segments before the current one are not durable. mu is held.
func (l *Log) hasUnsyncedSegments() bool { return l.Durable() < l.writeSegment.start() }

// waitsForSegmentSync says whether a waiter for end waits for nothing but the running sync of
// closed segments, as far as the log knows now. mu is held.
func (l *Log) waitsForSegmentSync(end LSN) bool { return l.syncingClosed && end <= l.Written() }

// syncClosedSegments makes all segments before the current one durable. It resigns the lead for
// that time, or for good if another goroutine is syncing them already. mu is held at both ends, not
// in between.
func (l *Log) syncClosedSegments() {
	if l.syncingClosed {
		l.handOffLead()
		return
	}
	durable, end, unsynced := l.Durable(), l.writeSegment.start(), l.unsyncedRefs
	l.unsyncedRefs = false // later writes set it again
	var closed []*segment
	for _, s := range l.live {
		if s.number < l.writeSegment.number && durable < l.opts.start(s.number+1) {
			closed = append(closed, s)
		}
	}
	l.syncingClosed = true
	l.handOffLead()
	l.mu.Unlock()
	err := l.syncSegments(closed, unsynced)
	l.mu.Lock()
	l.syncingClosed = false
	if err == nil {
		l.durable.Store(uint64(end)) // No other goroutine moves durable meanwhile.
	} else {
		l.fail(err)
	}
	completed := l.completedWaiters()
	l.mu.Unlock()
	completed.wakeAll()
	l.mu.Lock()
	if !l.leading { // Waiters for later positions get a leader.
		l.leading = true
		l.resignLead()
		l.mu.Lock()
	}
}

// syncSegments does syncClosedSegments' work on the files.
func (l *Log) syncSegments(closed []*segment, unsynced bool) error {
	if unsynced {
		if err := l.syncRefs(); err != nil {
			return err
		}
	}
	for _, s := range closed {
		// A call site of its own: the crash tests leave out the syncs of one site at a time.
		if err := s.file.SyncData(); err != nil {
			return fmt.Errorf("sync log segment %s: %w", s.name, err)
		}
	}
	return nil
}
