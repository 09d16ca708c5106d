package wal

import "fmt"

// Commits may refer to bytes outside the log.

// AddExternalRef says that the commit whose last part comes next refers to bytes outside the log,
// which Options.SyncRefs makes durable. If firm it does so before that part is written: a record
// which checks out never refers to what a crash has taken. Else it does so before the log says that
// the commit is durable: Replay learns from who looks at the payload that a crash has taken what it
// refers to (ErrRefLost).
func (l *Log) AddExternalRef(firm bool) {
	l.mu.Lock()
	how := refSyncLater
	if firm {
		how = refSyncFirst
	}
	l.nextRef = max(l.nextRef, how)
	l.mu.Unlock()
}

// externalRef says how a commit refers to bytes outside the log.
type externalRef uint8

const (
	refSyncLater externalRef = 1 // they are durable before the commit is
	refSyncFirst externalRef = 2 // before it is written
)

// syncBeforeWrite makes durable what has to be before the group is written, or before it is
// durable.
func (l *Log) syncBeforeWrite(g *group) error {
	owed, durable := l.unsyncedRefs, g.sync || g.direct
	if g.run != nil && g.run.ref > 0 {
		owed, durable = true, durable || g.run.ref == refSyncFirst
	}
	// not if others fly beside it: they owe nothing, nor does what was written before
	if owed != l.unsyncedRefs {
		l.unsyncedRefs = owed
	}
	if !owed || !durable {
		return nil
	}
	if err := l.syncRefs(); err != nil {
		return err
	}
	l.unsyncedRefs = false
	return nil
}

// syncRefs makes durable what the log refers to.
func (l *Log) syncRefs() error {
	if l.opts.SyncRefs == nil {
		return nil
	}
	if err := l.opts.SyncRefs(); err != nil {
		return fmt.Errorf("before a write to the log: %w", err)
	}
	return nil
}
