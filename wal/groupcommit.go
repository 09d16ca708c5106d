package wal

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/ebbkv/ebb/internal/invariant"
	"github.com/ebbkv/ebb/internal/vfs"
)

// waiter is a goroutine in Wait that does not lead. It is pooled together with its channel; each
// use of it ends with exactly one message.
type waiter struct {
	end  LSN
	sync bool
	err  error
	done chan wakeReason // capacity 1, so that waking never waits
	next *waiter         // in a list of those to be answered
}

type wakeReason uint8

const (
	answered wakeReason = iota // err is set
	lead                       // it leads from now on
)

var waiters = sync.Pool{New: func() any { return &waiter{done: make(chan wakeReason, 1)} }}

// Wait returns when everything before end was given to the operating system or, with sync, is
// durable. It shares writes and syncs with all who wait at the same time.
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
	if !l.leading && !l.isInflight(end) && !l.waitsForSegmentSync(end) {
		l.leading = true
		return l.lead(end, sync)
	}
	w := waiters.Get().(*waiter)
	w.end, w.sync, w.err = end, sync, nil
	l.waiters = append(l.waiters, w)
	l.wakeLeader()
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

// result gives the result of a wait, if there is one. mu is held.
func (l *Log) result(end LSN, sync bool) (done bool, err error) {
	switch {
	case end <= l.Durable():
		return true, nil
	case l.closed:
		return true, ErrClosed
	case l.cause != nil && end <= l.maxSubmitted && len(l.inflight) > 0:
		return false, nil // It may be on its way.
	case l.cause != nil && end <= l.maxSubmitted:
		return true, fmt.Errorf("%w: %w", ErrUnknown, l.cause)
	case l.cause != nil:
		return true, fmt.Errorf("%w: %w", ErrFailed, l.cause)
	}
	return !sync && end <= l.Written(), nil
}

// lead writes until the leader's own wait is over, then gives the lead to someone who still waits
// or lays it down. For a group that others may depart beside it lays it down before it writes. It
// is called with mu held and leading set, and returns without mu.
func (l *Log) lead(end LSN, sync bool) error {
	for {
		if done, err := l.result(end, sync); done {
			l.resignLead()
			return err
		}
		// All is written, and a sync is wanted: what has ended comes first.
		if l.hasUnsyncedSegments() && end <= l.Written() && l.cause == nil {
			l.syncClosedSegments()
			return l.wait(end, sync)
		}
		if l.canStartWrite(sync) {
			l.waitForFollowers(sync)
		}
		// A log that has failed meanwhile writes nothing more.
		if l.cause != nil || l.closed || !l.canStartWrite(sync) {
			if len(l.inflight) > 0 {
				l.writeDone.Wait()
			}
			continue
		}
		f := l.startWrite(l.takeGroup(sync))
		if f.overlappable {
			l.leading = false // until somebody waits for more
		}
		l.mu.Unlock()
		fate, err := l.writeGroup(&f.group)
		l.mu.Lock()
		told := l.completeWrite(f, fate, err)
		over := l.completedWaiters()
		if f.overlappable { // Someone else leads, if anyone.
			done, err := l.result(end, sync)
			if !done {
				invariant.Fail("wal: a group up to LSN %d has landed, LSN %d is not durable", f.end, end)
			}
			l.finishWrite(f, over, told)
			return err
		}
		l.recycleWrite(f)
		if done, err := l.result(end, sync); done && told == nil && len(l.waiters) > 0 {
			l.resignLead() // first: the disk has nothing to do until the next leader runs
			over.wakeAll()
			return err
		}
		l.mu.Unlock()
		over.wakeAll()
		if told != nil {
			l.notify(told)
		}
		l.mu.Lock()
	}
}

// gosched lets other goroutines run. Tests have it do what they might.
var gosched = runtime.Gosched

