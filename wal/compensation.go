package wal

import "github.com/ebbkv/ebb/internal/invariant"

// A void is a record that takes back the commit before it. Replay holds each commit until it has
// seen that none follows.

// Compensate takes the last commit back, whether it is in the file or not, and returns the position
// to give to Wait: what was taken back is not found any more once that is durable. Nothing was
// appended since. Errors are those of Append, and say nothing about the commit.
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

// HasCommitSpace says that there is room for a commit of n bytes and for the void that may have to
// follow, in segments that are there: neither asks a disk that may be full.
func (l *Log) HasCommitSpace(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n += (n/maxPart + 2) * 2 * recHeader // a header for each part, and what may lie before one
	fits := func(from, limit LSN) bool {
		// A group may be padded to that when it is written: the one before the commit meanwhile,
		// and the commit itself.
		return alignUp(alignUp(from, pageUnit)+LSN(n), pageUnit)+recHeader <= limit
	}
	return fits(l.pos, l.live[len(l.live)-1].limit()) || l.spare != nil && fits(l.spare.start(), l.spare.limit())
}
