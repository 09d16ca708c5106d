package wal

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ebbkv/ebb/internal/invariant"
	"github.com/ebbkv/ebb/internal/vfs"
)

// waiter is a goroutine in Wait that does not lead. The pool keeps it with its channel; each use
// ends with exactly one message.
type waiter struct {
	end  LSN
	sync bool
	err  error
	done chan wakeReason // capacity 1, so that waking never waits
	next *waiter         // in a list of completed waiters
}

type wakeReason uint8

const (
	answered wakeReason = iota // err is set
	lead                       // the waiter leads from now on
)

var waiters = sync.Pool{New: func() any { return &waiter{done: make(chan wakeReason, 1)} }}

// Wait returns once everything before end was written to the operating system or, with sync, is
// durable. It shares writes and syncs with all concurrent waiters.
//
// An error that wraps ErrUnknown means that the bytes before end may or may not be found after a
// restart; one that wraps ErrFailed means that the commit which ends there will not be found.
func (l *Log) Wait(end LSN, sync bool) error {
	if end <= l.Durable() {
		return nil
	}
	l.mu.Lock()
	return l.wait(end, sync)
}

// wait is Wait; it is called with mu held and returns without it.
func (l *Log) wait(end LSN, sync bool) error {
	if end > l.End() {
		invariant.Fail("wal: wait for LSN %d, the log ends at %d", end, l.End())
	}
	if done, err := l.result(end, sync); done {
		l.mu.Unlock()
		return err
	}
	if !l.leading && !l.waitsForSegmentSync(end) {
		l.leading = true
		return l.lead(end, sync)
	}
	w := waiters.Get().(*waiter)
	w.end, w.sync, w.err = end, sync, nil
	l.waiters = append(l.waiters, w)
	l.mu.Unlock()
	got := <-w.done
	err := w.err
	waiters.Put(w)
	if got == lead {
		l.mu.Lock()
		return l.lead(end, sync)
	}
	return err
}

// result gives the result of a wait that is over. mu is held.
func (l *Log) result(end LSN, sync bool) (done bool, err error) {
	switch {
	case end <= l.Durable():
		return true, nil
	case l.closed:
		return true, ErrClosed
	case l.cause != nil && end <= l.maxSubmitted && l.writing:
		return false, nil // the write may still complete
	case l.cause != nil && end <= l.maxSubmitted:
		return true, fmt.Errorf("%w: %w", ErrUnknown, l.cause)
	case l.cause != nil:
		return true, fmt.Errorf("%w: %w", ErrFailed, l.cause)
	}
	return !sync && end <= l.Written(), nil
}

// lead writes groups, one at a time, until the leader's own wait is over, then hands the lead to a
// remaining waiter or resigns it. It is called with mu held and leading set, and returns without mu.
func (l *Log) lead(end LSN, sync bool) error {
	for {
		if done, err := l.result(end, sync); done {
			l.resignLead()
			return err
		}
		// Everything is written, and a sync is wanted: closed segments are synced first.
		if l.hasUnsyncedSegments() && end <= l.Written() {
			l.syncClosedSegments()
			return l.wait(end, sync)
		}
		l.waitForFollowers(sync)
		if l.cause != nil || l.closed { // meanwhile
			continue
		}
		g := l.takeGroup(sync)
		l.mu.Unlock()
		outcome, err := l.writeGroup(&g)
		l.mu.Lock()
		completed, event := l.completeWrite(&g, outcome, err)
		if done, err := l.result(end, sync); done && event == nil && len(l.waiters) > 0 {
			l.resignLead() // first: the disk is idle until the next leader runs
			completed.wakeAll()
			return err
		}
		l.mu.Unlock()
		l.notify(completed, event)
		l.mu.Lock()
	}
}

// gosched lets other goroutines run. Tests replace it.
var gosched = runtime.Gosched

// waitForFollowers yields once to the committers of the previous group that have not committed
// again: a sync is expensive, and they are probably about to wait for one. It waits for no
// goroutine that is not runnable. mu is held at both ends, not in between.
func (l *Log) waitForFollowers(sync bool) {
	if !sync || len(l.queue) == 0 || l.queue[0].commits >= l.lastGroupCommits {
		return
	}
	l.mu.Unlock()
	gosched()
	l.mu.Lock()
}

