package wal

import "fmt"

// Commits may refer to bytes outside the log.

// AddExternalRef declares that the commit whose last part comes next refers to bytes outside the
// log, which Options.SyncRefs makes durable. With firm, the leader calls SyncRefs before it writes
// that part: a valid record never refers to bytes that a crash has lost. Else it calls SyncRefs
// before the log reports the commit durable: in recovery, the callback of Replay verifies the
// referenced bytes and returns ErrRefLost if a crash has lost them.
func (l *Log) AddExternalRef(firm bool) {
	how := refSyncLater
	if firm {
		how = refSyncFirst
	}
	a := &l.appender
	a.mu.Lock()
	a.nextRef = max(a.nextRef, how)
	a.mu.Unlock()
}

// externalRef says how a commit refers to bytes outside the log.
type externalRef uint8

const (
	refSyncLater externalRef = 1 // they are durable before the commit is
	refSyncFirst externalRef = 2 // before it is written
)

// syncBeforeWrite makes durable what the group refers to, before the group is written or before it
// is durable.
func (s *syncer) syncBeforeWrite(g *group) error {
	unsynced, durable := s.unsyncedRefs, g.sync || g.direct
	if g.buffer != nil && g.buffer.ref > 0 {
		unsynced, durable = true, durable || g.buffer.ref == refSyncFirst
	}
	s.unsyncedRefs = unsynced
	if !unsynced || !durable {
		return nil
	}
	if err := s.syncRefs(); err != nil {
		return err
	}
	s.unsyncedRefs = false
	return nil
}

// syncRefs makes durable the bytes that the log refers to.
func (s *syncer) syncRefs() error {
	if s.opts.SyncRefs == nil {
		return nil
	}
	if err := s.opts.SyncRefs(); err != nil {
		return fmt.Errorf("before a write to the log: %w", err)
	}
	return nil
}
