package pager

import (
	"errors"
	"fmt"
)

// Holes are free pages without room on the disk: the file is sparse (ADR 0050). Space that the store
// does not use goes back to the file system when a checkpoint has ended, and a hole becomes an
// available page again only when the file system has reserved room for it. So an available page
// has its room, as one behind the end has that the file was grown by, and all that is said of free
// pages, the reserve above all, is of available pages only.
//
// Which free pages have room is not stored. An open takes each of them for a hole: to reserve room
// that is there takes no space, also on a full disk.
//
//	crash ...                  the file holds                      recovery
//	before or in a punch       old bytes or zeros in pages that    never reads these pages
//	                           were available
//	after a reservation        free pages with room, or without    reserves it before it uses them
//
// Crash order: a punch is a write to an available page, with any bytes. Nothing else is asked of it:
// writes to available pages harm no state that recovery could start from, and no snapshot.
//
// Room that the next open needs on a full disk stays: the pages allocated since the last capture
// are not punched, also when they are free again, nor are those behind the end of the durable state,
// nor the reserve, and something above.

const (
	// minHolePages is the shortest run that is punched: shorter ones would split the file into more
	// extents than they give back. Of a store that is idle, runs of a sixteenth are.
	minHolePages = 64
	// Available pages that are not punched: so many bytes, or that fraction of the pages in use.
	// They are what the store uses next, and what a replay may need beyond the run.
	spareBytes    = 4 << 20
	spareFraction = 8
	// fillBytes is the size of the part of the file in which holes are filled by one call.
	fillBytes = 4 << 20
)

// holes makes free pages holes, and holes available pages. The writer lock guards it, as its allocator.
type holes struct {
	*Allocator
	noPunch bool   // the file system refuses to punch holes
	noRoom  uint64 // holes before this page have no room: see fillScattered
}

// punchSizes are minHolePages and the pages to keep. Small groups have small files.
func (h *holes) punchSizes() (least, keep uint64) {
	if h.o.SmallGroups {
		return minHolePages / 16, h.reservePages(0) + minHolePages/4
	}
	spare := max(spareBytes/uint64(h.pageSize), h.space.nUsed/spareFraction)
	return minHolePages, h.reservePages(0) + spare
}

// TakeDead takes runs of available pages below end for Punch: those that the store does not need soon
// or, with all, of a store that is idle or closed, all but the reserve. Writer lock.
func (h *holes) TakeDead(end uint64, all bool) []pageRange {
	least, keep := h.punchSizes()
	if all {
		least, keep = max(least/16, 1), h.reservePages(0)
	}
	return h.takeDead(end, least, keep)
}

// Excess is how many pages have room on the disk, or may have it, and are not in use, the reserve not
// counted. Writer lock.
func (h *holes) Excess() uint64 {
	taken := h.space.nUsed + h.space.holes.n + h.reservePages(0)
	return max(uint64(h.FileBytes())/uint64(h.pageSize), taken) - taken
}

// WorthFreeing says whether what a checkpoint would free is worth one: long runs, and a sixteenth of
// the pages in use. Writer lock.
func (h *holes) WorthFreeing() bool {
	least, _ := h.punchSizes()
	return !h.noPunch && h.Unfree() >= max(4*least, h.space.nUsed/16)
}

// takeDead takes runs of at least least pages, highest first: available ones, as long as keep of them
// stay, and once the holes of each group that may have room from the session before.
func (h *holes) takeDead(end, least, keep uint64) (runs []pageRange) {
	s := h.space
	if end = min(end, s.end); h.noPunch || h.o.ReadOnly {
		return nil
	}
	for no := len(s.groups) - 1; no >= 0; no-- {
		g, first := s.groups[no], uint64(no)*s.perGroup
		if !g.loaded || first >= end {
			continue
		}
		top := min(s.perGroup, end-first)
		if g.unknown {
			runs = append(runs, s.takeRuns(&s.holes, uint64(no), top, least, s.holes.n)...)
			g.unknown = false
		}
		if s.avail.n > keep {
			runs = append(runs, s.takeRuns(&s.avail, uint64(no), top, least, s.avail.n-keep)...)
		}
	}
	return runs
}

// takeRuns takes runs of a pool's pages below top, in one group: most pages at most.
func (s *space) takeRuns(pool *pagePool, no, top, least, most uint64) (runs []pageRange) {
	g, first := s.groups[no], no*s.perGroup
	for lo, hi := lastRun(g, pool.of(g), top); lo < hi && most >= least; lo, hi = lastRun(g, pool.of(g), lo) {
		if hi-lo < least {
			continue
		}
		from := hi - min(hi-lo, most)
		for i := from; i < hi; i++ {
			s.markAllocated(pool, g, i)
		}
		most -= hi - from
		runs = append(runs, pageRange{Pgid(first + from), Pgid(first + hi)})
	}
	return runs
}

