package wal

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ebbkv/ebb/internal/invariant"
	"github.com/ebbkv/ebb/internal/vfs"
)

var (
	// ErrFailed is returned by every call after the first failed write, sync or rename, and wraps
	// that first cause. A commit whose Append or Wait returns it is not in the log, now or after a
	// restart. ErrBound is that of an Append which SetBound refuses; it is vfs.ErrNoSpace, too.
	ErrBound  = errors.New("wal: the bound is met")
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

// A Log appends to a chain of segments. Outside the functions that hold mu it always holds that
//
//	(1) durable <= written <= end <= pos, and maxSubmitted is in [written, end].
//	(2) the buffers in queue are in order of position, and all but the last are sealed.
//	(3) all but the last segment in live are sealed (the end record may still be queued), their numbers
//	    have no gap, and spare, if there is one, has the number that follows.
//	(4) one goroutine at a time writes to the segments, the leader; if leading is false, waiters wait
//	    for the sync of closed segments only.
type Log struct {
	opts    Options // set by Create, then read-only
	follows atomic.Uint32

	// Positions that may be read without mu, and are changed under it. Each is the end of a record,
	// or the position of a segment's first one.
	durable      atomic.Uint64 // everything before it is durable
	written      atomic.Uint64 // everything before it was given to the operating system
	end          atomic.Uint64 // everything before it was appended
	volume       atomic.Int64  // see Volume
	bytes        atomic.Int64  // of the segment files on disk
	groups       atomic.Uint64 // see Groups
	skipZeroFill atomic.Bool   // a new segment need not be filled: see largeGroup
	bound        atomic.Int64  // see SetBound

	// segmentMu serialises making, recycling and retiring segments. It is taken before mu, never
	// after, and held across writes and syncs of segments that hold no record that counts.
	segmentMu sync.Mutex
	free      []*segment     // guarded by segmentMu: retired, kept to be recycled
	preparing sync.WaitGroup // goroutines that prepare a segment

	// mu guards the fields below. It is never held across a write or a sync.
	mu               sync.Mutex
	live             []*segment // by ascending number; the last one is appended to
	spare            *segment   // prepared durably, holds no record; or nil
	queue            []*writeBuffer
	pos              LSN   // where the next record may begin
	fullSegmentBytes int64 // bytes of the closed files,
	recordBytes      int64 // and the records' share of them
	prev             LSN   // last record
	commitStart      commitStart
	inCommit         bool        // parts of a commit were appended, its last part not yet
	nextRef          externalRef // of the next commit to end; 0: none
	maxSubmitted     LSN         // bytes before it may be in a file
	cause            error
	closed           bool
	leading          bool // some goroutine takes groups from the queue, or is about to
	writing          bool // the leader's write has not completed; maxSubmitted is its end
	waiters          []*waiter
	leadResigned     sync.Cond // signalled when there is no leader any more
	syncingClosed    bool      // a goroutine is in syncClosedSegments

	eventMu sync.Mutex // held during OnGroup; taken with no other lock held

	// The leader changes these under mu, and may read them without.
	writeSegment *segment // to be written to; its end record is not written, so Release keeps it
	direct       bool     // the last write to writeSegment was direct

	// Owned by the leader, which may use them without mu.
	zeroedTo     LSN  // zeros were written through the cache from the last record to here
	writebackTo  LSN  // writeback has started for writes before it
	hintedLSN    LSN  // position in the last hint
	unsyncedRefs bool // written records refer to bytes that are not durable yet
	hintBuf      [hintLen]byte

	// Guarded by mu, too.
	lastGroupCommits int            // in the group published last
	freeRuns         []*writeBuffer // to be used again, with their buffers
}

// segment is an open segment file. Its fields are set before it joins a Log, and change only under
// Log.segmentMu while it is in neither live nor spare.
type segment struct {
	segmentHeader
	fileSize int64 // bytes of its file: see segmentFileSize
	file     vfs.File
	// The second descriptor, for direct writes; nil if Open refused it or the system has none.
	directFile vfs.File
	name       string
}

// start is the position of the segment's first record.
func (s *segment) start() LSN { return LSN(s.number*uint64(s.size) + firstRecord) }

// limit is the position that no data record crosses. One page is reserved for the end record, which
// fits after any padding of the last data record.
func (s *segment) limit() LSN { return LSN(s.number*uint64(s.size)+uint64(s.fileSize)) - pageUnit }

// writeBuffer is a contiguous range of records in one segment that wait to be written. buf is
// aligned for direct writes. It belongs to the appender (under Log.mu) while it is queued, then to
// the goroutine that writes it.
type writeBuffer struct {
	seg    *segment
	start  LSN
	end    LSN // of the last record; after an end record, the next segment's first position
	buf    []byte
	sealed bool

	commits int         // those whose last part is in buf
	ref     externalRef // the strictest of these commits; 0: none
}

// commitStart records where the current commit began, for Abort. run is nil once the commit's first
// part is taken to be written.
type commitStart struct {
	run       *writeBuffer
	size      int // bytes of run.buf before the commit
	pos, prev LSN
	end       LSN
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
	l.leadResigned.L = &l.mu
	l.follows.Store(follows)
	seg, err := l.newSegment(number, l.opts.segmentFileSize(0), vfs.Excl)
	if err != nil {
		return nil, err
	}
	l.live = []*segment{seg}
	l.writeSegment = seg
	l.pos, l.maxSubmitted, l.hintedLSN = seg.start(), seg.start(), seg.start()
	for _, p := range []*atomic.Uint64{&l.durable, &l.written, &l.end} {
		p.Store(uint64(seg.start()))
	}
	return l, nil
}

// Durable gives the position before which everything is durable.
func (l *Log) Durable() LSN { return LSN(l.durable.Load()) }

// Written gives the position before which everything was given to the operating system.
func (l *Log) Written() LSN { return LSN(l.written.Load()) }

// End gives the position before which everything was appended.
func (l *Log) End() LSN { return LSN(l.end.Load()) }

// Bytes gives the size of all segment files on disk, spare and retired ones included.
func (l *Log) Bytes() int64 { return l.bytes.Load() }

// Volume gives the bytes that all appended records take in files, those of removed segments and the
// unused ends of segments included. For full-size segments it equals the distance of the positions;
// shorter ones take less.
func (l *Log) Volume() int64 { return l.volume.Load() }

// setEnd moves the position before which everything was appended. mu is held.
func (l *Log) setEnd(at LSN) {
	l.end.Store(uint64(at))
	l.volume.Store(l.fullSegmentBytes + int64(at-l.live[len(l.live)-1].start()))
}

// Groups gives the number of writes so far that ended a commit, each shared by the commits that
// waited for it.
func (l *Log) Groups() uint64 { return l.groups.Load() }

// SetFollows sets the checkpoint that later segment headers name.
func (l *Log) SetFollows(epoch uint32) { l.follows.Store(epoch) }

// Append queues the next part of the current commit; last says that it is complete. It copies
// payload and returns the position to pass to Wait. If the queue has more than maxQueuedBytes it
// first writes the queue, without a sync.
//
// If there is no disk space for a new segment it returns an error that wraps vfs.ErrNoSpace. Any
// error discards the parts of the commit that were appended before; so does a panic of OnGroup.
// Other errors wrap ErrFailed and are final.
func (l *Log) Append(payload []byte, last bool) (LSN, error) {
	l.mu.Lock()
	done := false
	defer func() {
		if !done {
			l.abort()
		}
		l.mu.Unlock()
	}()
	for {
		if err := l.stickyErr(); err != nil {
			return 0, err
		}
		if l.queuedBytes() > maxQueuedBytes {
			l.writeQueue()
			continue
		}
		n, ok := l.partSize(len(payload))
		if !ok {
			if err := l.rollSegment(l.prepareWithinBound); err != nil {
				return 0, err
			}
			continue
		}
		done = n == len(payload)
		l.appendPart(payload[:n], last && done)
		payload = payload[n:]
		if done {
			return l.End(), nil
		}
	}
}

// writeQueue waits until the leader has written the queue, which syncs if any waiter wants it. A
// failure shows in stickyErr. mu is held at both ends.
func (l *Log) writeQueue() {
	defer l.mu.Lock() // also when OnGroup panics
	_ = l.wait(l.End(), false)
}

// queuedBytes counts the bytes in memory. mu is held.
func (l *Log) queuedBytes() (n int) {
	for _, r := range l.queue {
		n += len(r.buf)
	}
	return n
}

// nextRecord is the position of a record that is appended now: behind the last one, unless its
// header would cross a block.
func (l *Log) nextRecord() LSN {
	block := l.live[len(l.live)-1].block
	if left := block - int64(l.pos)%block; left < recHeader {
		return l.pos + LSN(left)
	}
	return l.pos
}

// partSize gives the number of payload bytes, at most n, that the next record takes; false: the
// segment has to be closed first. A payload that is small against a segment is not cut: its two
// halves would need a sync each. mu is held.
func (l *Log) partSize(n int) (int, bool) {
	s := l.live[len(l.live)-1]
	capacity := int(s.limit()-s.start()) - recHeader
	room := int(int64(s.limit()-l.nextRecord())) - recHeader // negative behind the limit
	n = min(n, maxPart)
	switch {
	case n <= room:
		return n, true
	case n > capacity/4 && room >= capacity/8:
		return room, true
	}
	return 0, false
}

// appendPart appends a data record of a size that partSize returned. mu is held.
func (l *Log) appendPart(payload []byte, last bool) {
	var flags partFlags
	if !l.inCommit {
		flags |= partFirst
		l.commitStart = commitStart{pos: l.pos, prev: l.prev, end: l.End()}
	}
	if last {
		flags |= partLast
	}
	r := l.tailBuffer()
	if !l.inCommit {
		l.commitStart.run, l.commitStart.size = r, len(r.buf)
	}
	l.inCommit = !last
	if last {
		r.commits++
		r.ref = max(r.ref, l.nextRef)
		l.nextRef = 0
	}
	l.encode(r, record{kind: typeData, flags: flags, payload: payload})
	r.end = l.pos
	l.setEnd(l.pos)
}

// tailBuffer gives the buffer to append to. mu is held.
func (l *Log) tailBuffer() *writeBuffer {
	if n := len(l.queue); n > 0 && !l.queue[n-1].sealed {
		return l.queue[n-1]
	}
	var r *writeBuffer
	if n := len(l.freeRuns); n > 0 {
		r, l.freeRuns = l.freeRuns[n-1], l.freeRuns[:n-1]
	} else {
		r = new(writeBuffer)
	}
	*r = writeBuffer{seg: l.live[len(l.live)-1], start: l.pos, end: l.pos, buf: r.buf[:0]}
	l.queue = append(l.queue, r)
	return r
}

// encode appends rec to r, and moves pos and prev. mu is held.
func (l *Log) encode(r *writeBuffer, rec record) {
	rec.lsn, rec.prev = l.nextRecord(), l.prev
	gap := int(rec.lsn-r.start) - len(r.buf)
	r.buf = grow(r.buf, gap+int(rec.size()))
	r.buf = appendZeros(r.buf, gap)
	r.buf = appendRecord(r.buf, r.seg.salt, rec)
	l.prev = rec.lsn
	l.pos = rec.lsn + LSN(rec.size())
}

// grow reserves capacity for n more bytes and for padding, in memory aligned for direct writes.
func grow(b []byte, n int) []byte {
	need := len(b) + n + pageUnit
	if need <= cap(b) {
		return b
	}
	bigger := vfs.AlignedBuffer(alignUp(max(need, 2*cap(b), 16*pageUnit), pageUnit))[:len(b)]
	copy(bigger, b)
	return bigger
}

// appendZeros appends n zero bytes within b's capacity.
func appendZeros(b []byte, n int) []byte {
	clear(b[len(b) : len(b)+n])
	return b[:len(b)+n]
}

// Abort discards the parts of the current commit. It drops those still in memory; the first part of
// the next commit, or the end of the log, invalidates those in the file.
func (l *Log) Abort() {
	l.mu.Lock()
	l.abort()
	l.mu.Unlock()
}

func (l *Log) abort() {
	l.nextRef = 0
	if !l.inCommit {
		return
	}
	l.inCommit = false
	m := l.commitStart
	l.commitStart = commitStart{}
	if n := len(l.queue); n == 0 || m.run != l.queue[n-1] || m.run.sealed {
		return
	}
	m.run.buf = m.run.buf[:m.size]
	m.run.end = m.end
	l.pos, l.prev = m.pos, m.prev
	l.setEnd(m.end)
	if m.size == 0 {
		l.recycleBuffer(m.run)
		l.queue = l.queue[:len(l.queue)-1]
	}
}

// recycleBuffer keeps a written or dropped buffer for reuse: one is written while the next is
// filled. mu is held.
func (l *Log) recycleBuffer(r *writeBuffer) {
	if len(l.freeRuns) < 2 {
		l.freeRuns = append(l.freeRuns, r)
	}
}

// Rotate closes the current segment: it queues an end record, and returns the first position of the
// next segment, where later records go. It discards the parts of an unfinished commit. It prepares
// a segment if Prepare was not called before, with the errors of Append.
func (l *Log) Rotate() (LSN, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.stickyErr(); err != nil {
		return 0, err
	}
	l.abort()
	sealed := l.live[len(l.live)-1]
	for l.live[len(l.live)-1] == sealed {
		if err := l.rollSegment(l.Prepare); err != nil {
			return 0, err
		}
	}
	return l.End(), nil
}

// rollSegment closes the current segment if the next one is ready. Else it calls prepare, without
// mu, and returns; the caller checks again. mu is held at both ends.
//
// The next segment is durable before the end record is written. So a reader that finds an end
// record and no next segment reports lost bytes.
func (l *Log) rollSegment(prepare func() error) error {
	if l.spare == nil {
		l.mu.Unlock()
		defer l.mu.Lock() // also when prepare panics
		return prepare()
	}
	r := l.tailBuffer()
	l.encode(r, record{kind: typeSeal})
	if r.seg != l.live[len(l.live)-1] {
		invariant.Fail("wal: seal of segment %d queued for segment %d", l.live[len(l.live)-1].number, r.seg.number)
	}
	r.sealed = true
	l.fullSegmentBytes += r.seg.fileSize
	l.recordBytes += int64(l.pos - r.seg.start())
	l.live = append(l.live, l.spare)
	l.pos = l.spare.start()
	l.spare = nil
	r.end = l.pos
	l.setEnd(l.pos)
	return nil
}

// stickyErr gives the error for calls that cannot append any more. mu is held.
func (l *Log) stickyErr() error {
	switch {
	case l.closed:
		return ErrClosed
	case l.cause != nil:
		return fmt.Errorf("%w: %w", ErrFailed, l.cause)
	}
	return nil
}

// fail makes the log refuse every later operation. The first cause stays. mu is held.
func (l *Log) fail(cause error) {
	if l.cause == nil {
		l.cause = cause
	}
}

// Fail makes the log refuse every later operation, with a cause from the caller: nothing more is
// written, not even by Close.
func (l *Log) Fail(cause error) {
	l.mu.Lock()
	l.fail(cause)
	l.mu.Unlock()
}

// Sync makes durable all commits that were appended before, and the segments that Rotate closed. It
// does not wait for parts of an unfinished commit, nor for segments that they filled: Abort may
// discard them meanwhile, and then the log never reaches their positions.
func (l *Log) Sync() error {
	l.mu.Lock()
	end := l.End()
	if l.inCommit {
		end = l.commitStart.end
	}
	return l.wait(end, true)
}
