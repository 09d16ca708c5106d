package pager

// Single pages come from runs of free ones, so that a checkpoint writes adjacent pages. All
// functions of this file need the writer lock.

// pagePool allocates single pages of one kind: avail ones, holes, or offered ones.
type pagePool struct {
	of          func(g *group) bitmap // the group's bitmap of these pages; nil if the group has none
	reusable    bool
	n           uint64 // free pages, including avail ones of unloaded groups
	run, runEnd Pgid   // the next page of the current run
	cursor      uint64 // page number where the search for the next run starts, from low to high
	fragments   uint64 // the same for runs of any length
	added       uint64 // pages added since the file was opened
	noRunUntil  uint64 // no run of shortRun pages exists before added reaches this
}

func newReusablePool() pagePool {
	return pagePool{reusable: true, of: func(g *group) bitmap { return g.offered }}
}

// add counts n more pages.
func (a *pagePool) add(n uint64) {
	a.n += n
	a.added += n
}

// rewind restarts the search from the low end.
func (a *pagePool) rewind() {
	a.cursor, a.fragments, a.run, a.runEnd, a.noRunUntil = 0, 0, 0, 0, 0
}

// nextPage allocates a page; ok is false if the file must grow. inMemory promises that the page is
// not written before the next checkpoint begins.
func (s *space) nextPage(how AllocPolicy, inMemory bool) (id Pgid, ok bool, err error) {
	if inMemory || s.nReusable == 0 { // the free lists may hold reusable pages
		for _, list := range [...]*[]Pgid{&s.framedFree, &s.unframedFree} {
			if n := len(*list); n > 0 {
				id, *list = (*list)[n-1], (*list)[:n-1]
				return id, true, nil
			}
		}
	}
	for again := true; again; again = !ok && err == nil && s.liftCeiling() {
		if inMemory && s.reusable.n > 0 && s.reusableInUse() < how.MostReusable {
			if id, ok, err = s.nextOf(&s.reusable, false); ok || err != nil {
				return id, ok, err
			}
		}
		id, ok, err = s.nextOf(&s.avail, s.fit == FitLowest)
	}
	return id, ok, err
}

// nextOf allocates from the current run, or the next one: from one of any length if fragments is set.
func (s *space) nextOf(a *pagePool, fragments bool) (id Pgid, ok bool, err error) {
	for {
		for a.run < a.runEnd {
			g, i, err := s.at(a.run)
			if err != nil {
				return 0, false, err
			}
			id = a.run
			a.run++
			if words := a.of(g); !words.has(i) {
				continue // an extent was allocated from the run
			}
			s.markAllocated(a, g, i)
			return id, true, nil
		}
		found, err := s.findRun(a, fragments)
		if err != nil || !found {
			return 0, false, err
		}
	}
}

func (s *space) markAllocated(a *pagePool, g *group, i uint64) {
	a.of(g).clear(i)
	a.n--
	if a == &s.avail {
		g.nAvail--
	}
}

// inCurrentRun counts pages that nextPage can allocate before the file must grow. It counts only
// those that are quick to find, until it reaches n.
func (s *space) inCurrentRun(n uint64, how AllocPolicy) (have uint64) {
	more := how.MostReusable - min(how.MostReusable, s.reusableInUse())
	have = uint64(len(s.framedFree)+len(s.unframedFree)) + min(s.inRuns(&s.reusable, n), more)
	if have >= n {
		return have
	}
	return have + s.inRuns(&s.avail, n-have)
}

// inRuns counts pages in runs from the current one on, until there are n or a few more.
func (s *space) inRuns(a *pagePool, n uint64) (have uint64) {
	if a.n == 0 {
		return 0
	}
	for id := uint64(a.run); id < uint64(a.runEnd) && have < n; id++ {
		words, i := a.of(s.groups[id/s.perGroup]), id%s.perGroup
		have += words[i/64] >> (i % 64) & 1
	}
	if s.fit == FitLowest || a.added < a.noRunUntil {
		return have
	}
	for no := a.cursor / s.perGroup; no < uint64(len(s.groups)) && have < n; no++ {
		g, first := s.groups[no], no*s.perGroup
		if !g.loaded {
			break
		}
		for at := max(a.cursor, first) - first; have < n; {
			lo, hi := runAt(a.of(g), at, shortRun)
			if lo == hi {
				break
			}
			have, at = have+hi-lo, hi
		}
	}
	return have
}

