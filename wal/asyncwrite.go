package wal

import "github.com/ebbkv/ebb/internal/vfs"

// A transaction that can encode its commit before it has changed the tree may have the disk write
// the record meanwhile: SubmitWrite, then the tree changes, then CompleteWrite. If the changes
// fail, Compensate cancels the record, and the next commit follows as if it had never been written.
//
//	crash ...                        the segment holds                recovery
//	after SubmitWrite                the record, whole, torn or not   finds the commit or not: it is not
//	                                                                  acknowledged
//	after CompleteWrite              the record                       finds the commit
//	after Compensate, before a sync  the record, and the              finds the commit unless the compensation
//	                                 compensation record or not       record is there: its failure is not
//	                                                                  reported yet
//	after that                       both                             skips the commit

// SubmitWrite writes the commits up to end, the end of the log, and makes them durable as Wait
// does, but returns once the write is submitted. The caller passes the result to CompleteWrite
// soon: until then it leads, and no waiter is notified. SubmitWrite returns nil and does
// nothing if it would block: another goroutine leads, or no direct write is possible now. The
// caller uses Wait then.
func (l *Log) SubmitWrite(end LSN) *PendingWrite {
	s := &l.syncer
	s.mu.Lock()
	if end != l.End() || s.leading || !s.canSubmit() {
		s.mu.Unlock()
		return nil
	}
	s.leading = true
	g := s.takeGroup(true)
	s.mu.Unlock()
	sealRecords(g.buffer, g.durableBefore)
	g.appendPadding()
	return &PendingWrite{g, g.buffer.seg.directFile.StartWriteAt(g.buffer.buf, g.buffer.offset())}
}

// canSubmit says whether the whole queue may be written now, directly and as one buffer. Commits
// that refer to bytes outside the log wait for those to be synced. mu is held.
func (s *syncer) canSubmit() bool {
	a := s.appender
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inCommit || len(a.queue) != 1 || s.state.err() != nil {
		return false
	}
	return s.directIO(a.queue[0]) && a.queue[0].ref == 0
}

// PendingWrite is a group that SubmitWrite has submitted.
type PendingWrite struct {
	group   group
	pending vfs.Pending
}

// CompleteWrite waits for the disk, notifies all waiters of the submitted commits and resigns the
// lead. It is called once.
func (l *Log) CompleteWrite(sent *PendingWrite) {
	g, outcome := &sent.group, writeComplete
	err := vfs.WriteRest(g.buffer.seg.directFile, sent.pending, g.buffer.buf, g.buffer.offset())
	if err != nil {
		outcome, err = writePartial, g.buffer.writeErr(err)
	}
	s := &l.syncer
	s.mu.Lock()
	s.finish(s.completeWrite(g, outcome, err))
}
