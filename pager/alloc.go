package pager

import (
	"errors"
	"math/bits"
	"unsafe"

	"github.com/ebbkv/ebb/internal/vfs"
)

// Allocator allocates and frees the numbers of pages, and keeps space in reserve. The caller's
// writer lock guards all of it; functions that take no lock say so.
type Allocator struct {
	*mainFile
	pool     *BufferPool
	space    *space
	dirs     []Ref // used free directory pages: level 0, then the root if there is one
	Growth   fileGrowth
	reserved reservation
	Holes    holes
}

// An AllocPolicy says how much of the reserve allocations may use, and which free pages they prefer.
// The zero value is for puts.
type AllocPolicy struct {
	Purpose Purpose
	Fit     Fit
	// MostReusable bounds the reusable pages in use, those of other transactions included.
	MostReusable uint64
	// Below is the page below which an extent has to lie, see ErrNoneBelow; 0: none.
	Below Pgid
}

// Purpose is what allocated pages are for: see reservation.
type Purpose uint8

const (
	ForPut        Purpose = iota // leaves all of the reserve
	ForDelete                    // leaves the part for a checkpoint, and may exceed MaxBytes
	ForCheckpoint                // leaves nothing, and may exceed MaxBytes
)

// Fit is a preference among free pages.
type Fit uint8

const (
	// FitRuns prefers recently freed pages, then long runs, so that pages are written in order.
	FitRuns Fit = iota
	// FitLowest fills fragments of any size from the low end: compaction must not move pages to the
	// end.
	FitLowest
	// FitTightest takes the shortest run that fits, to keep long runs for large values. It is slow.
	FitTightest
)

// allocate returns a free page, and grows the file if there is none. inMemory is as for
// space.nextPage.
func (a *Allocator) allocate(how AllocPolicy, inMemory bool) (Pgid, error) {
	if err := a.prepareAlloc(1, how); err != nil {
		return 0, err
	}
	for again := true; ; again = false {
		id, ok, err := a.space.nextPage(how, inMemory)
		if err != nil || ok {
			return id, err
		}
		filled, err := a.Holes.fill(1)
		if err != nil {
			return 0, err
		}
		if filled == 0 || !again {
			break
		}
	}
	return a.allocateAtEnd(how.Purpose)
}

// prepareAlloc ensures that n pages can be allocated, and that searches for them have this fit.
func (a *Allocator) prepareAlloc(n uint64, how AllocPolicy) error {
	if err := a.Holes.fillReserve(n); err != nil {
		return err
	}
	if err := a.reserve(n, false, how.Purpose); err != nil {
		return err
	}
	if a.space.fit != how.Fit {
		a.space.fit = how.Fit
		a.space.rewind()
	}
	if how.Fit != FitRuns {
		if err := a.flushFreeLists(); err != nil {
			return err
		}
	}
	if how.Fit == FitLowest || a.space.ceiling.Load() > 0 {
		return a.Holes.fillLowest()
	}
	return nil
}

// allocateAtEnd extends the file by one page. If the disk is full, or MaxBytes is reached, it fills a
// fragment instead: a replay finds its free pages scattered between those that the log names, and has no
// more pages than the run had. Deletes exceed MaxBytes only if there is no fragment.
func (a *Allocator) allocateAtEnd(purpose Purpose) (id Pgid, err error) {
	pastBound := a.Growth.bound > 0 && int64(a.space.end+1)*int64(a.pageSize) > a.Growth.bound
	if !pastBound {
		err = a.reserve(1, true, purpose)
	}
	if pastBound || NoSpace(err) {
		if id, ok, bad := a.space.allocateFromFragment(); ok || bad != nil {
			return id, bad
		}
		err = a.reserve(1, true, purpose)
	}
	if err != nil {
		return 0, err
	}
	if id, err = a.space.grow(1); err != nil {
		return 0, err
	}
	a.end.Store(a.space.end)
	return id, nil
}

