package wal

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ebbkv/ebb/internal/vfs"
)

var (
	// ErrBound is returned by an Append that SetBound refuses. It is vfs.ErrNoSpace, too.
	ErrBound = errors.New("wal: the bound is met")

	// ErrFailed is returned by every call after the first failed write, sync or rename, and wraps
	// that first cause. A commit whose Append or Wait returns it is not in the log, now or after a
	// restart.
	ErrFailed = errors.New("wal: log failed earlier and takes no more writes")

	// ErrUnknown is returned by Wait if bytes of the commit may have reached the file and the log
	// could not truncate them. It wraps the cause. Only recovery can decide.
	ErrUnknown = errors.New("wal: fate of the commit is unknown")

	// ErrClosed is returned by every call after Close.
	ErrClosed = errors.New("wal: log is closed")
)

// maxQueuedBytes bounds the bytes that wait in memory to be written, give or take one record.
// Beyond it Append first writes the queue.
const maxQueuedBytes = 1 << 20

// A Log appends to a chain of segments. Its parts own their fields and locks: the appender queues
// records, the syncer writes and syncs them in groups, the pool makes and recycles segment files.
// Locks are taken in the order pool, syncer, appender. It always holds that
//
//	durable <= written <= end, each the end of a record or the first position of a segment.
type Log struct {
	opts     Options // set by Create, then read-only
	state    state
	appender appender
	syncer   syncer
	pool     segmentPool
}

// state says whether a log takes no more writes. The first reason stays.
type state struct{ stopped atomic.Pointer[stop] }

// stop is the reason: cause, or nil after Close.
type stop struct{ cause error }

// fail makes the log refuse every later operation.
func (s *state) fail(cause error) { s.stopped.CompareAndSwap(nil, &stop{cause}) }

func (s *state) close() { s.stopped.Store(&stop{}) }

// err gives the error for calls that cannot append any more.
func (s *state) err() error {
	switch at := s.stopped.Load(); {
	case at == nil:
		return nil
	case at.cause == nil:
		return ErrClosed
	default:
		return fmt.Errorf("%w: %w", ErrFailed, at.cause)
	}
}

// Create starts a log with a fresh segment of the given number, which no file has yet (see
// ScanResult.NextNumber). follows is the durable checkpoint. The segment is durable when Create
// returns; End is the position of the first record.
func Create(o Options, number uint64, follows uint32) (*Log, error) {
	o, err := o.checked()
	if err != nil {
		return nil, err
	}
	l := &Log{opts: o}
	a, p, s := &l.appender, &l.pool, &l.syncer
	p.opts, p.state, p.appender = &l.opts, &l.state, a
	s.opts, s.state, s.appender, s.pool = &l.opts, &l.state, a, p
	s.leadResigned.L = &s.mu
	p.follows.Store(follows)
	size, fill := p.fileSize(0)
	seg, err := p.newSegment(number, size, fill, vfs.Excl)
	if err != nil {
		return nil, err
	}
	a.begin(seg)
	s.begin(seg)
	return l, nil
}

// Durable gives the position before which everything is durable.
func (l *Log) Durable() LSN { return LSN(l.syncer.durable.Load()) }

// Written gives the position before which everything was given to the operating system.
func (l *Log) Written() LSN { return LSN(l.syncer.written.Load()) }

// End gives the position before which everything was appended.
func (l *Log) End() LSN { return LSN(l.appender.end.Load()) }

// Bytes gives the size of all segment files on disk, spare and retired ones included.
func (l *Log) Bytes() int64 { return l.pool.bytes.Load() }

// Volume gives the bytes that all appended records take in files, those of removed segments and the
// unused ends of segments included. For full-size segments it equals the distance of the positions;
// shorter ones take less.
func (l *Log) Volume() int64 { return l.appender.volume.Load() }

// Groups gives the number of writes so far that ended a commit, each shared by the commits that
// waited for it.
func (l *Log) Groups() uint64 { return l.syncer.groups.Load() }

// SetFollows sets the checkpoint that later segment headers name.
func (l *Log) SetFollows(epoch uint32) { l.pool.follows.Store(epoch) }

// SetBound makes Append refuse new segment files from now on if all of them together would have
// more bytes, as a full disk would; 0: no bound.
func (l *Log) SetBound(bytes int64) { l.pool.bound.Store(bytes) }