// completeWrite is called when the write of a group has returned. It publishes the result, lists
// the waiters whose wait is over, and returns the call of OnGroup or nil. mu is held at both ends;
// after a failure not in between.
func (l *Log) completeWrite(g *group, outcome writeOutcome, err error) (*waiter, func()) {
	var event func()
	if err == nil {
		event = l.groupEvent(g)
		l.publish(g)
	} else {
		l.failWrite(g, outcome, err)
	}
	l.writing = false
	return l.completedWaiters(), event
}

// writeOutcome is the result of a write.
type writeOutcome uint8

const (
	// The system has all of it; after an error of the sync it may or may not be durable.
	writeComplete writeOutcome = iota
	writePartial               // the write failed
	writeNone                  // nothing was written
)

// failWrite truncates a group that was written in part, and fails the log. mu is held at both ends,
// not in between.
func (l *Log) failWrite(g *group, outcome writeOutcome, cause error) {
	truncated := outcome == writeNone
	if outcome == writePartial {
		l.mu.Unlock()
		truncated = g.run.truncate()
		l.mu.Lock()
	}
	l.fail(cause)
	if truncated {
		l.maxSubmitted = l.Written()
	}
}

// groupEvent counts a completed group and returns the call of OnGroup for it, or nil. A write that
// holds only a part of a commit does not count; the write of its last part does. mu is held.
func (l *Log) groupEvent(g *group) func() {
	if g.run == nil {
		return nil
	}
	l.skipZeroFill.Store(g.isLarge(l.opts.SegmentSize))
	l.lastGroupCommits = g.run.commits
	if g.run.commits > 0 {
		l.groups.Add(1)
	}
	if l.opts.OnGroup == nil {
		return nil
	}
	commits, size, took := g.run.commits, int64(g.size), time.Since(g.began)
	return func() {
		l.eventMu.Lock()
		defer l.eventMu.Unlock()
		l.opts.OnGroup(commits, size, took)
	}
}

// notify wakes completed waiters and calls OnGroup. If that panics or ends the goroutine, notify
// resigns the lead: no waiter may depend on a leader that is gone. No lock is held.
func (l *Log) notify(completed *waiter, event func()) {
	completed.wakeAll()
	if event == nil {
		return
	}
	back := false
	defer func() {
		if !back {
			l.mu.Lock()
			l.resignLead()
		}
	}()
	event()
	back = true
}

// resignLead resigns the lead. If no goroutine waits it first writes the durability hint. It is
// called with mu held and returns without mu.
func (l *Log) resignLead() {
	for len(l.waiters) == 0 && len(l.queue) == 0 && l.cause == nil && l.hintedLSN < l.Durable() {
		// This goroutine still leads, so no other one writes to the segment.
		l.mu.Unlock()
		err := l.writeHint(l.Durable())
		l.mu.Lock()
		if err != nil {
			l.fail(err)
			completed := l.completedWaiters()
			l.mu.Unlock()
			completed.wakeAll()
			l.mu.Lock()
		}
	}
	l.handOffLead()
	prepare := l.needsSpare()
	l.mu.Unlock()
	if prepare {
		l.prepareInBackground()
	}
}

// handOffLead hands the lead to a waiter that does not wait for the running sync of closed segments,
// or resigns it. That sync notifies the others. mu is held.
func (l *Log) handOffLead() {
	i := slices.IndexFunc(l.waiters, func(w *waiter) bool { return !l.waitsForSegmentSync(w.end) })
	if i < 0 {
		l.leading = false
		l.leadResigned.Broadcast()
		return
	}
	w := l.waiters[i]
	l.waiters = slices.Delete(l.waiters, i, i+1)
	w.done <- lead
}

// needsSpare says whether to prepare a spare now: half of the current segment is used. mu is held.
func (l *Log) needsSpare() bool {
	s := l.live[len(l.live)-1]
	return l.spare == nil && l.cause == nil && !l.closed && l.pos > s.start()+LSN(s.fileSize/2)
}

// completedWaiters removes the waiters whose wait is over, and lists them with their results.
// Callers have completed a write or failed the log. It runs before any of them is woken: waiters
// that join later are not part of the list. mu is held.
func (l *Log) completedWaiters() (first *waiter) {
	still, last := l.waiters[:0], &first
	for _, w := range l.waiters {
		if done, err := l.result(w.end, w.sync); done {
			w.err = err
			*last, last = w, &w.next
		} else {
			still = append(still, w)
		}
	}
	clear(l.waiters[len(still):])
	l.waiters = still
	return first
}