// waitForFollowers lets those run who were told of the group before and have not committed again: a
// sync is dear, and they are probably about to ask for one. It does not wait for anybody who is not
// running. mu is held, and let go meanwhile.
func (l *Log) waitForFollowers(sync bool) {
	if !sync || len(l.queue) == 0 || l.queue[0].commits >= l.lastGroupCommits {
		return
	}
	l.mu.Unlock()
	gosched()
	l.mu.Lock()
}

// groupEvent counts a group that has landed, and is what OnGroup is to be told of it; nil: nothing.
// A write that holds only a part of a commit does not count; the one that ends it does. mu is held.
func (l *Log) groupEvent(g *inflightWrite) func() {
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
	commits, size, took := g.run.commits, int64(g.size), g.took
	return func() {
		l.eventMu.Lock()
		defer l.eventMu.Unlock()
		l.opts.OnGroup(commits, size, took)
	}
}

// notify calls a function of the user's. If it panics or ends the goroutine, the lead goes to
// someone else: nobody may wait for a leader that is gone.
func (l *Log) notify(news func()) {
	back := false
	defer func() {
		if !back {
			l.mu.Lock()
			l.resignLead()
		}
	}()
	news()
	back = true
}

// resignLead gives the lead away. mu is held, and is not any more afterwards.
func (l *Log) resignLead() {
	for len(l.waiters) == 0 && len(l.queue) == 0 && len(l.inflight) == 0 && l.cause == nil && l.hintedLSN < l.Durable() {
		// Nobody is waiting: time for the note. We still lead, so nobody else writes to the
		// segment.
		l.mu.Unlock()
		err := l.writeHint(l.Durable())
		l.mu.Lock()
		if err != nil {
			l.fail(err)
			over := l.completedWaiters()
			l.mu.Unlock()
			over.wakeAll()
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

// needsSpare says whether it is time to prepare a spare. mu is held.
func (l *Log) needsSpare() bool {
	s := l.live[len(l.live)-1]
	return l.spare == nil && l.cause == nil && !l.closed && l.pos > s.start()+LSN(s.fileSize/2)
}

// completedWaiters takes those out of the waiters whose wait is over, and lists them with their
// answers. mu is held. It is for who has landed, or has failed the log: those who come while the
// others are woken are not to be answered yet.
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

// wakeAll tells a list of waiters that their wait is over. No lock is held.
func (w *waiter) wakeAll() {
	for w != nil {
		next := w.next
		w.next = nil
		w.done <- answered // w may be in use again
		w = next
	}
}

// group is what one leader writes at once: the first run of the queue, or nothing but a sync.
type group struct {
	run           *writeBuffer // nil: only sync what was written before
	end           LSN          // written afterwards
	sync          bool
	direct        bool
	size          int // bytes to write, padding included
	durableBefore LSN // durable before
}

// takeGroup takes the next group from the queue and decides how it is written. mu is held.
//
// A direct write needs everything before it durable, or on its way directly, so that "durable on
// return" is true of the log up to its end once all before it have returned. While segments that
// have ended are not durable nothing is synced, and a seal is synced only by a direct write: see
// settle. Everything that is synced ends at a block, so that no later write covers a block with
// durable records. The page cache writes pages, so cached and direct writes never share one:
//
//   - a cached group that is synced is padded to a page;
//   - a group without a sync that would go through the cache, but begins inside a page that was
//     written directly, is written directly too, and padded to a page, so that the next one can go
//     through the cache.
func (l *Log) takeGroup(sync bool) group {
	g := group{durableBefore: l.Durable(), end: l.Written()}
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
	straight := l.directIO(r)
	g.sync = g.sync && (straight || !r.sealed)
	if straight {
		switch {
		case g.sync:
			g.direct, pad = true, r.seg.block
		case l.direct && int64(r.start)%pageUnit != 0:
			g.direct = true
		}
	}
	// A cached write is filled with zeros to the page's end even where the next record will
	// overwrite them: the operating system need not read the page first, and no bytes of the file's
	// former life come into view.
	g.size = int(alignUp(int64(r.start)+int64(len(r.buf)), pad) - int64(r.start))
	if (g.sync || g.direct) && !r.sealed {
		l.padTo(pad)
	}
	l.maxSubmitted = max(l.maxSubmitted, g.end)
	return g
}

// directIO says whether a run may be written past the page cache now. mu is held.
func (l *Log) directIO(r *writeBuffer) bool {
	return r.seg.directFile != nil && l.Durable() == l.Written() && int64(r.start)%r.seg.block == 0
}

// wantsSync says whether anybody wants a sync of what ends at end. The leader's own wish counts
// even if its end is in a later run: the sync is needed for it anyway. mu is held.
func (l *Log) wantsSync(end LSN, sync bool) bool {
	for i := 0; i < len(l.waiters) && !sync; i++ {
		sync = l.waiters[i].sync && l.waiters[i].end <= end
	}
	return sync
}

// padTo lets the next record begin at a multiple of unit. The bytes skipped are zero in the file,
// or will be written as zeros by the group that was just taken. mu is held, and the queue holds no
// run of the current segment.
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
	if l.copyGroup(g) {
		g.size = len(r.buf)
		return writeComplete, nil
	}
	g.appendPadding()
	if r.sealed {
		l.mmap.close() // Its segment may be removed, and would keep its room.
	}
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

// appendPadding adds the padding to a group's run.
func (g *group) appendPadding() { g.run.buf = appendZeros(g.run.buf, g.size-len(g.run.buf)) }

// writebackBytes is how much of what nobody wants synced is left to the system before the disk
// begins with it.
const writebackBytes = 256 << 10

// startWriteback has the disk begin with what groups without a sync have written, once that is
// much: the sync that ends a segment finds it done, and whoever commits then does not wait for all
// of it. An error is one of a sync: the system may not tell it again.
func (l *Log) startWriteback(g *group) error {
	r := g.run
	from := max(l.writebackTo, g.durableBefore, r.seg.start())
	// The next record begins in the same page, and that is written again.
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

// offset is where the run begins in its segment's file.
func (r *writeBuffer) offset() int64 { return int64(r.start - LSN(r.seg.number*uint64(r.seg.size))) }

func (r *writeBuffer) writeErr(cause error) error {
	return fmt.Errorf("write log segment %s at %d: %w", r.seg.name, r.offset(), cause)
}

// truncate cuts a run that was written in part, or nobody knows how far, out of the file with all
// behind it, and says whether their commits are certainly not in the log. This is the only thing
// that is ever written after a failure.
func (r *writeBuffer) truncate() bool {
	return r.seg.file.Truncate(r.offset()) == nil && r.seg.file.Sync() == nil
}

// sealRecords adds to each record in r what is known only when it is written.
func sealRecords(r *writeBuffer, synced LSN) {
	for off := 0; off < len(r.buf); {
		if left := int(r.seg.block - (int64(r.start)+int64(off))%r.seg.block); left < recHeader {
			off += left
			continue
		}
		off += sealRecord(r.buf[off:], synced)
	}
}

// publish tells that a group is in the file. mu is held.
func (l *Log) publish(g group) {
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
		// Once Release learns that the seal is durable it may retire the segment: we are done with
		// it.
		for i, s := range l.live {
			if s == l.writeSegment {
				l.writeSegment, l.direct = l.live[i+1], false
				break
			}
		}
	}
}

// writeHint writes down, without a sync, that everything before synced is durable. Only the leader
// is here, without mu.
func (l *Log) writeHint(synced LSN) error {
	putHint(l.hintBuf[:], l.writeSegment.salt, synced)
	if err := vfs.WriteFull(l.writeSegment.file, l.hintBuf[:], hintAt); err != nil {
		return fmt.Errorf("write note of log segment %s: %w", l.writeSegment.name, err)
	}
	l.hintedLSN = synced
	return nil
}
