package wal

import "errors"

// Finish prepares the log for removal. It returns the log's end, and the position where a log that
// continues behind its last segment begins. It discards the parts of an unfinished commit.
func (l *Log) Finish() (end, next LSN) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abort()
	return l.End(), l.opts.start(l.live[len(l.live)-1].number + 1)
}

// Close ends the log; no other call may run meanwhile. With remove it deletes all segment files:
// the caller has made every commit durable elsewhere. Without remove it makes everything appended
// durable, writes the durability hint and keeps the files. After a failure Close writes and deletes
// nothing, and returns that failure.
func (l *Log) Close(remove bool) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.abort()
	err := l.stickyErr()
	l.mu.Unlock()
	if err == nil && !remove {
		if err = l.Sync(); err == nil && l.hintedLSN < l.Durable() {
			err = l.writeHint(l.Durable())
		}
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.preparing.Wait()
	l.mu.Lock()
	all := append([]*segment(nil), l.free...)
	all = append(all, l.live...)
	if l.spare != nil {
		all = append(all, l.spare)
	}
	l.mu.Unlock()

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
