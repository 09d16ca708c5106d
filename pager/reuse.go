package pager

import "math/bits"

// A page that a state frees may be written again only when that state is durable and no open starts
// from its predecessor any more. Until then, while the checkpoint that frees it is being written
// and no snapshot reaches it, the page is reusable: its number may be allocated for a new page that
// is in memory only, in a frame or a delta, because the next checkpoint begins after this one has
// ended. So commits during a checkpoint reuse pages of the state before, instead of growing the
// file: a store that is overwritten repeatedly has its leaves twice in the file, not three times
// (ADR 0027).
//
// Crash order: no reusable page is written before its checkpoint has ended. Leaf runs, bulk loads,
// large values and spilled pages are written before the next checkpoint, so they do not use
// reusable pages. An open after a crash in between starts from a state that uses these pages, and
// needs as many others to replay the log: see mostReusable in txn.
//
// All functions of this file need the writer lock.

func (g *group) isReusable(i uint64) bool {
	return g.reusable != nil && g.reusable.has(i)
}

// setReusable marks [id, id+n) as reusable: setAvail then offers them.
func (s *space) setReusable(id Pgid, n uint64) error {
	return s.each(id, n, func(id Pgid, g *group, i uint64) error {
		if g.reusable == nil {
			all := make([]uint64, 2*s.words())
			g.reusable, g.offered = all[:s.words():s.words()], all[s.words():]
		}
		if g.isReusable(i) {
			return s.bad(id, "freed twice by one checkpoint")
		}
		g.reusable.set(i)
		s.nReusable++
		return nil
	})
}

// offerReusable is setAvail of a reusable page, the i-th of its group.
func (s *space) offerReusable(g *group, id Pgid, i uint64) error {
	if g.offered.has(i) {
		return s.bad(id, "offered twice")
	}
	g.offered.set(i)
	s.reusable.add(1)
	return nil
}

// acceptReusable makes reusable pages ordinary ones: the state that freed them is durable, and no
// open starts from the one before.
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
	s.nReusable, s.reusable = 0, newReusablePool()
}

// OfferReusable makes pages available that the running checkpoint frees and that no snapshot
// reaches. They are not written before that checkpoint has ended.
func (p *Pager) OfferReusable(id Pgid, n uint64) error {
	if err := p.Alloc.space.setReusable(id, n); err != nil {
		return err
	}
	return p.Release(id, n)
}

// AcceptReusable makes the offered pages ordinary available ones: the checkpoint is durable, and no
// open starts from the state before it.
func (a *Allocator) AcceptReusable() {
	a.space.acceptReusable()
	a.reserved.replayBefore = 0
}

// reusableInUse is the number of reusable pages that have been allocated.
func (s *space) reusableInUse() uint64 { return s.nReusable - s.reusable.n }

// ReusableInUse is the number of reusable pages that have been allocated.
func (a *Allocator) ReusableInUse() uint64 { return a.space.reusableInUse() }

// IsReusable reports whether a page must not be written yet.
func (a *Allocator) IsReusable(id Pgid) bool {
	return a.space.nReusable > 0 &&
		a.space.groups[uint64(id)/a.space.perGroup].isReusable(uint64(id)%a.space.perGroup)
}