// Append queues the next part of the current commit; last says that it is complete. It copies
// payload and returns the position to pass to Wait. If the queue has more than maxQueuedBytes it
// first writes the queue, without a sync.
//
// If there is no disk space for a new segment it returns an error that wraps vfs.ErrNoSpace. Any
// error discards the parts of the commit that were appended before; so does a panic of OnGroup.
// Other errors wrap ErrFailed and are final.
func (l *Log) Append(payload []byte, last bool) (LSN, error) {
	a := &l.appender
	a.mu.Lock()
	done := false
	defer func() {
		if !done {
			a.abort()
		}
		a.mu.Unlock()
	}()
	for {
		if err := l.state.err(); err != nil {
			return 0, err
		}
		if a.queuedBytes() > maxQueuedBytes {
			l.writeQueue()
			continue
		}
		n, ok := a.partSize(len(payload))
		if !ok {
			if err := l.rollSegment(l.pool.prepareWithinBound); err != nil {
				return 0, err
			}
			continue
		}
		done = n == len(payload)
		a.appendPart(payload[:n], last && done)
		payload = payload[n:]
		if done {
			return l.End(), nil
		}
	}
}

// writeQueue waits until the leader has written the queue, which syncs if any waiter wants it. A
// failure shows in state. The appender's lock is held at both ends, not in between.
func (l *Log) writeQueue() {
	l.appender.mu.Unlock()
	defer l.appender.mu.Lock() // also when OnGroup panics
	_ = l.Wait(l.End(), false)
}

// rollSegment closes the current segment if the next one is ready. Else it calls prepare, without
// the appender's lock, and returns; the caller checks again. The lock is held at both ends.
func (l *Log) rollSegment(prepare func() error) error {
	if l.appender.spare == nil {
		l.appender.mu.Unlock()
		defer l.appender.mu.Lock() // also when prepare panics
		return prepare()
	}
	l.appender.seal()
	return nil
}

// Abort discards the parts of the current commit.
func (l *Log) Abort() {
	l.appender.mu.Lock()
	l.appender.abort()
	l.appender.mu.Unlock()
}

// Rotate closes the current segment: it queues an end record, and returns the first position of the
// next segment, where later records go. It discards the parts of an unfinished commit. It prepares
// a segment if Prepare was not called before, with the errors of Append.
func (l *Log) Rotate() (LSN, error) {
	a := &l.appender
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := l.state.err(); err != nil {
		return 0, err
	}
	a.abort()
	for sealed := a.last(); a.last() == sealed; {
		if err := l.rollSegment(l.Prepare); err != nil {
			return 0, err
		}
	}
	return l.End(), nil
}

// Prepare prepares the next segment, so that Rotate, or an Append that fills the current one, need
// not. The caller is about to free space, so SetBound does not bind Prepare. An error that wraps
// vfs.ErrNoSpace changes nothing; any other is final.
func (l *Log) Prepare() error { return l.pool.prepareUnbound() }

// PrepareEarly begins to do what Prepare does, within the bound: the caller will call Prepare, and has
// something else to do until then. It drops the error.
func (l *Log) PrepareEarly() { l.pool.prepareInBackground(true) }

// Fail makes the log refuse every later operation, with a cause from the caller: nothing more is
// written, not even by Close.
func (l *Log) Fail(cause error) { l.state.fail(cause) }

// Wait returns once everything before end was written to the operating system or, with sync, is
// durable. It shares writes and syncs with all concurrent waiters.
//
// An error that wraps ErrUnknown means that the bytes before end may or may not be found after a
// restart; one that wraps ErrFailed means that the commit which ends there will not be found.
func (l *Log) Wait(end LSN, sync bool) error {
	if end <= l.Durable() {
		return nil
	}
	l.syncer.mu.Lock()
	return l.syncer.wait(end, sync)
}

// Sync makes durable all commits that were appended before, and the segments that Rotate closed. It
// does not wait for parts of an unfinished commit, nor for segments that they filled: Abort may
// discard them meanwhile, and then the log never reaches their positions.
func (l *Log) Sync() error { return l.Wait(l.appender.committedEnd(), true) }

// Trim removes the retired segments that Release has kept. An error is final.
func (l *Log) Trim() error { return l.pool.trim() }

// Release retires all segments that are wholly before the given position. When it returns the
// lowest of them is durably invalid: whatever a crash does to renames and unlinks, a meta page that
// starts there finds no complete chain. Release keeps the others for recycling up to KeepFree of them, and
// deletes the rest. An error is final.
func (l *Log) Release(before LSN) error {
	// The leader must have written the end records of the retired segments before their files are
	// written to again.
	if err := l.Wait(min(before, l.End()), true); err != nil {
		return err
	}
	number, _ := l.opts.at(before)
	return l.pool.release(number)
}
