package wal

import "fmt"

// Commits may refer to bytes outside the log.

// Refers says that the commit whose last part comes next refers to bytes outside the log, which Options.Before makes durable. If firm it does so
// before that part is written: a record which checks out never refers to what a crash has taken. Else it does so before the log says
// that the commit is durable: Replay learns from who looks at the payload that a crash has taken what it refers to (ErrTaken).
func (l *Log) Refers(firm bool) {
	l.mu.Lock()
	how := loosely
	if firm {
		how = firmly
	}
	l.refers = max(l.refers, how)
	l.mu.Unlock()
}

// reference says how a commit refers to bytes outside the log.
type reference uint8

const (
	loosely reference = 1 // they are durable before the commit is
	firmly  reference = 2 // before it is written
)

// before makes durable what has to be before the group is written, or before it is durable.
func (l *Log) before(g *group) error {
	owed, durable := l.owed, g.sync || g.direct
	if g.run != nil && g.run.refers > 0 {
		owed, durable = true, durable || g.run.refers == firmly
	}
	if owed != l.owed { // not if others fly beside it: they owe nothing, nor does what was written before
		l.owed = owed
	}
	if !owed || !durable {
		return nil
	}
	if err := l.secure(); err != nil {
		return err
	}
	l.owed = false
	return nil
}

// secure makes durable what the log refers to.
func (l *Log) secure() error {
	if l.opts.Before == nil {
		return nil
	}
	if err := l.opts.Before(); err != nil {
		return fmt.Errorf("before a write to the log: %w", err)
	}
	return nil
}
