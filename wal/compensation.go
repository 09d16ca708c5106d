package wal

import "github.com/ebbkv/ebb/internal/invariant"

// A compensation record cancels the commit before it. Replay holds each commit until it has seen
// that no compensation record follows.

// Compensate cancels the last commit, whether it is in the file or not, and returns the position to
// pass to Wait: once that is durable, no replay finds the commit. The caller has appended nothing
// since. Errors are those of Append, and say nothing about the commit.
func (l *Log) Compensate() (LSN, error) {
	a := &l.appender
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inCommit {
		invariant.Fail("wal: a commit is compensated in the middle of the next one")
	}
	for {
		if err := l.state.err(); err != nil {
			return 0, err
		}
		if _, ok := a.partSize(0); ok {
			a.appendCompensation()
			return l.End(), nil
		}
		if err := l.rollSegment(l.pool.prepareWithinBound); err != nil {
			return 0, err
		}
	}
}

// HasCommitSpace says whether a commit of n bytes and its compensation record fit in existing
// segments: appending either needs no disk space.
func (l *Log) HasCommitSpace(n int) bool {
	// a header and the padding before it, for each part
	return l.appender.hasSpace(n + (n/maxPart+2)*2*recHeader)
}