// wakeAll wakes a list of completed waiters. No lock is held.
func (w *waiter) wakeAll() {
	for w != nil {
		next := w.next
		w.next = nil
		w.done <- answered // w may be in use again
		w = next
	}
}

// group is one write of a leader: the first buffer of the queue, or only a sync.
type group struct {
	run           *writeBuffer // nil: only sync what was written before
	end           LSN          // written afterwards
	sync          bool
	direct        bool
	size          int       // bytes to write, padding included
	durableBefore LSN       // durable before
	began         time.Time // if OnGroup wants to know
}

// takeGroup takes the next group from the queue and decides how to write it; its write starts then.
// mu is held.
//
// A direct write needs everything before it durable: it makes the log durable up to its end. While closed
// segments are not durable no group is synced, and only a direct write syncs an end record: see
// syncClosedSegments. Each synced group ends at a block, so that no later write covers a block with
// durable records. The page cache writes pages, so cached and direct writes never share one:
//
//   - a cached group that is synced is padded to a page;
//   - a group without a sync that would go through the cache, but begins inside a page that was
//     written directly, is written directly too, and padded to a page, so that the next one can go
//     through the cache.
func (l *Log) takeGroup(sync bool) group {
	l.writing = true
	g := group{durableBefore: l.Durable(), end: l.Written()}
	if l.opts.OnGroup != nil {
		g.began = time.Now()
	}
	pad := int64(pageUnit)
	if len(l.queue) > 0 {
		g.run = l.queue[0]
		g.end = g.run.end
		n := copy(l.queue, l.queue[1:])
		l.queue[n] = nil
		l.queue = l.queue[:n]
		if l.commitStart.run == g.run {
			l.commitStart.run = nil
		}
	}
	g.sync = l.wantsSync(g.end, sync) && !l.hasUnsyncedSegments()
	if g.run == nil {
		l.padTo(pad)
		return g
	}
	r := g.run
	direct := l.directIO(r)
	g.sync = g.sync && (direct || !r.sealed)
	if direct {
		switch {
		case g.sync:
			g.direct, pad = true, r.seg.block
		case l.direct && int64(r.start)%pageUnit != 0:
			g.direct = true
		}
	}
	// Zeros fill a cached write to the page's end even where the next record will overwrite them:
	// the operating system need not read the page first, and no bytes of the file's previous use
	// become visible.
	g.size = int(alignUp(int64(r.start)+int64(len(r.buf)), pad) - int64(r.start))
	if (g.sync || g.direct) && !r.sealed {
		l.padTo(pad)
	}
	l.maxSubmitted = max(l.maxSubmitted, g.end)
	return g
}

// directIO says whether a buffer can be written directly, past the page cache, now. mu is held.
func (l *Log) directIO(r *writeBuffer) bool {
	return r.seg.directFile != nil && l.Durable() == l.Written() && int64(r.start)%r.seg.block == 0
}

// wantsSync says whether any waiter wants a sync of the log up to end. The leader's own wish counts
// even if its end is in a later buffer: it needs this sync anyway. mu is held.
func (l *Log) wantsSync(end LSN, sync bool) bool {
	for i := 0; i < len(l.waiters) && !sync; i++ {
		sync = l.waiters[i].sync && l.waiters[i].end <= end
	}
	return sync
}

// padTo lets the next record begin at a multiple of unit. The skipped bytes are zero in the file,
// or the group that was just taken writes them as zeros. mu is held, and the queue holds no buffer
// of the current segment.
func (l *Log) padTo(unit int64) { l.pos = alignUp(l.pos, unit) }

