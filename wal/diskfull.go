package wal

import (
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/invariant"
)

// A log whose next segment finds no room on the disk can begin anew in the file of its lowest one,
// once all that it says is durable elsewhere.
//
//	crash ...                      the files hold                        recovery
//	before the header is durable   the whole log                         as after Finish
//	after it, before the rename    no log that begins at the lowest      nothing to replay; no file has the next segment's name
//	                               segment
//	after the rename               an empty segment where Finish says    nothing to replay
//	                               that the log goes on
//
// The other segments are removed after that. One that comes back is below all that anybody looks
// for.

// RestartInPlace goes on where Finish has said, with an empty log. It is for the one who appends,
// when nothing is left to be written and a durable meta page, which says that the store is clean,
// makes the whole log needless. It asks the disk for nothing. When it returns the log before is
// durably none. An error is final.
func (l *Log) RestartInPlace() error {
	if err := l.Sync(); err != nil {
		return err
	}
	l.segmentMu.Lock()
	defer l.segmentMu.Unlock()
	l.mu.Lock()
	// Who was told of the last group may still be busy with the note.
	for l.leading || l.syncingClosed || len(l.inflight) > 0 {
		l.writeDone.Wait()
	}
	if err := l.stickyErr(); err != nil {
		l.mu.Unlock()
		return err
	}
	l.leading = true
	old, spare := l.live, l.spare
	last := old[len(old)-1]
	if len(l.queue) > 0 || l.inCommit || l.writeSegment != last {
		invariant.Fail("wal: segment %d ends with something left to be written", last.number)
	}
	l.mu.Unlock()
	seg, err := l.reuseLowest(old, spare, last.number+1)
	l.mu.Lock()
	if err != nil {
		l.fail(err)
		l.resignLead()
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	l.fullSegmentBytes += last.fileSize
	l.recordBytes, l.prev, l.commitStart = 0, 0, commitStart{}
	l.live, l.spare, l.writeSegment, l.direct = []*segment{seg}, nil, seg, false
	l.pos, l.maxSubmitted, l.hintedLSN = seg.start(), seg.start(), seg.start()
	// This one first: who looks without mu never sees more written than there is, nor more durable
	// than is written.
	l.setEnd(seg.start())
	l.written.Store(uint64(seg.start()))
	l.durable.Store(uint64(seg.start()))
	l.resignLead()
	return nil
}

// reuseLowest does Restart's work on the files: the segment that the log begins anew in is the
// spare, should there be one by now, or the lowest one's file. Only who leads is here, with prep.
// Others may look at the old segments meanwhile, so that the lowest one stays what it was.
func (l *Log) reuseLowest(old []*segment, spare *segment, number uint64) (*segment, error) {
	if err := l.checkIdentity(); err != nil {
		return nil, err
	}
	l.mmap.close()
	seg := spare
	if seg == nil {
		again := *old[0]
		if err := l.recycle(&again, number); err != nil {
			return nil, err
		}
		seg, old = &again, old[1:]
	} else if err := old[0].invalidate(); err != nil {
		return nil, err
	}
	for _, s := range old {
		if err := errors.Join(s.close(), l.opts.FS.Remove(s.name)); err != nil {
			return nil, fmt.Errorf("remove log segment %s: %w", s.name, err)
		}
		l.bytes.Add(-s.fileSize)
	}
	return seg, nil
}
