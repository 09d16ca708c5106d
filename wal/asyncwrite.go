package wal

import "github.com/ebbkv/ebb/internal/vfs"

// Who knows what a commit will say before it has been carried out may have the disk write it
// meanwhile: Launch, then the work, then Land. Should the work fail, Void takes back what the log
// says, and the commit after it comes as if there had never been one.
//
//	crash ...                          the segment holds                  recovery
//	between Launch and Land            the record, whole or torn or not   finds the commit, or not: nobody was told anything
//	after Land                         the record                         finds the commit
//	after Void, before it is durable   the record, the void or not        finds the commit unless the void is there: nobody was told
//	                                                                      that it failed
//	after that                         both                               passes over it

// SubmitWrite has the commits up to end, the end of the log, written and made durable as Wait does,
// but returns when the disk is at work. The caller comes back soon, with Land of what it got: until
// then nobody hears of what is written later. It is nil, and nothing has happened, if Launch would
// have to wait itself: for others who are at work on the log, or because nothing can be written
// past the page cache now. Then Wait will do.
func (l *Log) SubmitWrite(end LSN) *PendingWrite {
	l.mu.Lock()
	if end != l.End() || !l.canSubmit() {
		l.mu.Unlock()
		return nil
	}
	f := l.startWrite(l.takeGroup(true))
	l.mu.Unlock()
	sealRecords(f.run, f.durableBefore)
	f.appendPadding()
	return &PendingWrite{f, f.run.seg.directFile.StartWriteAt(f.run.buf, f.run.offset())}
}

// canSubmit says whether all that is queued may depart now, and others beside it. mu is held.
func (l *Log) canSubmit() bool {
	if l.leading || l.inCommit || len(l.queue) != 1 || l.stickyErr() != nil {
		return false
	}
	r := l.queue[0]
	return l.directIO(r) && overlappable(r, true) && l.canStartWrite(true)
}

// PendingWrite is a group that Launch has sent.
type PendingWrite struct {
	write   *inflightWrite
	pending vfs.Pending
}

// CompleteWrite waits for the disk, and tells all who wait for what was launched. It is called
// once.
func (l *Log) CompleteWrite(sent *PendingWrite) {
	f, fate := sent.write, writeComplete
	err := vfs.WriteRest(f.run.seg.directFile, sent.pending, f.run.buf, f.run.offset())
	if err != nil {
		fate, err = writePartial, f.run.writeErr(err)
	}
	l.mu.Lock()
	told := l.completeWrite(f, fate, err)
	l.finishWrite(f, l.completedWaiters(), told)
}
