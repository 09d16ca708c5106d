package txn

import (
	"sync"
	"sync/atomic"

	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// A commitQueue holds the versions that are not visible yet, in commit order. A commit queues its
// version while it holds the writer lock, and waits without it: all waiting commits share the writes
// and syncs of the log (group commit), and each that returns makes all finished versions visible.
type commitQueue struct {
	undo    *pager.UndoLog
	visible atomic.Pointer[version] // that new snapshots read

	mu      sync.Mutex // guards the fields below, and version.hidden
	waiting []*version
	log     *wal.Log // nil before the session's first change; a committer reads it without mu
	durable uint64   // a durable commit: all newer ones were durable when they became visible
}

// start sets the log of the session.
func (q *commitQueue) start(log *wal.Log) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.log = log
}

// sessionLog is the log, nil before the session's first change.
func (q *commitQueue) sessionLog() *wal.Log {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.log
}

// push queues the version of a commit. Writer lock.
func (q *commitQueue) push(v *version) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, v)
}

// empty says that all versions are visible.
func (q *commitQueue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) == 0
}

// wait returns when v may become visible, and makes it visible. The error is that of the log.
func (q *commitQueue) wait(v *version, sync bool) error {
	err := q.log.Wait(v.lsn, sync)
	if err == nil && !sync && q.log.Durable() < v.syncLSN {
		err = q.log.Wait(v.syncLSN, true)
	}
	if err == nil {
		q.makeVisible()
	}
	return err
}

// reveal makes a hidden version visible, with those before it.
func (q *commitQueue) reveal(v *version) {
	q.mu.Lock()
	v.hidden = false
	q.mu.Unlock()
	q.makeVisible()
}

// makeVisible publishes the newest version whose record is written and for which every Sync commit
// up to it is durable. A crash cannot undo a Sync commit that a reader has seen.
func (q *commitQueue) makeVisible() {
	q.mu.Lock()
	defer q.mu.Unlock()
	var written, durable wal.LSN
	if q.log != nil {
		written, durable = q.log.Written(), q.log.Durable()
	}
	n := 0
	for _, v := range q.waiting {
		if v.hidden || v.lsn > written || v.syncLSN > durable {
			break
		}
		if v.lsn <= durable {
			q.durable = v.seq
		}
		n++
	}
	if n == 0 {
		return
	}
	v := q.waiting[n-1]
	q.undo.Publish(v.serial, func() { q.visible.Store(v) })
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
}

// durableCommit is the number of the newest commit that is known to survive a power cut.
func (q *commitQueue) durableCommit() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if v := q.visible.Load(); q.log == nil || v.lsn <= q.log.Durable() {
		q.durable = max(q.durable, v.seq)
	}
	return q.durable
}
