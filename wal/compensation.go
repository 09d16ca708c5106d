package wal

import "github.com/ebbkv/ebb/internal/invariant"

// A compensation record cancels the commit before it. Replay holds each commit until it has seen
// that no compensation record follows.

// Compensate cancels the last commit, whether it is in the file or not, and returns the position to
// pass to Wait: once that is durable, no replay finds the commit. The caller has appended nothing
// since. Errors are those of Append, and say nothing about the commit.
func (l *Log) Compensate() (LSN, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inCommit {
		invariant.Fail("wal: a commit is voided in the middle of the next one")
	}
	for {
		if err := l.stickyErr(); err != nil {
			return 0, err
		}
		if _, ok := l.partSize(0); ok {
			break
		}
		if err := l.rollSegment(l.prepareWithinBound); err != nil {
			return 0, err
		}
	}
	r := l.tailBuffer()
	l.encode(r, record{kind: typeCompensation})
	r.end = l.pos
	l.setEnd(l.pos)
	return l.End(), nil
}

// HasCommitSpace says whether a commit of n bytes and its compensation record fit in existing
// segments: appending either needs no disk space.
func (l *Log) HasCommitSpace(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n += (n/maxPart + 2) * 2 * recHeader // a header and the padding before it, for each part
	fits := func(from, limit LSN) bool {
		// The leader may pad two groups to a page: the one before the commit, and the commit's own.
		return alignUp(alignUp(from, pageUnit)+LSN(n), pageUnit)+recHeader <= limit
	}
	return fits(l.pos, l.live[len(l.live)-1].limit()) || l.spare != nil && fits(l.spare.start(), l.spare.limit())
}
