package wal

import (
	"fmt"

	"github.com/ebbkv/ebb/internal/invariant"
)

// A log that finds no disk space for its next segment can restart in the file of its lowest
// segment, once every commit in it is durable in the data file.
//
//	crash ...                      the files hold                        recovery
//	before the header is durable   the whole log                         as after Finish
//	after it, before the rename    no log that begins at the lowest      nothing to replay; no file has the
//	                               segment                               next segment's name
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
	p, y, a := &l.pool, &l.syncer, &l.appender
	p.mu.Lock()
	defer p.mu.Unlock()
	y.mu.Lock()
	// The leader that wrote the last group may still be writing the hint.
	for y.leading || y.syncingClosed {
		y.leadResigned.Wait()
	}
	if err := l.state.err(); err != nil {
		y.mu.Unlock()
		return err
	}
	y.leading = true
	a.mu.Lock()
	old, spare, last := a.live, a.spare, a.last()
	if len(a.queue) > 0 || a.inCommit || y.segment != last {
		invariant.Fail("wal: segment %d ends with something left to be written", last.number)
	}
	a.mu.Unlock()
	y.mu.Unlock()
	seg, err := p.reuseLowest(old, spare, last.number+1)
	y.mu.Lock()
	if err != nil {
		l.state.fail(err)
		y.resignLead()
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	// The end moves first: a reader without a lock never sees written past end.
	a.mu.Lock()
	a.fullSegmentBytes += last.fileSize
	a.begin(seg)
	a.mu.Unlock()
	y.begin(seg)
	y.resignLead()
	return nil
}

// reuseLowest does RestartInPlace's work on the files. The new log begins in the spare, if there is
// one by now, else in the lowest segment's file. Only the leader calls it, with mu held.
// Other goroutines may read the old segments meanwhile, so reuseLowest changes a copy of the lowest
// one.
func (p *segmentPool) reuseLowest(old []*segment, spare *segment, number uint64) (*segment, error) {
	if err := p.checkIdentity(); err != nil {
		return nil, err
	}
	seg := spare
	if seg == nil {
		again := *old[0]
		if err := p.recycle(&again, number); err != nil {
			return nil, err
		}
		seg, old = &again, old[1:]
	} else if err := old[0].invalidate(); err != nil {
		return nil, err
	}
	for _, s := range old {
		if err := p.remove(s); err != nil {
			return nil, err
		}
	}
	return seg, nil
}
