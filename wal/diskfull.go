package wal

import (
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/invariant"
)

// A log that finds no disk space for its next segment can restart in the file of its lowest
// segment, once every commit in it is durable in the data file.
//
//	crash ...                      the files hold                        recovery
//	before the header is durable   the whole log                         as after Finish
//	after it, before the rename    no log that begins at the lowest      nothing to replay; no file has the next segment's name
//	                               segment
//	after the rename               an empty segment where Finish says    nothing to replay
//	                               that the log goes on
//
// The log removes the other segments after that. A segment that reappears after a crash is below
// every position that recovery reads.

// RestartInPlace empties the log and continues at the position that Finish gave. The appender calls
// it when every group is written and a durable clean meta page makes the whole log obsolete. It
// allocates no disk space. When it returns, the old log is durably invalid. An error is final.
func (l *Log) RestartInPlace() error {
	if err := l.Sync(); err != nil {
		return err
	}
	l.segmentMu.Lock()
	defer l.segmentMu.Unlock()
	l.mu.Lock()
	// The leader that wrote the last group may still be writing the hint.
	for l.leading || l.syncingClosed {
		l.leadResigned.Wait()
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
	// The end moves first: a reader without mu never sees written past end, nor durable past
	// written.
	l.setEnd(seg.start())
	l.written.Store(uint64(seg.start()))
	l.durable.Store(uint64(seg.start()))
	l.resignLead()
	return nil
}

// reuseLowest does RestartInPlace's work on the files. The new log begins in the spare, if there is
// one by now, else in the lowest segment's file. Only the leader calls it, with segmentMu held.
// Other goroutines may read the old segments meanwhile, so reuseLowest changes a copy of the lowest
// one.
func (l *Log) reuseLowest(old []*segment, spare *segment, number uint64) (*segment, error) {
	if err := l.checkIdentity(); err != nil {
		return nil, err
	}
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
