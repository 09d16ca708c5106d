package pager

import "math/bits"

// A page that a state frees can be written again only when that state is durable, and its
// predecessor never will be started from. Until then the page is early: no snapshot reaches it, and
// the checkpoint that frees it is being written. It can be the number of a new page all the same as
// long as that one is in memory only, in a frame or a patch: the next checkpoint begins when this
// one has ended. So pages that commits change beside a checkpoint go to the places of the state
// before, instead of places at the end of the file: a store that is overwritten again and again has
// its leaves twice in the file, not three times (ADR 0027).
//
// Crash order: nothing writes an early page before its checkpoint has ended. What is written before
// the next checkpoint, by whoever lays leaves, loads, stores a large value or spills, goes to pages
// that are not early. The next open after a crash before that starts from a state in which these
// pages are in use, and has to find as many others for what the log holds: see Share in txn.
//
// Everything in this file belongs to the holder of the writer lock.

// isReusable says whether the i-th page of the group is.
func (g *group) isReusable(i uint64) bool {
	return g.reusable != nil && g.reusable[i/64]&(1<<(i%64)) != 0
}

// setReusable says that [id, id+n) are early from now on: setAvail promises them.
func (s *space) setReusable(id Pgid, n uint64) error {
	for ; n > 0; id, n = id+1, n-1 {
		g, i, err := s.at(id)
		if err != nil {
			return err
		}
		if g.reusable == nil {
			all := make([]uint64, 2*s.words())
			g.reusable, g.offered = all[:s.words():s.words()], all[s.words():]
		}
		if g.isReusable(i) {
			return s.bad(id, "freed twice by one checkpoint")
		}
		g.reusable[i/64] |= 1 << (i % 64)
		s.nReusable++
	}
	return nil
}

// offerReusable is setAvail of an early page, the i-th of its group.
func (s *space) offerReusable(g *group, id Pgid, i uint64) error {
	if g.offered[i/64]&(1<<(i%64)) != 0 {
		return s.bad(id, "promised twice")
	}
	g.offered[i/64] |= 1 << (i % 64)
	s.reusable.add(1)
	return nil
}

// acceptReusable says that the state which is being written is durable, and the one before will not
// be started from again.
func (s *space) acceptReusable() {
	if s.nReusable == 0 {
		return
	}
	for _, g := range s.groups {
		for i, w := range g.offered {
			g.avail[i] |= w
			s.addFree(g, uint64(bits.OnesCount64(w)))
		}
		g.reusable, g.offered = nil, nil
	}
	s.nReusable, s.reusable = 0, pagePool{reusable: true}
}

// OfferReusable makes pages available that the state which a checkpoint is writing has freed, and
// that no snapshot reaches: to be written when that one is over.
func (p *Pager) OfferReusable(id Pgid, n uint64) error {
	if err := p.space.setReusable(id, n); err != nil {
		return err
	}
	return p.Release(id, n)
}

// AcceptReusable makes what was promised available for good: the checkpoint is durable, and the
// state before it will not be started from again.
func (p *Pager) AcceptReusable() {
	p.space.acceptReusable()
	p.leafRunPages.before = 0
}

// SetReuseShare is how many promised pages the open transaction may have.
func (p *Pager) SetReuseShare(n uint64) { p.space.reuseShare = n }

// EarlyTaken counts the early pages that were handed out.
func (p *Pager) EarlyTaken() uint64 { return p.space.nReusable - p.space.reusable.n }

// IsReusable says that a page must not be written yet.
func (p *Pager) IsReusable(id Pgid) bool {
	return p.space.nReusable > 0 &&
		p.space.groups[uint64(id)/p.space.perGroup].isReusable(uint64(id)%p.space.perGroup)
}
