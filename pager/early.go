package pager

import "math/bits"

// A page that a state frees can be written again only when that state is durable, and its predecessor never will be started from. Until then the
// page is early: no snapshot reaches it, and the checkpoint that frees it is being written. It can be the number of a new page all the same as
// long as that one is in memory only, in a frame or a patch: the next checkpoint begins when this one has ended. So pages that commits
// change beside a checkpoint go to the places of the state before, instead of places at the end of the file: a store that is overwritten
// again and again has its leaves twice in the file, not three times (ADR 0027).
//
// Crash order: nothing writes an early page before its checkpoint has ended. What is written before the next checkpoint, by whoever lays
// leaves, loads, stores a large value or spills, goes to pages that are not early. The next open after a crash before that starts from a state
// in which these pages are in use, and has to find as many others for what the log holds: see Share in txn.
//
// Everything in this file belongs to the holder of the writer lock.

// isEarly says whether the i-th page of the group is.
func (g *group) isEarly(i uint64) bool {
	return g.early != nil && g.early[i/64]&(1<<(i%64)) != 0
}

// setEarly says that [id, id+n) are early from now on: setAvail promises them.
func (s *space) setEarly(id Pgid, n uint64) error {
	for ; n > 0; id, n = id+1, n-1 {
		g, i, err := s.at(id)
		if err != nil {
			return err
		}
		if g.early == nil {
			all := make([]uint64, 2*s.words())
			g.early, g.promised = all[:s.words():s.words()], all[s.words():]
		}
		if g.isEarly(i) {
			return s.bad(id, "freed twice by one checkpoint")
		}
		g.early[i/64] |= 1 << (i % 64)
		s.early++
	}
	return nil
}

// promise is setAvail of an early page, the i-th of its group.
func (s *space) promise(g *group, id Pgid, i uint64) error {
	if g.promised[i/64]&(1<<(i%64)) != 0 {
		return s.bad(id, "promised twice")
	}
	g.promised[i/64] |= 1 << (i % 64)
	s.promised.came(1)
	return nil
}

// arrive says that the state which is being written is durable, and the one before will not be started from again.
func (s *space) arrive() {
	if s.early == 0 {
		return
	}
	for _, g := range s.groups {
		for i, w := range g.promised {
			g.avail[i] |= w
			s.gave(g, uint64(bits.OnesCount64(w)))
		}
		g.early, g.promised = nil, nil
	}
	s.early, s.promised = 0, supply{promised: true}
}

// Promise makes pages available that the state which a checkpoint is writing has freed, and that no snapshot reaches: to be
// written when that one is over.
func (p *Pager) Promise(id Pgid, n uint64) error {
	if err := p.space.setEarly(id, n); err != nil {
		return err
	}
	return p.Release(id, n)
}

// Arrived makes what was promised available for good: the checkpoint is durable, and the state before it will not be started from again.
func (p *Pager) Arrived() {
	p.space.arrive()
	p.laid.before = 0
}

// Share is how many promised pages the open transaction may have.
func (p *Pager) Share(n uint64) { p.space.share = n }

// EarlyTaken counts the early pages that were handed out.
func (p *Pager) EarlyTaken() uint64 { return p.space.early - p.space.promised.n }

// Early says that a page must not be written yet.
func (p *Pager) Early(id Pgid) bool {
	return p.space.early > 0 && p.space.groups[uint64(id)/p.space.perGroup].isEarly(uint64(id)%p.space.perGroup)
}
