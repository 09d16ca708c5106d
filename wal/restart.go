package wal

import (
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/invariant"
)

// A log whose next segment finds no room on the disk can begin anew in the file of its lowest one, once all that it says is durable elsewhere.
//
//	crash ...                      the files hold                        recovery
//	before the header is durable   the whole log                         as after Finish
//	after it, before the rename    no log that begins at the lowest      nothing to replay; no file has the next segment's name
//	                               segment
//	after the rename               an empty segment where Finish says    nothing to replay
//	                               that the log goes on
//
// The other segments are removed after that. One that comes back is below all that anybody looks for.

// Restart goes on where Finish has said, with an empty log. It is for the one who appends, when nothing is left to be written and a durable meta page, which says that the store is clean, makes
// the whole log needless. It asks the disk for nothing. When it returns the log before is durably none. An error is final.
func (l *Log) Restart() error {
	if err := l.Sync(); err != nil {
		return err
	}
	l.prep.Lock()
	defer l.prep.Unlock()
	l.mu.Lock()
	for l.leading || l.settling || len(l.flying) > 0 { // Who was told of the last group may still be busy with the note.
		l.arrived.Wait()
	}
	if err := l.refuse(); err != nil {
		l.mu.Unlock()
		return err
	}
	l.leading = true
	old, spare := l.live, l.spare
	last := old[len(old)-1]
	if len(l.queue) > 0 || l.inCommit || l.at != last {
		invariant.Fail("wal: segment %d ends with something left to be written", last.number)
	}
	l.mu.Unlock()
	seg, err := l.renew(old, spare, last.number+1)
	l.mu.Lock()
	if err != nil {
		l.fail(err)
		l.leave()
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	l.past += last.room
	l.used, l.prev, l.mark = 0, 0, mark{}
	l.live, l.spare, l.at, l.direct = []*segment{seg}, nil, seg, false
	l.pos, l.reach, l.noted = seg.start(), seg.start(), seg.start()
	l.ends(seg.start()) // This one first: who looks without mu never sees more written than there is, nor more durable than is written.
	l.written.Store(uint64(seg.start()))
	l.durable.Store(uint64(seg.start()))
	l.leave()
	return nil
}

// renew does Restart's work on the files: the segment that the log begins anew in is the spare, should there be one by now, or the lowest one's file. Only who leads
// is here, with prep. Others may look at the old segments meanwhile, so that the lowest one stays what it was.
func (l *Log) renew(old []*segment, spare *segment, number uint64) (*segment, error) {
	if err := l.ours(); err != nil {
		return nil, err
	}
	l.window.close()
	seg := spare
	if seg == nil {
		again := *old[0]
		if err := l.recycle(&again, number); err != nil {
			return nil, err
		}
		seg, old = &again, old[1:]
	} else if err := old[0].end(); err != nil {
		return nil, err
	}
	for _, s := range old {
		if err := errors.Join(s.close(), l.opts.FS.Remove(s.name)); err != nil {
			return nil, fmt.Errorf("remove log segment %s: %w", s.name, err)
		}
		l.bytes.Add(-s.room)
	}
	return seg, nil
}
