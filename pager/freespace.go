package pager

import "sync/atomic"

// space is the set of free and used pages of the file. The writer lock guards all fields, unless
// noted.
//
// Pages are managed in groups, with one free map page each. A page has these bits:
//
//	used      the newest committed state can reach it
//	avail     allocatable: no durable state and no snapshot can reach it
//	hole      likewise, but the disk may have no room for it: see holes.go
//	dirty     allocated since the last capture, and the file does not hold it yet
//	reusable  of the states, only the last durable one can reach it, and no snapshot: see reuse.go
//	offered   reusable and allocatable
//
// A page that is neither used nor avail, hole or offered belongs to an open transaction, waits for
// snapshots to end or for a checkpoint, or is in one of the free lists below.
type space struct {
	pageSize int
	perGroup uint64
	// extents never cross a multiple of this many pages: each lies in one view of the map
	mapChunk uint64
	groups   []*group
	end      uint64 // page count: [0, end)
	most     uint64 // see Allocator.MostPages
	// pages from here on are allocated last; 0: no ceiling. Written under the lock, except to lift it
	ceiling atomic.Uint64
	// page count when the file was opened: no free map page in the file covers later pages
	start uint64
	// allocated and freed since the last capture, with a frame: reused first, so that the run stays dense
	framedFree   []Pgid
	unframedFree []Pgid // likewise, without a frame: reused next
	avail        pagePool
	holes        pagePool
	holeMiss     uint64 // no run of holes has this many pages or more
	sparse       bool   // free pages of groups that are loaded are holes
	reusable     pagePool
	nReusable    uint64       // reusable bits set
	extCursor    uint64       // page number where the next search for an extent starts
	extMiss      uint64       // no free extent has this many pages or more
	fit          Fit          // of the present searches: see Pager.prepareAlloc
	nUsed        uint64       // used bits set, and unloaded groups' pages in use
	dirty        atomic.Int64 // dirty bits set; read without the lock
	load         func(g *group, no uint64) error
	bad          func(id Pgid, detail string) error // corruption: the free map contradicts the pages
}

type group struct {
	used, avail, dirty bitmap // nil until loaded
	hole               bitmap // likewise
	reusable, offered  bitmap // nil if no page is
	again              bitmap // allocated since the last capture and free again; nil if no page is
	nUsed              uint32
	nAvail             uint32
	longest            uint32 // upper bound of the runs of avail pages, lowered by unsuccessful searches
	changed            bool   // used changed since the last capture
	unknown            bool   // holes may have room, from the session before: punched once
	ref                Ref    // free map page; zero: no page was in use
	loaded             bool
}

func newSpace(pageSize int) *space {
	return &space{
		pageSize: pageSize,
		perGroup: uint64(pageSize-HeaderSize) / 8 * 64,
		mapChunk: mapChunkBytes / uint64(pageSize),
		extMiss:  ^uint64(0),
		holeMiss: ^uint64(0),
		holes:    pagePool{of: func(g *group) bitmap { return g.hole }},
		avail:    pagePool{of: func(g *group) bitmap { return g.avail }},
		reusable: newReusablePool(),
	}
}

// free counts the single pages that can be allocated.
func (s *space) free() uint64 { return s.avail.n + uint64(len(s.framedFree)+len(s.unframedFree)) }

func (s *space) words() int { return int(s.perGroup / 64) }

// at returns the loaded group of a page and the page's bit in it.
func (s *space) at(id Pgid) (g *group, i uint64, err error) {
	no := uint64(id) / s.perGroup
	g = s.groups[no]
	if !g.loaded {
		if err := s.open(g, no); err != nil {
			return nil, 0, err
		}
	}
	return g, uint64(id) - no*s.perGroup, nil
}

