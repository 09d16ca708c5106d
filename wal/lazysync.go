package wal

import "fmt"

// A closed segment need not be durable before the next one is written to: a commit without a sync
// does not wait for one. The first waiter that wants a sync makes the closed segments durable, with
// all that they refer to, before anything behind them; others write to the current segment
// meanwhile. Those writers neither sync nor write directly: the durable part of the log has no
// gaps.
//
//	power cut ...                  the segments hold                 recovery
//	before closed ones are synced  any sectors of them, and of       ends at the first gap; no record behind
//	                               those behind                      it says that more was durable
//	after that                     all of them, any sectors behind   goes on to the next one

// hasUnsyncedSegments says that segments before the current one are not durable. mu is held.
func (s *syncer) hasUnsyncedSegments() bool { return s.durableEnd() < s.segment.start() }

// waitsForSegmentSync says whether a waiter for end waits for nothing but the running sync of
// closed segments, as far as the log knows now. mu is held.
func (s *syncer) waitsForSegmentSync(end LSN) bool { return s.syncingClosed && end <= s.writtenEnd() }

// syncClosedSegments makes all segments before the current one durable. It resigns the lead for
// that time, or for good if another goroutine is syncing them already. mu is held at both ends, not
// in between.
func (s *syncer) syncClosedSegments() {
	if s.syncingClosed {
		s.handOffLead()
		return
	}
	durable, end, unsynced := s.durableEnd(), s.segment.start(), s.unsyncedRefs
	s.unsyncedRefs = false // later writes set it again
	first, _ := s.opts.at(durable)
	closed := s.appender.segmentsFrom(first, s.segment.number)
	s.syncingClosed = true
	s.handOffLead()
	s.mu.Unlock()
	err := s.syncSegments(closed, unsynced)
	s.mu.Lock()
	s.syncingClosed = false
	if err == nil {
		s.durable.Store(uint64(end)) // No other goroutine moves durable meanwhile.
	} else {
		s.state.fail(err)
	}
	completed := s.completedWaiters()
	s.mu.Unlock()
	completed.wakeAll()
	s.mu.Lock()
	if !s.leading { // Waiters for later positions get a leader.
		s.leading = true
		s.resignLead()
		s.mu.Lock()
	}
}

// syncSegments does syncClosedSegments' work on the files.
func (s *syncer) syncSegments(closed []*segment, unsynced bool) error {
	if unsynced {
		if err := s.syncRefs(); err != nil {
			return err
		}
	}
	for _, seg := range closed {
		// A call site of its own: the crash tests leave out the syncs of one site at a time.
		if err := seg.file.SyncData(); err != nil {
			return fmt.Errorf("sync log segment %s: %w", seg.name, err)
		}
	}
	return nil
}