// lastRun finds the last run of set bits below top whose pages were not allocated since the last
// capture.
func lastRun(g *group, words bitmap, top uint64) (lo, hi uint64) {
	dead := func(i uint64) bool {
		return words.has(i) && (g.again == nil || !g.again.has(i))
	}
	for hi = top; hi > 0 && !dead(hi-1); hi-- {
		if hi%64 == 0 && words[hi/64-1] == 0 {
			hi -= 63
		}
	}
	for lo = hi; lo > 0 && dead(lo-1); {
		lo--
	}
	return lo, hi
}

// Punch gives the room of pages of TakeDead back to the file system, in parts: while a call runs, the
// file system lets no other change the file's extents, and a commit that fills holes waits for it. It
// takes no lock. Any failure ends punching; the pages are free.
func (h *holes) Punch(runs []pageRange) error {
	size, part := int64(h.pageSize), Pgid(freeStep/h.pageSize)
	for _, r := range runs {
		for at := r.from; at < r.to; at += part {
			if err := h.file.PunchHole(int64(at)*size, int64(min(part, r.to-at))*size); err != nil {
				return fmt.Errorf("punch %s at page %d: %w", h.name, at, err)
			}
		}
	}
	return nil
}

// Punched makes pages of TakeDead holes, after Punch has returned err. Writer lock.
func (h *holes) Punched(runs []pageRange, err error) error {
	h.noPunch = h.noPunch || err != nil
	for _, r := range runs {
		set := h.space.setHole
		if errors.Is(err, errors.ErrUnsupported) { // then the first call has changed nothing
			set = h.space.setAvail
		}
		if err := set(r.from, uint64(r.to-r.from)); err != nil {
			return err
		}
	}
	return nil
}

// setHole makes pages [id, id+n) holes.
func (s *space) setHole(id Pgid, n uint64) error {
	s.holes.rewind()
	s.holeMiss = ^uint64(0)
	return s.each(id, n, func(_ Pgid, g *group, i uint64) error {
		g.hole.set(i)
		s.holes.add(1)
		return nil
	})
}

// fillReserve fills holes, if n pages and the reserve are not available.
func (h *holes) fillReserve(n uint64) error {
	if s := h.space; s.holes.n == 0 || s.free() >= n+h.reserved.pages {
		return nil
	}
	h.reserved.pages = h.reservePages(0)
	_, err := h.fill(n + h.reserved.pages)
	return err
}

// fill reserves room for holes, in runs as allocations want them, until n more pages are available.
// It returns their number, which is less if there are no such runs, or no room.
func (h *holes) fill(n uint64) (filled uint64, err error) {
	s := h.space
	for filled < n && s.holes.n > 0 {
		if h.Growth.full {
			more, err := h.fillScattered(n - filled)
			return filled + more, err
		}
		found, err := s.findRun(&s.holes, false)
		if err != nil || !found {
			return filled, err
		}
		more, err := h.fillAt(n - filled)
		if filled += more; err != nil || more == 0 {
			return filled, err
		}
	}
	return filled, nil
}

// fillLowest fills the lowest holes, if no available page is lower.
func (h *holes) fillLowest() error {
	s := h.space
	if s.holes.n == 0 || s.avail.run < s.avail.runEnd {
		return nil
	}
	found, err := s.findRun(&s.holes, true)
	if err != nil || !found {
		return err
	}
	s.holes.fragments = uint64(s.holes.run) // the search finds the run again
	found, err = s.findRun(&s.avail, true)
	if err != nil || found && s.avail.run < s.holes.run {
		return err
	}
	_, err = h.fillAt(1)
	return err
}

// fillAt fills the holes in the part of the file that begins with the run found. Where the disk has
// no room for all of them, it looks for n holes that have some.
func (h *holes) fillAt(n uint64) (filled uint64, err error) {
	s := h.space
	from := uint64(s.holes.run)
	to := min(from+max(fillBytes/uint64(h.pageSize), minHolePages), s.end, (from/s.perGroup+1)*s.perGroup)
	s.holes.cursor, s.holes.fragments = min(s.holes.cursor, to), min(s.holes.fragments, to)
	s.holes.run, s.holes.runEnd = 0, 0
	if !h.Growth.full {
		if filled, err = h.fillRange(from, to); !NoSpace(err) {
			return filled, err
		}
		h.Growth.full = true
	}
	return h.fillScattered(n)
}