// each calls fn for pages [id, id+n) in order, each with its loaded group and its bit in it.
func (s *space) each(id Pgid, n uint64, fn func(id Pgid, g *group, i uint64) error) error {
	for end := id + Pgid(n); id < end; id++ {
		g, i, err := s.at(id)
		if err == nil {
			err = fn(id, g, i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *space) makeBitmaps(g *group) {
	w := s.words()
	all := make([]uint64, 4*w)
	g.used, g.avail, g.dirty, g.hole = all[:w:w], all[w:2*w:2*w], all[2*w:3*w:3*w], all[3*w:]
}

// open reads a group's bitmap. No page that the group had when the file was opened has been
// allocated or freed before, so its unused pages are holes, or avail if the file is not sparse.
// Pages by which the file has grown since are allocated already.
func (s *space) open(g *group, no uint64) error {
	s.makeBitmaps(g)
	if !g.ref.IsZero() {
		if err := s.load(g, no); err != nil {
			g.used, g.avail, g.dirty, g.hole = nil, nil, nil, nil
			return err
		}
	}
	first, free := no*s.perGroup, g.avail
	if s.sparse {
		free, g.unknown = g.hole, true
	}
	for i := range g.used {
		free[i] = ^g.used[i]
	}
	if n := s.start - first; n < s.perGroup { // pages past the end of the file are not free
		for i := range free {
			lo := uint64(i) * 64
			switch {
			case lo >= n:
				free[i] = 0
			case lo+64 > n:
				free[i] &= 1<<(n-lo) - 1
			}
		}
	}
	g.nAvail = uint32(g.avail.count())
	g.longest = g.nAvail
	g.loaded = true
	return nil
}

// grow moves the end of the file by n pages and returns the first of them. They are not avail. The
// group of the end is loaded here, so that the commit of the pages cannot fail on a read.
func (s *space) grow(n uint64) (Pgid, error) {
	first := s.end
	if no := first / s.perGroup; no < uint64(len(s.groups)) && !s.groups[no].loaded {
		if err := s.open(s.groups[no], no); err != nil {
			return 0, err
		}
	}
	s.end += n
	s.addGroups()
	return Pgid(first), nil
}

func (s *space) addGroups() {
	for uint64(len(s.groups))*s.perGroup < s.end {
		g := &group{loaded: true}
		s.makeBitmaps(g)
		s.groups = append(s.groups, g)
	}
}

// setAvail makes pages [id, id+n) available; reusable ones only for pages in memory.
func (s *space) setAvail(id Pgid, n uint64) error {
	return s.each(id, n, func(id Pgid, g *group, i uint64) error {
		if g.avail.has(i) || g.hole.has(i) || g.used.has(i) {
			return s.bad(id, "released twice, or while in use")
		}
		if g.isReusable(i) {
			return s.offerReusable(g, id, i)
		}
		g.avail.set(i)
		s.addFree(g, 1)
		if s.fit == FitLowest && uint64(id) < s.avail.fragments {
			s.avail.rewind()
		}
		return nil
	})
}

// setAgain is setAvail of pages that were allocated since the last capture.
func (s *space) setAgain(id Pgid, n uint64) error {
	if err := s.setAvail(id, n); err != nil {
		return err
	}
	return s.each(id, n, func(_ Pgid, g *group, i uint64) error {
		if g.again == nil {
			g.again = make([]uint64, s.words())
		}
		g.again.set(i)
		return nil
	})
}

// addFree counts n pages of a group that have become avail.
func (s *space) addFree(g *group, n uint64) {
	if n == 0 {
		return
	}
	g.nAvail += uint32(n)
	g.longest = uint32(s.perGroup)
	s.extMiss = ^uint64(0)
	s.avail.add(n)
}

// flushUnframed moves the pages of the unframed free list to the free map.
func (s *space) flushUnframed() error {
	for _, id := range s.unframedFree {
		if err := s.setAgain(id, 1); err != nil {
			return err
		}
	}
	s.unframedFree = nil
	return nil
}

// extent allocates n contiguous pages; ok is false if the file must grow.
func (s *space) extent(n uint64) (id Pgid, ok bool, err error) {
	id, ok, err = s.findExtent(n)
	if err == nil && !ok && uint64(len(s.unframedFree)) >= n { // some may be contiguous
		if err := s.flushUnframed(); err != nil {
			return 0, false, err
		}
		id, ok, err = s.findExtent(n)
	}
	return id, ok, err
}

func (s *space) findExtent(n uint64) (id Pgid, ok bool, err error) {
	if n > s.perGroup || s.avail.n < n || n >= s.extMiss {
		return 0, false, nil
	}
	if s.fit == FitTightest {
		return s.tightExtent(n)
	}
	if top := s.ceiling.Load(); top > 0 {
		if id, ok, err = s.extentBelow(n, top); ok || err != nil {
			return id, ok, err
		}
	}
	id, ok, err = s.extentFrom(n, s.end)
	if err == nil && !ok && s.extCursor > 0 { // restart from the low end
		s.extCursor = 0
		id, ok, err = s.extentFrom(n, s.end)
	}
	if err == nil && !ok {
		s.extMiss = n
	}
	return id, ok, err
}

// tightExtent allocates the extent from the shortest run that fits.
func (s *space) tightExtent(n uint64) (id Pgid, ok bool, err error) {
	lo, hi, err := s.shortest(&s.avail, n)
	if err != nil || lo == hi {
		return 0, false, err
	}
	g, i, err := s.at(Pgid(lo))
	if err != nil {
		return 0, false, err
	}
	for k := range n {
		s.markAllocated(&s.avail, g, i+k)
	}
	return Pgid(lo), true, nil
}

// extentFrom searches pages at or after extCursor and below a page.
func (s *space) extentFrom(n, below uint64) (id Pgid, ok bool, err error) {
	for no := s.extCursor / s.perGroup; no*s.perGroup < below; no++ {
		g := s.groups[no]
		if !g.loaded {
			if err := s.open(g, no); err != nil {
				return 0, false, err
			}
		}
		if uint64(g.nAvail) < n || uint64(g.longest) < n {
			continue
		}
		first, from := no*s.perGroup, uint64(0)
		if s.extCursor > first {
			from = s.extCursor - first
		}
		whole := from == 0
		for {
			lo, hi := runAt(g.avail, from, n)
			if lo == hi {
				if whole {
					g.longest = uint32(n - 1)
				}
				break
			}
			if a, b := (first+lo)/s.mapChunk, (first+lo+n-1)/s.mapChunk; a != b {
				if cut := b*s.mapChunk - first; hi-cut >= n {
					lo = cut
				} else {
					from, whole = hi, false
					continue
				}
			}
			if first+lo+n > below {
				return 0, false, nil
			}
			for i := lo; i < lo+n; i++ {
				s.markAllocated(&s.avail, g, i)
			}
			s.extCursor = first + lo + n
			return Pgid(first + lo), true, nil
		}
	}
	return 0, false, nil
}

// gap is the number of pages to skip at the end of the file, so that the next n pages lie in one
// view of the map.
func (s *space) gap(n uint64) uint64 {
	if b := (s.end + n - 1) / s.mapChunk; s.end/s.mapChunk != b {
		return b*s.mapChunk - s.end
	}
	return 0
}

// growExtent moves the end of the file by n contiguous pages in one view of the map.
func (s *space) growExtent(n uint64) (Pgid, error) {
	if gap := s.gap(n); gap > 0 {
		first, err := s.grow(gap)
		if err != nil {
			return 0, err
		}
		if err := s.setAvail(first, gap); err != nil {
			return 0, err
		}
	}
	return s.grow(n)
}

// markUsed marks [id, id+n) as reachable by the newest state, and, if dirty, as not yet in the
// file.
func (s *space) markUsed(id Pgid, n uint64, dirty bool) error {
	return s.each(id, n, func(_ Pgid, g *group, i uint64) error {
		g.used.set(i)
		if dirty && !g.dirty.has(i) {
			g.dirty.set(i)
			s.dirty.Add(1)
		}
		g.nUsed++
		s.nUsed++
		g.changed = true
		return nil
	})
}

// markUnused marks [id, id+n) as not reachable by the newest state. They are not avail yet.
func (s *space) markUnused(id Pgid, n uint64) error {
	return s.each(id, n, func(id Pgid, g *group, i uint64) error {
		if !g.used.has(i) {
			return s.bad(id, "freed, but the free map says that it is not in use")
		}
		g.used.clear(i)
		if g.dirty.has(i) {
			g.dirty.clear(i)
			s.dirty.Add(-1)
		}
		g.nUsed--
		s.nUsed--
		g.changed = true
		return nil
	})
}

// tail removes avail pages from the end and returns the new page count. It stops at the first page
// that is not avail, or whose group is not loaded.
func (s *space) tail() uint64 {
	for s.end > 2 {
		no := (s.end - 1) / s.perGroup
		g := s.groups[no]
		if !g.loaded {
			break
		}
		i := s.end - 1 - no*s.perGroup
		if !g.avail.has(i) {
			break
		}
		s.markAllocated(&s.avail, g, i)
		s.end--
	}
	return s.end
}
