package wal

import (
	"sync"
	"sync/atomic"

	"github.com/ebbkv/ebb/internal/invariant"
	"github.com/ebbkv/ebb/internal/vfs"
)

// appender encodes records at the end of the log, in buffers that wait to be written. With mu held
// it always holds that
//
//	(1) end <= pos.
//	(2) the buffers in queue are in order of position, and all but the last are sealed.
//	(3) all but the last segment in live are sealed (the end record may still be queued), their numbers
//	    have no gap, and spare, if there is one, has the number that follows.
type appender struct {
	end    atomic.Uint64 // everything before it was appended; changed with mu held
	volume atomic.Int64  // see Log.Volume; changed with mu held

	// mu guards the fields below. It is taken after syncer.mu and segmentPool.mu, never before, and
	// never held across a write or a sync.
	mu               sync.Mutex
	live             []*segment // by ascending number; the last one is appended to
	spare            *segment   // prepared durably, holds no record; or nil
	queue            []*writeBuffer
	pos              LSN   // where the next record may begin
	prev             LSN   // last record
	fullSegmentBytes int64 // bytes of the closed files,
	recordBytes      int64 // and the records' share of them
	commitStart      commitStart
	inCommit         bool           // parts of a commit were appended, its last part not yet
	nextRef          externalRef    // of the next commit to end; 0: none
	freeBuffers      []*writeBuffer // for reuse
	lastGroup        int            // bytes of the buffer that was taken last
}

// writeBuffer is a contiguous range of records in one segment that wait to be written. buf is
// aligned for direct writes. It belongs to the appender (under its lock) while it is queued, then
// to the leader that writes it.
type writeBuffer struct {
	seg   *segment
	start LSN
	end   LSN // of the last record; after an end record, the next segment's first position
	buf   []byte
	next  *segment // the one after seg if buf ends with the end record, else nil

	commits int         // those whose last part is in buf
	ref     externalRef // the strictest of these commits; 0: none
}

// sealed says whether the buffer closes its segment.
func (r *writeBuffer) sealed() bool { return r.next != nil }

// commitStart records where the current commit began, for abort. buffer is nil once the leader has
// taken the commit's first part to write it.
type commitStart struct {
	buffer    *writeBuffer
	size      int // bytes of buffer.buf before the commit
	pos, prev LSN
	end       LSN
}

func (a *appender) begin(seg *segment) {
	a.live, a.spare = []*segment{seg}, nil
	a.pos, a.prev, a.recordBytes, a.commitStart = seg.start(), 0, 0, commitStart{}
	a.setEnd(a.pos)
}

func (a *appender) last() *segment { return a.live[len(a.live)-1] }

// setEnd moves the position before which everything was appended. mu is held.
func (a *appender) setEnd(at LSN) {
	a.end.Store(uint64(at))
	a.volume.Store(a.fullSegmentBytes + int64(at-a.last().start()))
}

// queuedBytes counts the bytes in memory. mu is held.
func (a *appender) queuedBytes() (n int) {
	for _, r := range a.queue {
		n += len(r.buf)
	}
	return n
}

// nextRecord is the position of a record that is appended now: behind the last one, unless its
// header would cross a block. mu is held.
func (a *appender) nextRecord() LSN {
	block := a.last().block
	if left := block - int64(a.pos)%block; left < recHeader {
		return a.pos + LSN(left)
	}
	return a.pos
}

// partSize gives the number of payload bytes, at most n, that the next record takes; false: the
// segment has to be closed first. A payload that is small against a segment is not cut: its two
// halves would need a sync each. mu is held.
func (a *appender) partSize(n int) (int, bool) {
	s := a.last()
	capacity := int(s.limit()-s.start()) - recHeader
	free := int(int64(s.limit()-a.nextRecord())) - recHeader // negative behind the limit
	n = min(n, maxPart)
	switch {
	case n <= free:
		return n, true
	case n > capacity/4 && free >= capacity/8:
		return free, true
	}
	return 0, false
}

// appendPart appends a data record of a size that partSize returned. mu is held.
func (a *appender) appendPart(payload []byte, last bool) {
	var flags partFlags
	r := a.tailBuffer()
	if !a.inCommit {
		flags |= partFirst
		a.commitStart = commitStart{r, len(r.buf), a.pos, a.prev, LSN(a.end.Load())}
	}
	if last {
		flags |= partLast
		r.commits++
		r.ref = max(r.ref, a.nextRef)
		a.nextRef = 0
	}
	a.inCommit = !last
	a.encode(r, record{kind: typeData, flags: flags, payload: payload})
	r.end = a.pos
	a.setEnd(a.pos)
}

// appendCompensation appends a record that cancels the commit before it. mu is held.
func (a *appender) appendCompensation() {
	r := a.tailBuffer()
	a.encode(r, record{kind: typeCompensation})
	r.end = a.pos
	a.setEnd(a.pos)
}

// seal closes the current segment with an end record and continues in the spare, which is durable.
// So a reader that finds an end record and no next segment reports lost bytes. mu is held.
func (a *appender) seal() {
	r := a.tailBuffer()
	a.encode(r, record{kind: typeSeal})
	if r.seg != a.last() {
		invariant.Fail("wal: end record of segment %d queued for segment %d", a.last().number, r.seg.number)
	}
	a.fullSegmentBytes += r.seg.fileSize
	a.recordBytes += int64(a.pos - r.seg.start())
	r.next, a.spare = a.spare, nil
	a.live = append(a.live, r.next)
	a.pos = r.next.start()
	r.end = a.pos
	a.setEnd(a.pos)
}

