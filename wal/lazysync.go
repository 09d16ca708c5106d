package wal

import "fmt"

// A segment that has ended need not be durable before the next one is written to: who wants no sync
// does not wait for one. It is settled, made durable with all that it refers to, before anything
// behind it is, by the first who wants a sync, and others write to the current segment meanwhile.
// They neither sync nor write past the page cache: what is durable has no gaps.
//
//	power cut ...                       the segments hold                       recovery
//	before an ended one is settled      any sectors of it, and of those behind  ends at the first gap; no record behind it says that more was durable
//	after that                          all of it, any sectors behind           goes on to the next one

// hasUnsyncedSegments says that segments before the current one are not durable. mu is held.
func (l *Log) hasUnsyncedSegments() bool { return l.Durable() < l.writeSegment.start() }

// waitsForSegmentSync says that who waits for end waits for nothing but what is being settled, as
// far as the log can tell now. mu is held.
func (l *Log) waitsForSegmentSync(end LSN) bool { return l.syncingClosed && end <= l.Written() }

// syncClosedSegments makes all segments before the current one durable, and gives the lead away for
// as long as that takes, or for good if somebody else is at it. mu is held at both ends.
func (l *Log) syncClosedSegments() {
	if l.syncingClosed {
		l.handOffLead()
		return
	}
	durable, end, owed := l.Durable(), l.writeSegment.start(), l.unsyncedRefs
	l.unsyncedRefs = false // but for what is written from now on
	var ended []*segment
	for _, s := range l.live {
		if s.number < l.writeSegment.number && durable < l.opts.start(s.number+1) {
			ended = append(ended, s)
		}
	}
	l.syncingClosed = true
	l.handOffLead()
	l.mu.Unlock()
	err := l.syncSegments(ended, owed)
	l.mu.Lock()
	l.syncingClosed = false
	if err == nil {
		l.durable.Store(uint64(end)) // Nothing else has become durable meanwhile.
	} else {
		l.fail(err)
	}
	over := l.completedWaiters()
	l.mu.Unlock()
	over.wakeAll()
	l.finishFollower() // Who waited for more has a leader again.
	l.mu.Lock()
}

// syncSegments does settle's work on the files.
func (l *Log) syncSegments(ended []*segment, owed bool) error {
	if owed {
		if err := l.syncRefs(); err != nil {
			return err
		}
	}
	for _, s := range ended {
		// a place of its own: crashtest syncs leaves out one place at a time
		if err := s.file.SyncData(); err != nil {
			return fmt.Errorf("sync log segment %s: %w", s.name, err)
		}
	}
	return nil
}