// allocateExtent allocates n contiguous pages, and grows the file if necessary.
func (a *Allocator) allocateExtent(n uint64, how AllocPolicy) (id Pgid, err error) {
	if how.Below > 0 && a.space.free()+a.space.holes.n < n {
		return 0, ErrNoneBelow
	}
	if n == 1 && how.Below == 0 {
		return a.allocate(how, false)
	}
	if err := a.prepareAlloc(n, how); err != nil {
		return 0, err
	}
	search, below := func() (Pgid, bool, error) { return a.space.extent(n) }, a.space.end
	if how.Below > 0 {
		below = uint64(how.Below)
		search = func() (Pgid, bool, error) { return a.space.extentBelow(n, below) }
	}
	id, ok, err := search()
	if !ok && err == nil {
		if ok, err = a.Holes.fillExtent(n, below); ok {
			id, ok, err = search()
		}
	}
	switch {
	case ok || err != nil:
		return id, err
	case how.Below > 0:
		return 0, ErrNoneBelow
	}
	if err := a.reserve(a.space.gap(n)+n, true, how.Purpose); err != nil {
		return 0, err
	}
	if id, err = a.space.growExtent(n); err != nil {
		return 0, err
	}
	a.end.Store(a.space.end)
	return id, nil
}

// NoSpace says that an error is that of a full disk, or of MaxBytes.
func NoSpace(err error) bool { return errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, ErrNoSpace) }

// New returns a page with undefined content, owned by the transaction with this serial.
func (p *Pager) New(owner uint64, how AllocPolicy) (Pgid, []byte, error) {
	id, err := p.Alloc.allocate(how, true)
	if err != nil {
		return 0, nil, err
	}
	s := p.Pool.table.slot(id)
	b, err := p.Pool.frame(s)
	if err != nil {
		p.Alloc.space.framedFree = append(p.Alloc.space.framedFree, id)
		return 0, nil, err
	}
	s.owner = owner
	return id, b, nil
}

// Reuse reallocates a page that the open transaction has freed, with undefined content.
func (p *Pager) Reuse(id Pgid, owner uint64) ([]byte, error) {
	s := p.Pool.table.slot(id)
	if s.dirty == nil {
		p.Reader.forget(id)
	}
	s.owner = owner
	return p.Pool.frame(s)
}

// Frame returns a page's frame for its owner to change in place. A spilled page gets a new frame.
func (p *Pager) Frame(ref Ref, v View) ([]byte, error) {
	s := p.Pool.table.slot(ref.Pgid)
	if s.dirty != nil {
		return unsafe.Slice((*byte)(s.dirty), p.pageSize), nil
	}
	old, err := v.Page(ref)
	if err != nil {
		return nil, err
	}
	b, err := p.Pool.frame(s)
	if err == nil {
		copy(b, old)
		p.Reader.forget(ref.Pgid)
	}
	return b, err
}

// Unused returns an extent, or a single page, that the open transaction allocated and that no
// committed state reached. A single page keeps its frame for the next allocation.
func (p *Pager) Unused(id Pgid, n uint64) error {
	for i := Pgid(1); i < Pgid(n); i++ {
		p.Reader.drop(id + i)
	}
	s := p.Pool.table.slot(id)
	s.owner = 0
	p.Reader.forget(id)
	keeps := n == 1 && p.Alloc.space.keeps(id)
	if keeps && s.dirty != nil && len(p.Alloc.space.framedFree) < maxFramedFree {
		p.Alloc.space.framedFree = append(p.Alloc.space.framedFree, id)
		return nil
	}
	p.Pool.freeFrame(s)
	if keeps {
		p.Alloc.space.unframedFree = append(p.Alloc.space.unframedFree, id)
		return nil
	}
	return p.Alloc.space.setAgain(id, n)
}

// maxFramedFree bounds the framed free list; the frames of further pages return to the arena.
const maxFramedFree = 1024

// Commit marks pages of a committed transaction as used by the newest state.
func (p *Pager) Commit(id Pgid, n uint64) error {
	return p.Alloc.space.markUsed(id, n, n == 1 && p.Pool.unwritten(id))
}

// Freed marks pages as no longer used by the newest state. They stay readable until Release.
func (a *Allocator) Freed(id Pgid, n uint64) error { return a.space.markUnused(id, n) }

// TryFree clears the used bits of pages until UndoFree, to find double frees before a commit: if
// one of the pages is not in use, that is corruption, and no bit stays cleared. Touch has succeeded
// for these pages. Writer lock.
func (a *Allocator) TryFree(id Pgid, n uint64) error {
	for i := range n {
		g, at, err := a.space.at(id + Pgid(i))
		if err == nil && !g.used.has(at) {
			err = a.corrupt(id+Pgid(i), "freed twice, or the free map says that it is not in use")
		}
		if err != nil {
			a.UndoFree(id, i)
			return err
		}
		g.used.clear(at)
	}
	return nil
}

// UndoFree undoes TryFree.
func (a *Allocator) UndoFree(id Pgid, n uint64) {
	for i := range n {
		if g, at, err := a.space.at(id + Pgid(i)); err == nil {
			g.used.set(at)
		}
	}
}