// tailBuffer gives the buffer to append to. mu is held.
func (a *appender) tailBuffer() *writeBuffer {
	if n := len(a.queue); n > 0 && !a.queue[n-1].sealed() {
		return a.queue[n-1]
	}
	var r *writeBuffer
	if n := len(a.freeBuffers); n > 0 {
		r, a.freeBuffers = a.freeBuffers[n-1], a.freeBuffers[:n-1]
	} else {
		r = new(writeBuffer)
	}
	*r = writeBuffer{seg: a.last(), start: a.pos, end: a.pos, buf: r.buf[:0]}
	a.queue = append(a.queue, r)
	return r
}

// encode appends rec to r, and moves pos and prev. mu is held.
func (a *appender) encode(r *writeBuffer, rec record) {
	rec.lsn, rec.prev = a.nextRecord(), a.prev
	gap := int(rec.lsn-r.start) - len(r.buf)
	r.buf = grow(r.buf, gap+int(rec.size()))
	r.buf = appendZeros(r.buf, gap)
	r.buf = appendRecord(r.buf, r.seg.salt, rec)
	a.prev = rec.lsn
	a.pos = rec.lsn + LSN(rec.size())
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

// abort discards the parts of the current commit. It drops those still in memory; the first part of
// the next commit, or the end of the log, invalidates those in the file. mu is held.
func (a *appender) abort() {
	a.nextRef = 0
	if !a.inCommit {
		return
	}
	a.inCommit = false
	c := a.commitStart
	a.commitStart = commitStart{}
	n := len(a.queue)
	if n == 0 || c.buffer != a.queue[n-1] || c.buffer.sealed() {
		return
	}
	c.buffer.buf = c.buffer.buf[:c.size]
	c.buffer.end = c.end
	a.pos, a.prev = c.pos, c.prev
	a.setEnd(c.end)
	if c.size == 0 {
		a.queue = a.queue[:n-1]
		a.recycleBuffer(c.buffer)
	}
}

// popBuffer takes the first buffer from the queue, which is not empty, to be written. mu is held.
func (a *appender) popBuffer() *writeBuffer {
	r := a.queue[0]
	n := copy(a.queue, a.queue[1:])
	a.queue[n] = nil
	a.queue = a.queue[:n]
	if a.commitStart.buffer == r {
		a.commitStart.buffer = nil
	}
	a.lastGroup = len(r.buf)
	return r
}

// padTo lets the next record begin at a multiple of unit. The skipped bytes are zero in the file,
// or the group that was just taken writes them as zeros. mu is held, and the queue holds no buffer
// of the current segment.
func (a *appender) padTo(unit int64) { a.pos = alignUp(a.pos, unit) }

// recycleBuffer keeps a written or dropped buffer for reuse: one is written while the next is
// filled. mu is held.
func (a *appender) recycleBuffer(r *writeBuffer) {
	if len(a.freeBuffers) < 2 {
		a.freeBuffers = append(a.freeBuffers, r)
	}
}

// queued says whether any buffer waits to be written, and how many commits end in the first one.
func (a *appender) queued() (commits int, any bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) == 0 {
		return 0, false
	}
	return a.queue[0].commits, true
}

// committedEnd is the end of the last complete commit.
func (a *appender) committedEnd() LSN {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inCommit {
		return a.commitStart.end
	}
	return LSN(a.end.Load())
}

// nextSegment gives the number of the segment after the last one, and the bytes of the records
// before it; ready says that it is prepared. No other goroutine changes that while segmentPool.mu
// is held and there is no spare.
func (a *appender) nextSegment() (number uint64, used int64, ready bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.last()
	return s.number + 1, a.recordBytes + int64(a.pos-s.start()), a.spare != nil
}

// setSpare sets the segment that nextSegment asked for.
func (a *appender) setSpare(seg *segment) {
	a.mu.Lock()
	a.spare = seg
	a.mu.Unlock()
}

// needsSpare says whether to prepare a spare now: half of the current segment is used, or two groups
// like the last one do not fit.
func (a *appender) needsSpare() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.last()
	return a.spare == nil && (a.pos > s.start()+LSN(s.fileSize/2) || a.pos+2*LSN(a.lastGroup) > s.limit())
}

// hasSpace says whether n bytes of records and a compensation record fit in existing segments.
func (a *appender) hasSpace(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	fits := func(from, limit LSN) bool {
		// The leader may pad two groups to a page: the one before the commit, and the commit's own.
		return alignUp(alignUp(from, pageUnit)+LSN(n), pageUnit)+recHeader <= limit
	}
	return fits(a.pos, a.last().limit()) || a.spare != nil && fits(a.spare.start(), a.spare.limit())
}

func (a *appender) segmentsFrom(lo, hi uint64) (some []*segment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.live {
		if lo <= s.number && s.number < hi {
			some = append(some, s)
		}
	}
	return some
}

// retire removes the live segments with lower numbers than the given one, and returns them.
func (a *appender) retire(number uint64) (dead []*segment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for n < len(a.live)-1 && a.live[n].number < number {
		n++
	}
	dead = append(dead, a.live[:n]...)
	kept := copy(a.live, a.live[n:])
	clear(a.live[kept:])
	a.live = a.live[:kept]
	return dead
}
