package wal

import (
	"slices"
	"time"
)

// maxInflight groups are written at a time. A second one doubles what many disks take of small
// synced writes, which wait rather than work; of a third none was seen to gain.
const maxInflight = 2

// A flight is a group on its way to the file. Only groups that are written directly and synced
// share the disk; everything else flies alone. They may land in any order, and are told of in the
// order of their positions: nobody hears that a commit is durable before all commits before it are.
//
//	crash ...                      the segment holds                recovery
//	with both on their way         any blocks of either             ends where the first record is torn. No later record claims
//	                                                                that more was durable: what it says was known when it departed
//	the second there, not first    a hole, and records behind it    ends at the hole: the chain of records is broken there
//	both there, neither told       both                             finds both, which it may
//
// If the first fails, both are taken back with one cut, when neither is being written any more.
type inflightWrite struct {
	group                      // run is nil in a flight of its own that does nothing but sync
	began        time.Time     // if OnGroup wants to know
	took         time.Duration // until the write returned
	overlappable bool          // others may depart before it has landed
	returned     bool          // the write has returned
	removed      bool          // of flying
	outcome      writeOutcome
	err          error
}

// writeOutcome of what was to be written.
type writeOutcome uint8

const (
	// all of it was given to the system; after an error of the sync it may or may not be durable
	writeComplete writeOutcome = iota
	writePartial               // the write failed
	writeNone                  // nothing was written
)

// canStartWrite says whether the next group may depart beside what is on its way, for a leader that
// wants it synced or not. It has to end as many commits as the one that is on its way: two small
// groups cost the processor more than one that waits for company, and the disk gains nothing. mu is
// held.
func (l *Log) canStartWrite(sync bool) bool {
	switch n := len(l.inflight); {
	case n == 0:
		return true
	case n == maxInflight || l.writeFailed || !l.inflight[0].overlappable || len(l.queue) == 0:
		return false
	}
	r := l.queue[0]
	return r.commits >= l.inflight[0].run.commits && overlappable(r, l.wantsSync(r.end, sync))
}

// wakeLeader is for who joins the waiters. It lets a leader look again that waits for more commits,
// or for somebody who wants a sync, to send a group after the one that is on its way. mu is held.
func (l *Log) wakeLeader() {
	if l.leading && len(l.inflight) > 0 && l.canStartWrite(true) {
		l.writeDone.Broadcast()
	}
}

// overlappable says whether a run, if it is written directly, may be on its way together with
// others: it is synced, ends no segment, and need not wait for Before. What ends no segment is all
// of the queue, so that everybody who waits then, waits for it or for what departed before. What
// comes after it begins in the same segment, at a block.
func overlappable(r *writeBuffer, sync bool) bool { return sync && !r.sealed && r.ref == 0 }

// startWrite notes that a group is on its way. mu is held.
func (l *Log) startWrite(g group) *inflightWrite {
	var f *inflightWrite
	if n := len(l.freeInflight); n > 0 {
		f, l.freeInflight = l.freeInflight[n-1], l.freeInflight[:n-1]
	} else {
		f = new(inflightWrite)
	}
	*f = inflightWrite{group: g}
	if g.run != nil {
		f.overlappable = g.direct && overlappable(g.run, g.sync)
		if l.opts.OnGroup != nil {
			f.began = time.Now()
		}
	}
	l.inflight = append(l.inflight, f)
	return f
}

// completeWrite is called when the write has returned, and returns when its result is published:
// after those before it. What it returns is for OnGroup. mu is held, and let go meanwhile.
func (l *Log) completeWrite(f *inflightWrite, fate writeOutcome, err error) (told func()) {
	f.returned, f.outcome, f.err = true, fate, err
	l.writeFailed = l.writeFailed || err != nil
	if l.opts.OnGroup != nil {
		f.took = time.Since(f.began)
	}
	l.writeDone.Broadcast()
	for !f.removed && l.inflight[0] != f {
		l.writeDone.Wait()
	}
	switch {
	case f.removed: // It was taken back with the one before it.
	case err == nil:
		l.inflight = l.inflight[:copy(l.inflight, l.inflight[1:])]
		told = l.groupEvent(f)
		l.publish(f.group)
	default:
		l.failInflight(f)
	}
	l.writeDone.Broadcast()
	return told
}

// recycleWrite keeps a flight that is out and that nobody looks at any more, to be used again. mu
// is held.
func (l *Log) recycleWrite(f *inflightWrite) { l.freeInflight = append(l.freeInflight, f) }

// finishWrite ends a flight that shared the disk, whose goroutine does not lead: someone else does,
// if anyone. over are those who waited for it, told is for OnGroup. mu is held, and is not any more
// afterwards.
func (l *Log) finishWrite(f *inflightWrite, over *waiter, told func()) {
	l.recycleWrite(f)
	l.mu.Unlock()
	over.wakeAll()
	l.finishFollower()
	if told != nil {
		told()
	}
}

// failInflight takes the group of the first flight, which has failed, back together with those
// behind it. mu is held, and let go meanwhile.
func (l *Log) failInflight(f *inflightWrite) {
	for _, behind := range l.inflight[1:] {
		for !behind.returned {
			l.writeDone.Wait()
		}
	}
	takenBack := f.outcome == writeNone
	if f.outcome == writePartial {
		l.mu.Unlock()
		takenBack = f.run.truncate()
		l.mu.Lock()
	}
	for _, each := range l.inflight {
		each.removed = true
	}
	l.inflight = l.inflight[:0]
	l.fail(f.err)
	if takenBack {
		l.maxSubmitted = l.Written()
	}
}

// isInflight says that who waits for end waits for nothing but flights, and is told when they land.
// mu is held.
func (l *Log) isInflight(end LSN) bool { return len(l.inflight) > 0 && end <= l.maxSubmitted }

// handOffLead gives the lead to someone who waits for what is neither on its way nor being settled,
// or lays it down. While others are on their way all who wait are told when these land: they wait
// for nothing else, or the log has failed. mu is held.
func (l *Log) handOffLead() {
	i := slices.IndexFunc(l.waiters, func(w *waiter) bool { return !l.waitsForSegmentSync(w.end) })
	if i < 0 || len(l.inflight) > 0 {
		l.leading = false
		l.writeDone.Broadcast()
		return
	}
	w := l.waiters[i]
	n := i + copy(l.waiters[i:], l.waiters[i+1:])
	l.waiters[n] = nil
	l.waiters = l.waiters[:n]
	w.done <- lead
}

// finishFollower is for who has landed and does not lead: if nobody does, and nothing is left to
// do, it has time for what leaders do at the end. No lock is held.
func (l *Log) finishFollower() {
	l.mu.Lock()
	if !l.leading {
		l.leading = true
		l.resignLead()
		return
	}
	prepare := l.needsSpare()
	l.mu.Unlock()
	if prepare {
		l.prepareInBackground()
	}
}