// Touch loads the free map groups of pages, so that Freed and Release cannot fail on a read. It
// also checks the page numbers, which may come from a page that was not read: no other check
// precedes their use.
func (a *Allocator) Touch(id Pgid, n uint64) error {
	if end := a.space.end; id < 2 || uint64(id) >= end || n > end-uint64(id) || n == 0 {
		return a.corrupt(id, "%d pages freed in a file of %d pages", n, end)
	}
	for no := uint64(id) / a.space.perGroup; no <= (uint64(id)+n-1)/a.space.perGroup; no++ {
		if _, _, err := a.space.at(Pgid(max(no*a.space.perGroup, uint64(id)))); err != nil {
			return err
		}
	}
	return nil
}

// GroupOf returns the range of pages, up to the end of the file, that a Touch of one of them
// covers.
func (a *Allocator) GroupOf(id Pgid) (from, to Pgid) {
	from = Pgid(uint64(id) / a.space.perGroup * a.space.perGroup)
	return max(from, 2), min(from+Pgid(a.space.perGroup), Pgid(a.space.end))
}

// Release makes freed pages available: no durable state and no snapshot reaches them, or only the
// last durable state does and OfferReusable has marked them.
func (p *Pager) Release(id Pgid, n uint64) error {
	p.Reader.drop(id)
	return p.Alloc.space.setAvail(id, n)
}

// flushFreeLists moves the pages of the free lists to the free map.
func (a *Allocator) flushFreeLists() error {
	for _, id := range a.space.framedFree {
		a.pool.freeFrame(a.pool.table.slot(id))
		if err := a.space.setAgain(id, 1); err != nil {
			return err
		}
	}
	a.space.framedFree = a.space.framedFree[:0]
	return a.space.flushUnframed()
}

// dirtyPages returns the pages of the newest state that the file does not hold, in order, and
// clears the list.
func (a *Allocator) dirtyPages() []Pgid {
	var out []Pgid
	for no, g := range a.space.groups {
		if !g.loaded {
			continue
		}
		for i, w := range g.dirty {
			for w != 0 {
				out = append(out, Pgid(uint64(no)*a.space.perGroup+uint64(i*64+bits.TrailingZeros64(w))))
				w &= w - 1
			}
			g.dirty[i] = 0
		}
	}
	a.space.dirty.Store(0)
	return out
}

// DirtyBytes is the size of the pages that the next checkpoint would write.
func (a *Allocator) DirtyBytes() int64 { return a.space.dirty.Load() * int64(a.pageSize) }

// UsedPages is the number of pages that the newest committed state reaches. Writer lock.
func (a *Allocator) UsedPages() uint64 { return a.space.nUsed }

// Pages is the page count. Writer lock.
func (a *Allocator) Pages() uint64 { return a.space.end }

// FileBytes is the size of the main file. Writer lock.
func (a *Allocator) FileBytes() int64 { return a.Growth.length }

// DiskBytes is the room that the main file has on the disk. Writer lock.
func (a *Allocator) DiskBytes() int64 {
	if n, err := a.file.Allocated(); err == nil {
		return n
	}
	return a.FileBytes()
}

// Claim allocates the n pages from ref on to which a log record refers: they were written after the
// state of Start, to pages that are free in it. It precedes all other allocations.
func (a *Allocator) Claim(ref Ref, n uint64) error {
	pages := uint64(a.Growth.length) / uint64(a.pageSize)
	if ref.Pgid < 2 || uint64(ref.Pgid) >= pages || pages-uint64(ref.Pgid) < n {
		return a.corrupt(ref.Pgid, "the log names %d pages in a file of %d", n, pages)
	}
	until := uint64(ref.Pgid) + n
	if end := a.space.end; until > end {
		if _, err := a.space.grow(until - end); err != nil {
			return err
		}
		set := a.space.setAvail
		if a.space.sparse {
			set = a.space.setHole
			a.Growth.size = max(a.Growth.size, int64(until)*int64(a.pageSize))
		}
		if err := set(Pgid(end), until-end); err != nil {
			return err
		}
		a.end.Store(a.space.end)
	}
	pool := &a.space.avail
	if a.space.sparse { // its bytes are in the file, and so it has room
		pool = &a.space.holes
	}
	return a.space.each(ref.Pgid, n, func(id Pgid, g *group, i uint64) error {
		if !pool.of(g).has(i) {
			return a.corrupt(id, "the log names it as one of %d pages, but it is in use", n)
		}
		a.space.markAllocated(pool, g, i)
		return nil
	})
}
