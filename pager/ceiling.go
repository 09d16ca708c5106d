package pager

import (
	"errors"
	"math/bits"
)

// While a compaction moves pages down, the pages at the end of the file must stay free: allocations
// beside it take pages below a ceiling, as long as there are any, in fragments of any size. The first
// single page that finds none lifts the ceiling, so that no allocation fails or grows the file
// because of it. A large value without a run below the ceiling is allocated above it.
//
// The ceiling is in memory only: after a crash there is none.

// ErrNoneBelow is returned for an extent that has to lie below a page, and cannot.
var ErrNoneBelow = errors.New("pager: no run of free pages is long enough")

// SetCeiling sets the ceiling, and loads the free map of all pages from it on. Pages of the free map
// that lie there get other numbers in the next capture. Writer lock.
func (a *Allocator) SetCeiling(id Pgid) error {
	if err := a.flushFreeLists(); err != nil {
		return err
	}
	s := a.space
	for no := range s.groups {
		g := s.groups[no]
		if above := g.ref.Pgid >= id; above || (uint64(no)+1)*s.perGroup > uint64(id) {
			if _, _, err := s.at(Pgid(uint64(no) * s.perGroup)); err != nil {
				return err
			}
			g.changed = g.changed || above
		}
	}
	s.ceiling.Store(uint64(id))
	s.rewind()
	s.reusable.rewind()
	return nil
}

// Ceiling is what SetCeiling has set; 0: none, or it was lifted.
func (a *Allocator) Ceiling() Pgid { return Pgid(a.space.ceiling.Load()) }

// LiftCeiling removes the ceiling. It takes no lock.
func (a *Allocator) LiftCeiling() { a.space.ceiling.Store(0) }

// From counts the pages from id on that the newest committed state uses, and those that it does not
// use and that are not free yet. SetCeiling(id) has succeeded. Writer lock.
func (a *Allocator) From(id Pgid) (used, waiting uint64) {
	s := a.space
	for no := uint64(id) / s.perGroup; no < uint64(len(s.groups)); no++ {
		g, first := s.groups[no], no*s.perGroup
		for i := range g.used {
			mask := ^uint64(0)
			if lo := first + uint64(i)*64; lo+64 <= uint64(id) || lo >= s.end {
				continue
			} else if lo < uint64(id) {
				mask <<= uint64(id) - lo
			}
			if lo := first + uint64(i)*64; s.end-lo < 64 {
				mask &= 1<<(s.end-lo) - 1
			}
			used += uint64(bits.OnesCount64(g.used[i] & mask))
			waiting += uint64(bits.OnesCount64(^(g.used[i] | g.avail[i] | g.hole[i]) & mask))
		}
	}
	return used, waiting
}

// FreeTail is the number of free pages at the end of the file, which the next capture cuts off.
// Writer lock.
func (a *Allocator) FreeTail() (n uint64) {
	for a.space.end-n > 2 && a.space.freeAt(a.space.end-n-1) {
		n++
	}
	return n
}

// keeps says whether a freed page may go to a free list, from which it is allocated next.
func (s *space) keeps(id Pgid) bool {
	top := s.ceiling.Load()
	return top == 0 || uint64(id) < top
}

// liftCeiling is LiftCeiling for an allocation that found no page below the ceiling. It says whether
// there was one.
func (s *space) liftCeiling() bool {
	if s.ceiling.Swap(0) == 0 {
		return false
	}
	s.rewind()
	s.reusable.rewind()
	return true
}

// extentBelow is extent of n pages that all lie below a page, at the first place from the low end.
func (s *space) extentBelow(n, below uint64) (id Pgid, ok bool, err error) {
	s.extCursor = 0
	id, ok, err = s.extentFrom(n, below)
	s.extCursor = 0
	return id, ok, err
}