// fillRange makes the holes in [from, to), of one group, available. Pages in use stay as they are.
func (h *holes) fillRange(from, to uint64) (filled uint64, err error) {
	s := h.space
	g, _, err := s.at(Pgid(from))
	if err != nil {
		return 0, err
	}
	if err := h.file.Reserve(int64(from)*int64(h.pageSize), int64(to-from)*int64(h.pageSize)); err != nil {
		return 0, fmt.Errorf("reserve pages from %d on of %s: %w", from, h.name, err)
	}
	first := from / s.perGroup * s.perGroup
	for i := nextBit(g.hole, from-first, false); i < to-first; i = nextBit(g.hole, i+1, false) {
		s.markAllocated(&s.holes, g, i)
		if err := s.setAvail(Pgid(first+i), 1); err != nil {
			return filled, err
		}
		filled++
	}
	return filled, nil
}

// fillScattered makes n holes available that have room, on a disk that has no more: those that the
// session before had reserved. Each hole is tried once in a session.
func (h *holes) fillScattered(n uint64) (filled uint64, err error) {
	s := h.space
	for no := h.noRoom / s.perGroup; no < uint64(len(s.groups)); no++ {
		first := no * s.perGroup
		g, _, err := s.at(Pgid(first))
		if err != nil {
			return filled, err
		}
		for h.noRoom = max(h.noRoom, first); ; {
			lo := nextBit(g.hole, h.noRoom-first, false)
			if lo >= s.perGroup {
				break
			}
			more, err := h.fillParts(first+lo, first+nextBit(g.hole, lo, true), n-filled)
			if filled += more; err != nil || filled >= n {
				return filled, err
			}
		}
	}
	return filled, nil
}

// fillParts is fillRange of as large parts of [from, to) as have room, until n pages are available.
func (h *holes) fillParts(from, to, n uint64) (filled uint64, err error) {
	filled, err = h.fillRange(from, to)
	if h.noRoom = to; !NoSpace(err) {
		return filled, err
	}
	if to-from == 1 {
		return 0, nil
	}
	half := from + (to-from)/2
	if filled, err = h.fillParts(from, half, n); err != nil || filled >= n {
		return filled, err
	}
	more, err := h.fillParts(half, to, n-filled)
	return filled + more, err
}

// fillExtent fills a run of at least n holes below a page, and says whether there was one.
func (h *holes) fillExtent(n, below uint64) (filled bool, err error) {
	s := h.space
	if n > s.perGroup || s.holes.n < n || n >= s.holeMiss {
		return false, nil
	}
	for no := uint64(0); no*s.perGroup < below; no++ {
		first := no * s.perGroup
		g, _, err := s.at(Pgid(max(first, 2)))
		if err != nil {
			return false, err
		}
		for lo, hi := runAt(g.hole, 0, n); lo < hi; lo, hi = runAt(g.hole, hi, n) {
			if first+lo+n > below {
				return false, nil
			}
			_, err := h.fillRange(first+lo, first+min(hi, lo+max(n, fillBytes/uint64(h.pageSize))))
			if !NoSpace(err) {
				return err == nil, err
			}
		}
	}
	if below == s.end {
		s.holeMiss = n
	}
	return false, nil
}

// trimTail lowers the end of the file past its free pages. If there are holes among them, there is
// room behind the new end for the reserve, or the end stays.
func (h *holes) trimTail() {
	s := h.space
	s.tail()
	low := s.end - h.FreeTail()
	if low == s.end {
		return
	}
	h.Growth.EndPreallocation()
	room, size := min(h.reservePages(0), s.end-low), int64(h.pageSize)
	if h.file.Reserve(int64(low)*size, int64(room)*size) != nil {
		return
	}
	for id := low; id < s.end; id++ {
		g, i := s.groups[id/s.perGroup], id%s.perGroup
		pool := &s.avail
		if g.hole.has(i) {
			pool = &s.holes
		}
		s.markAllocated(pool, g, i)
	}
	if room < s.end-low { // else what was behind the end goes on from there
		h.Growth.size = int64(low+room) * size
		h.Growth.threshold = min(h.Growth.threshold, h.Growth.size)
	}
	s.end = low
}

// freeAt reports whether a page is available or a hole. It loads no group.
func (s *space) freeAt(id uint64) bool {
	g, i := s.groups[id/s.perGroup], id%s.perGroup
	return g.loaded && (g.avail.has(i) || g.hole.has(i))
}
