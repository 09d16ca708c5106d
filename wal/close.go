package wal

import (
	"errors"
	"slices"
)

// Finish prepares the log for removal. It returns the log's end, and the position where a log that
// continues behind its last segment begins. It discards the parts of an unfinished commit.
func (l *Log) Finish() (end, next LSN) {
	a := &l.appender
	a.mu.Lock()
	defer a.mu.Unlock()
	a.abort()
	return l.End(), l.opts.start(a.last().number + 1)
}

// Close ends the log; no other call may run meanwhile. With remove it deletes all segment files:
// the caller has made every commit durable elsewhere. Without remove it makes everything appended
// durable, writes the durability hint and keeps the files. After a failure Close writes and deletes
// nothing, and returns that failure.
func (l *Log) Close(remove bool) error {
	err := l.state.err()
	if err == ErrClosed {
		return nil
	}
	l.Abort()
	if err == nil && !remove {
		if err = l.Sync(); err == nil && l.syncer.hintedLSN < l.Durable() {
			err = l.syncer.writeHint(l.Durable())
		}
	}
	l.state.close()
	l.pool.preparing.Wait()
	all := slices.Concat(l.pool.free, l.appender.live)
	if l.appender.spare != nil {
		all = append(all, l.appender.spare)
	}
	var closing []error
	var names []string
	for _, s := range all {
		closing = append(closing, s.close())
		names = append(names, s.name)
	}
	if err == nil && remove {
		err = removeFiles(l.opts, names)
	}
	return errors.Join(append([]error{err}, closing...)...)
}

func (s *segment) close() error {
	var err error
	if s.directFile != nil {
		err = s.directFile.Close()
	}
	return errors.Join(err, s.file.Close())
}