// Fragments, runs shorter than that, are filled only if no longer one is left and they are more than a
// quarter of the file: a checkpoint writes its pages in order, and fragments scatter the writes.
const (
	shortRun     = 16
	fillFraction = 4
)

// findRun sets run and runEnd to the next run.
func (s *space) findRun(a *pagePool, fragments bool) (bool, error) {
	if s.fit == FitTightest {
		lo, hi, err := s.shortest(a, 1)
		a.run, a.runEnd = Pgid(lo), Pgid(hi)
		return hi > lo, err
	}
	if !fragments && a.added >= a.noRunUntil {
		found, err := s.runFrom(a, &a.cursor, shortRun)
		if err != nil || found {
			return found, err
		}
		// The search has read a word for each 64 pages. The next one waits until as many pages have
		// become free, or a checkpoint ends: an allocation while there is no run must not scan the
		// whole file.
		a.cursor = 0
		a.noRunUntil = a.added + max(s.end/64, shortRun)
	}
	free := a.n
	if !a.reusable {
		free = s.avail.n + s.holes.n
	}
	if !fragments && free*fillFraction <= s.end && s.ceiling.Load() == 0 {
		return false, nil
	}
	found, err := s.runFrom(a, &a.fragments, 1)
	if err != nil || found || a.fragments == 0 {
		return found, err
	}
	a.fragments = 0
	return s.runFrom(a, &a.fragments, 1)
}

// runFrom sets run and runEnd to the next run of at least that many pages at or after the cursor,
// and moves the cursor behind it.
func (s *space) runFrom(a *pagePool, cursor *uint64, least uint64) (bool, error) {
	below := s.end
	if top := s.ceiling.Load(); top > 0 {
		below = min(top, below)
	}
	for no := *cursor / s.perGroup; no*s.perGroup < below; no++ {
		g := s.groups[no]
		if !g.loaded && !a.reusable {
			if err := s.open(g, no); err != nil {
				return false, err
			}
		}
		if a == &s.avail && uint64(g.nAvail) < least {
			continue
		}
		from := uint64(0)
		if f := no * s.perGroup; *cursor > f {
			from = *cursor - f
		}
		if lo, hi := runAt(a.of(g), from, least); hi > lo {
			if no*s.perGroup+lo >= below {
				return false, nil
			}
			a.run, a.runEnd = Pgid(no*s.perGroup+lo), Pgid(min(no*s.perGroup+hi, below))
			*cursor = uint64(a.runEnd)
			return true, nil
		}
	}
	return false, nil
}

// allocateFromFragment is nextPage for a full disk: it fills fragments, however few there are.
func (s *space) allocateFromFragment() (id Pgid, ok bool, err error) {
	if s.avail.n == 0 {
		return 0, false, nil
	}
	return s.nextOf(&s.avail, true)
}

// rewind restarts all searches from the low end: after a checkpoint, which frees pages.
func (s *space) rewind() {
	s.avail.rewind()
	s.holes.rewind()
	s.extCursor = 0
}

// shortest finds the shortest run of at least n pages, up to the end of a group and within one view
// of the map.
func (s *space) shortest(a *pagePool, n uint64) (from, to uint64, err error) {
	for no, g := range s.groups {
		if !g.loaded && !a.reusable {
			if err := s.open(g, uint64(no)); err != nil {
				return 0, 0, err
			}
		}
		first := uint64(no) * s.perGroup
		for at := uint64(0); ; {
			lo, hi := runAt(a.of(g), at, 1)
			if lo == hi {
				break
			}
			at = hi
			lo, hi = first+lo, first+hi
			for lo < hi {
				end := min(hi, (lo/s.mapChunk+1)*s.mapChunk)
				if end-lo >= n && (to == from || end-lo < to-from) {
					from, to = lo, end
				}
				lo = end
			}
		}
	}
	return from, to, nil
}
