package wal

import "fmt"

// A segment that has ended need not be durable before the next one is written to: who wants no sync does not wait for one. It is settled, made durable with all
// that it refers to, before anything behind it is, by the first who wants a sync, and others write to the current segment meanwhile. They neither
// sync nor write past the page cache: what is durable has no gaps.
//
//	power cut ...                       the segments hold                       recovery
//	before an ended one is settled      any sectors of it, and of those behind  ends at the first gap; no record behind it says that more was durable
//	after that                          all of it, any sectors behind           goes on to the next one

// unsettled says that segments before the current one are not durable. mu is held.
func (l *Log) unsettled() bool { return l.Durable() < l.at.start() }

// awaitsSettling says that who waits for end waits for nothing but what is being settled, as far as the log can tell now. mu is held.
func (l *Log) awaitsSettling(end LSN) bool { return l.settling && end <= l.Written() }

// settle makes all segments before the current one durable, and gives the lead away for as long as that takes, or for good if
// somebody else is at it. mu is held at both ends.
func (l *Log) settle() {
	if l.settling {
		l.pass()
		return
	}
	durable, end, owed := l.Durable(), l.at.start(), l.owed
	l.owed = false // but for what is written from now on
	var ended []*segment
	for _, s := range l.live {
		if s.number < l.at.number && durable < l.opts.start(s.number+1) {
			ended = append(ended, s)
		}
	}
	l.settling = true
	l.pass()
	l.mu.Unlock()
	err := l.syncEnded(ended, owed)
	l.mu.Lock()
	l.settling = false
	if err == nil {
		l.durable.Store(uint64(end)) // Nothing else has become durable meanwhile.
	} else {
		l.fail(err)
	}
	over := l.over()
	l.mu.Unlock()
	over.wake()
	l.quit() // Who waited for more has a leader again.
	l.mu.Lock()
}

// syncEnded does settle's work on the files.
func (l *Log) syncEnded(ended []*segment, owed bool) error {
	if owed {
		if err := l.secure(); err != nil {
			return err
		}
	}
	for _, s := range ended {
		if err := s.file.SyncData(); err != nil { // a place of its own: crashtest syncs leaves out one place at a time
			return fmt.Errorf("sync log segment %s: %w", s.name, err)
		}
	}
	return nil
}
