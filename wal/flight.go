package wal

import (
	"slices"
	"time"
)

// maxFlying groups are written at a time. A second one doubles what many disks take of small synced writes, which wait rather than
// work; of a third none was seen to gain.
const maxFlying = 2

// A flight is a group on its way to the file. Only groups that are written directly and synced share the disk; everything else flies
// alone. They may land in any order, and are told of in the order of their positions: nobody hears that a commit is durable before
// all commits before it are.
//
//	crash ...                      the segment holds                recovery
//	with both on their way         any blocks of either             ends where the first record is torn. No later record claims
//	                                                                that more was durable: what it says was known when it departed
//	the second there, not first    a hole, and records behind it    ends at the hole: the chain of records is broken there
//	both there, neither told       both                             finds both, which it may
//
// If the first fails, both are taken back with one cut, when neither is being written any more.
type flight struct {
	group                // run is nil in a flight of its own that does nothing but sync
	began  time.Time     // if OnGroup wants to know
	took   time.Duration // until the write returned
	shared bool          // others may depart before it has landed
	landed bool          // the write has returned
	out    bool          // of flying
	fate   fate
	err    error
}

// fate of what was to be written.
type fate uint8

const (
	whole  fate = iota // all of it was given to the system; after an error of the sync it may or may not be durable
	partly             // the write failed
	none               // nothing was written
)

// mayFly says whether the next group may depart beside what is on its way, for a leader that wants it synced or not. It has to end as many commits
// as the one that is on its way: two small groups cost the processor more than one that waits for company, and the disk gains
// nothing. mu is held.
func (l *Log) mayFly(sync bool) bool {
	switch n := len(l.flying); {
	case n == 0:
		return true
	case n == maxFlying || l.failing || !l.flying[0].shared || len(l.queue) == 0:
		return false
	}
	r := l.queue[0]
	return r.commits >= l.flying[0].run.commits && sharable(r, l.wanted(r.end, sync))
}

// company is for who joins the waiters. It lets a leader look again that waits for more commits, or for somebody who wants a sync, to send
// a group after the one that is on its way. mu is held.
func (l *Log) company() {
	if l.leading && len(l.flying) > 0 && l.mayFly(true) {
		l.arrived.Broadcast()
	}
}

// sharable says whether a run, if it is written directly, may be on its way together with others: it is synced, ends no segment, and
// need not wait for Before. What ends no segment is all of the queue, so that everybody who waits then, waits for it or for what departed
// before. What comes after it begins in the same segment, at a block.
func sharable(r *run, sync bool) bool { return sync && !r.sealed && r.refers == 0 }

// depart notes that a group is on its way. mu is held.
func (l *Log) depart(g group) *flight {
	var f *flight
	if n := len(l.grounded); n > 0 {
		f, l.grounded = l.grounded[n-1], l.grounded[:n-1]
	} else {
		f = new(flight)
	}
	*f = flight{group: g}
	if g.run != nil {
		f.shared = g.direct && sharable(g.run, g.sync)
		if l.opts.OnGroup != nil {
			f.began = time.Now()
		}
	}
	l.flying = append(l.flying, f)
	return f
}

// land is called when the write has returned, and returns when its result is published: after those before it. What it returns is for
// OnGroup. mu is held, and let go meanwhile.
func (l *Log) land(f *flight, fate fate, err error) (told func()) {
	f.landed, f.fate, f.err = true, fate, err
	l.failing = l.failing || err != nil
	if l.opts.OnGroup != nil {
		f.took = time.Since(f.began)
	}
	l.arrived.Broadcast()
	for !f.out && l.flying[0] != f {
		l.arrived.Wait()
	}
	switch {
	case f.out: // It was taken back with the one before it.
	case err == nil:
		l.flying = l.flying[:copy(l.flying, l.flying[1:])]
		told = l.news(f)
		l.publish(f.group)
	default:
		l.crash(f)
	}
	l.arrived.Broadcast()
	return told
}

// ground keeps a flight that is out and that nobody looks at any more, to be used again. mu is held.
func (l *Log) ground(f *flight) { l.grounded = append(l.grounded, f) }

// dismiss ends a flight that shared the disk, whose goroutine does not lead: someone else does, if anyone. over are those who waited for it, told is
// for OnGroup. mu is held, and is not any more afterwards.
func (l *Log) dismiss(f *flight, over *waiter, told func()) {
	l.ground(f)
	l.mu.Unlock()
	over.wake()
	l.quit()
	if told != nil {
		told()
	}
}

// crash takes the group of the first flight, which has failed, back together with those behind it. mu is held, and let go meanwhile.
func (l *Log) crash(f *flight) {
	for _, behind := range l.flying[1:] {
		for !behind.landed {
			l.arrived.Wait()
		}
	}
	takenBack := f.fate == none
	if f.fate == partly {
		l.mu.Unlock()
		takenBack = f.run.takeBack()
		l.mu.Lock()
	}
	for _, each := range l.flying {
		each.out = true
	}
	l.flying = l.flying[:0]
	l.fail(f.err)
	if takenBack {
		l.reach = l.Written()
	}
}

// onItsWay says that who waits for end waits for nothing but flights, and is told when they land. mu is held.
func (l *Log) onItsWay(end LSN) bool { return len(l.flying) > 0 && end <= l.reach }

// pass gives the lead to someone who waits for what is neither on its way nor being settled, or lays it down. While others are on their way all who wait are told
// when these land: they wait for nothing else, or the log has failed. mu is held.
func (l *Log) pass() {
	i := slices.IndexFunc(l.waiters, func(w *waiter) bool { return !l.awaitsSettling(w.end) })
	if i < 0 || len(l.flying) > 0 {
		l.leading = false
		l.arrived.Broadcast()
		return
	}
	w := l.waiters[i]
	n := i + copy(l.waiters[i:], l.waiters[i+1:])
	l.waiters[n] = nil
	l.waiters = l.waiters[:n]
	w.done <- lead
}

// quit is for who has landed and does not lead: if nobody does, and nothing is left to do, it has time for what leaders do at the end.
// No lock is held.
func (l *Log) quit() {
	l.mu.Lock()
	if !l.leading {
		l.leading = true
		l.leave()
		return
	}
	prepare := l.halfFull()
	l.mu.Unlock()
	if prepare {
		l.prepareAhead()
	}
}