// writeGroup does a group's work on the files, without mu.
func (l *Log) writeGroup(g *group) (writeOutcome, error) {
	if err := l.syncBeforeWrite(g); err != nil {
		return writeNone, err
	}
	if g.run == nil {
		if err := l.writeSegment.file.SyncData(); err != nil {
			return writeComplete, fmt.Errorf("sync log segment %s: %w", l.writeSegment.name, err)
		}
		return writeComplete, nil
	}
	r := g.run
	sealRecords(r, g.durableBefore)
	if !g.sync && !g.direct && r.start+LSN(len(r.buf)) <= l.zeroedTo {
		g.size = len(r.buf)
		if err := r.seg.file.WriteMapped(r.buf, r.offset()); err != nil {
			return writePartial, r.writeErr(err)
		}
		return writeComplete, nil
	}
	g.appendPadding()
	if g.direct {
		if err := vfs.WriteFull(r.seg.directFile, r.buf, r.offset()); err != nil {
			return writePartial, r.writeErr(err)
		}
		return writeComplete, nil
	}
	if err := vfs.WriteFull(r.seg.file, r.buf, r.offset()); err != nil {
		return writePartial, r.writeErr(err)
	}
	l.zeroedTo = r.start + LSN(len(r.buf))
	if !g.sync {
		return writeComplete, l.startWriteback(g)
	}
	if err := r.seg.file.SyncData(); err != nil {
		return writeComplete, fmt.Errorf("sync log segment %s: %w", r.seg.name, err)
	}
	return writeComplete, nil
}

// appendPadding adds the padding to a group's buffer.
func (g *group) appendPadding() { g.run.buf = appendZeros(g.run.buf, g.size-len(g.run.buf)) }

// writebackBytes of unsynced writes stay in the page cache before the leader starts their
// writeback.
const writebackBytes = 256 << 10

// startWriteback starts the writeback of groups without a sync once writebackBytes of them are in
// the cache: the sync of the closed segment finds it done, and a later commit does not wait for all
// of it. An error counts as one of a sync: the system may not report it again.
func (l *Log) startWriteback(g *group) error {
	r := g.run
	from := max(l.writebackTo, g.durableBefore, r.seg.start())
	// The next record begins in the last page, which is written again.
	to := min(g.end, r.start+LSN(len(r.buf))) / pageUnit * pageUnit
	if to < from+writebackBytes {
		return nil
	}
	l.writebackTo = to
	first := LSN(r.seg.number * uint64(r.seg.size))
	if err := r.seg.file.StartWriteBack(int64(from-first), int64(to-from)); err != nil {
		return fmt.Errorf("write log segment %s at %d: %w", r.seg.name, from-first, err)
	}
	return nil
}

// offset is the buffer's first byte in its segment's file.
func (r *writeBuffer) offset() int64 { return int64(r.start - LSN(r.seg.number*uint64(r.seg.size))) }

func (r *writeBuffer) writeErr(cause error) error {
	return fmt.Errorf("write log segment %s at %d: %w", r.seg.name, r.offset(), cause)
}

// truncate cuts a buffer that was written in part, or to an unknown extent, out of the file with
// all bytes behind it, and says whether their commits are certainly not in the log. After a failure
// the log changes the file in no other way.
func (r *writeBuffer) truncate() bool {
	return r.seg.file.Truncate(r.offset()) == nil && r.seg.file.Sync() == nil
}

// sealRecords completes each record in r with the fields that are known only when it is written.
func sealRecords(r *writeBuffer, synced LSN) {
	for off := 0; off < len(r.buf); {
		if left := int(r.seg.block - (int64(r.start)+int64(off))%r.seg.block); left < recHeader {
			off += left
			continue
		}
		off += sealRecord(r.buf[off:], synced)
	}
}

// publish moves written and durable past a written group. mu is held.
func (l *Log) publish(g *group) {
	l.written.Store(uint64(g.end))
	if g.sync || g.direct {
		l.durable.Store(uint64(g.end))
	}
	if g.run == nil {
		return
	}
	l.recycleBuffer(g.run)
	l.direct = g.direct
	if g.run.sealed {
		// Once Release sees that the end record is durable it may retire the segment: the leader is
		// done with it.
		for i, s := range l.live {
			if s == l.writeSegment {
				l.writeSegment, l.direct = l.live[i+1], false
				break
			}
		}
	}
}

// writeHint writes the durability hint, without a sync: everything before synced is durable. Only
// the leader calls it, without mu.
func (l *Log) writeHint(synced LSN) error {
	putHint(l.hintBuf[:], l.writeSegment.salt, synced)
	if err := vfs.WriteFull(l.writeSegment.file, l.hintBuf[:], hintAt); err != nil {
		return fmt.Errorf("write note of log segment %s: %w", l.writeSegment.name, err)
	}
	l.hintedLSN = synced
	return nil
}
