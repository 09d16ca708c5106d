package pager

import (
	"errors"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/ebbkv/ebb/internal/vfs"
)

// All functions of this file need the writer lock.

// An AllocPolicy says how much of the reserve allocations may use, and which free pages they prefer.
// The zero value is for puts.
type AllocPolicy struct {
	Purpose Purpose
	Fit     Fit
	// MostReusable bounds the reusable pages in use, those of other transactions included.
	MostReusable uint64
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
	// FitLowest fills holes of any size from the low end: compaction must not move pages to the
	// end.
	FitLowest
	// FitTightest takes the shortest run that fits, to keep long runs for large values. It is slow.
	FitTightest
)

// allocate returns a free page, and grows the file if there is none. inMemory is as for
// space.nextPage.
func (p *Pager) allocate(how AllocPolicy, inMemory bool) (Pgid, error) {
	if err := p.prepareAlloc(1, how); err != nil {
		return 0, err
	}
	id, ok, err := p.space.nextPage(how, inMemory)
	if err != nil || ok {
		return id, err
	}
	return p.allocateAtEnd(how.Purpose)
}

// prepareAlloc ensures that n pages can be allocated, and that searches for them have this fit.
func (p *Pager) prepareAlloc(n uint64, how AllocPolicy) error {
	if err := p.reserve(n, min(n, p.space.free()), how.Purpose); err != nil {
		return err
	}
	if p.space.fit != how.Fit {
		p.space.fit = how.Fit
		p.space.rewind()
	}
	if how.Fit == FitRuns {
		return nil
	}
	return p.flushFreeLists()
}

// allocateAtEnd extends the file by one page. If the disk is full, or MaxBytes is reached, it fills a
// hole instead: a replay finds its free pages scattered between those that the log names, and has no
// more pages than the run had. Deletes exceed MaxBytes only if there is no hole.
func (p *Pager) allocateAtEnd(purpose Purpose) (id Pgid, err error) {
	pastBound := p.reserved.bound > 0 && int64(p.space.end+1)*int64(p.pageSize) > p.reserved.bound
	if !pastBound {
		err = p.reserve(1, 0, purpose)
	}
	if pastBound || NoSpace(err) {
		if id, ok, bad := p.space.allocateFromHole(); ok || bad != nil {
			return id, bad
		}
		err = p.reserve(1, 0, purpose)
	}
	if err != nil {
		return 0, err
	}
	if id, err = p.space.grow(1); err != nil {
		return 0, err
	}
	p.end.Store(p.space.end)
	return id, nil
}

// NoSpace says that an error is that of a full disk, or of MaxBytes.
func NoSpace(err error) bool { return errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, ErrNoSpace) }

// New returns a page with undefined content, owned by the transaction with this serial.
func (p *Pager) New(owner uint64, how AllocPolicy) (Pgid, []byte, error) {
	id, err := p.allocate(how, true)
	if err != nil {
		return 0, nil, err
	}
	s := p.table.slot(id)
	f := s.dirty
	if f == nil {
		if f, err = p.arena.alloc(); err != nil {
			p.space.framedFree = append(p.space.framedFree, id)
			return 0, nil, err
		}
		atomic.StorePointer(&s.dirty, f)
	}
	s.owner = owner
	return id, unsafe.Slice((*byte)(f), p.pageSize), nil
}

// Reuse reallocates a page that the open transaction has freed, with undefined content.
func (p *Pager) Reuse(id Pgid, owner uint64) ([]byte, error) {
	s := p.table.slot(id)
	if s.dirty == nil {
		f, err := p.arena.alloc()
		if err != nil {
			return nil, err
		}
		p.forget(id, s)
		atomic.StorePointer(&s.dirty, f)
	}
	s.owner = owner
	return unsafe.Slice((*byte)(s.dirty), p.pageSize), nil
}

// Owner is the serial of the transaction that allocated the page; 0 if the page is older than the
// session.
func (p *Pager) Owner(id Pgid) uint64 {
	if s := p.table.peek(id); s != nil {
		return s.owner
	}
	return 0
}

// SetOwner sets the serial that owns a page of the open transaction; 0 if the page is no longer in
// use.
func (p *Pager) SetOwner(id Pgid, owner uint64) { p.table.slot(id).owner = owner }

// Frame returns a page's frame for its owner to change in place. A spilled page gets a new frame.
func (p *Pager) Frame(ref Ref, base Epoch) ([]byte, error) {
	s := p.table.slot(ref.Pgid)
	if s.dirty != nil {
		return unsafe.Slice((*byte)(s.dirty), p.pageSize), nil
	}
	old, err := p.Page(ref, base)
	if err != nil {
		return nil, err
	}
	f, err := p.arena.alloc()
	if err != nil {
		return nil, err
	}
	b := unsafe.Slice((*byte)(f), p.pageSize)
	copy(b, old)
	p.forget(ref.Pgid, s)
	atomic.StorePointer(&s.dirty, f)
	return b, nil
}

// unwritten reports whether the file may lack a page: the page has a frame or a delta.
func (p *Pager) unwritten(id Pgid) bool {
	s := p.table.peek(id)
	return s != nil && (atomic.LoadPointer(&s.dirty) != nil || atomic.LoadPointer(&s.delta) != nil)
}

// Written reports whether the file holds a page: it was spilled, written in a leaf run, or is older
// than the last checkpoint.
func (p *Pager) Written(id Pgid) bool { return !p.unwritten(id) }

// InFrame reports whether a page has a frame.
func (p *Pager) InFrame(id Pgid) bool {
	s := p.table.peek(id)
	return s != nil && s.dirty != nil
}

// InFrames returns the pages of a capture that have a frame. It takes no lock.
func (p *Pager) InFrames(ids []Pgid) (framed []Pgid) {
	for _, id := range ids {
		if s := p.table.peek(id); s != nil && atomic.LoadPointer(&s.dirty) != nil {
			framed = append(framed, id)
		}
	}
	return framed
}

// Unused returns an extent, or a single page, that the open transaction allocated and that no
// committed state reached. A single page keeps its frame for the next allocation.
func (p *Pager) Unused(id Pgid, n uint64) error {
	for i := Pgid(1); i < Pgid(n); i++ {
		if s := p.table.peek(id + i); s != nil {
			s.owner = 0
			p.forget(id+i, s)
			p.freeFrame(s)
		} else {
			p.forgetRead(id + i)
		}
	}
	s := p.table.slot(id)
	s.owner = 0
	p.forget(id, s)
	if n == 1 && s.dirty != nil && len(p.space.framedFree) < maxFramedFree {
		p.space.framedFree = append(p.space.framedFree, id)
		return nil
	}
	p.freeFrame(s)
	if n == 1 {
		p.space.unframedFree = append(p.space.unframedFree, id)
		return nil
	}
	return p.space.setAvail(id, n)
}

// maxFramedFree bounds the framed free list; the frames of further pages return to the arena.
const maxFramedFree = 1024

func (p *Pager) freeFrame(s *slot) {
	if f := s.dirty; f != nil {
		atomic.StorePointer(&s.dirty, nil)
		p.arena.release(f)
	}
}

// Commit marks pages of a committed transaction as used by the newest state.
func (p *Pager) Commit(id Pgid, n uint64) error {
	return p.space.markUsed(id, n, n == 1 && p.unwritten(id))
}

// Freed marks pages as no longer used by the newest state. They stay readable until Release.
func (p *Pager) Freed(id Pgid, n uint64) error { return p.space.markUnused(id, n) }

// TryFree clears the used bits of pages until UndoFree, to find double frees before a commit: if
// one of the pages is not in use, that is corruption, and no bit stays cleared. Touch has succeeded
// for these pages. Writer lock.
func (p *Pager) TryFree(id Pgid, n uint64) error {
	for i := range n {
		g, at, err := p.space.at(id + Pgid(i))
		if err == nil && g.used[at/64]&(1<<(at%64)) == 0 {
			err = p.corrupt(id+Pgid(i), "freed twice, or the free map says that it is not in use")
		}
		if err != nil {
			p.UndoFree(id, i)
			return err
		}
		g.used[at/64] &^= 1 << (at % 64)
	}
	return nil
}

// UndoFree undoes TryFree.
func (p *Pager) UndoFree(id Pgid, n uint64) {
	for i := range n {
		if g, at, err := p.space.at(id + Pgid(i)); err == nil {
			g.used[at/64] |= 1 << (at % 64)
		}
	}
}

// Touch loads the free map groups of pages, so that Freed and Release cannot fail on a read. It
// also checks the page numbers, which may come from a page that was not read: no other check
// precedes their use.
func (p *Pager) Touch(id Pgid, n uint64) error {
	if end := p.space.end; id < 2 || uint64(id) >= end || n > end-uint64(id) || n == 0 {
		return p.corrupt(id, "%d pages freed in a file of %d pages", n, end)
	}
	for no := uint64(id) / p.space.perGroup; no <= (uint64(id)+n-1)/p.space.perGroup; no++ {
		if _, _, err := p.space.at(Pgid(max(no*p.space.perGroup, uint64(id)))); err != nil {
			return err
		}
	}
	return nil
}

// GroupOf returns the range of pages, up to the end of the file, that a Touch of one of them
// covers.
func (p *Pager) GroupOf(id Pgid) (from, to Pgid) {
	from = Pgid(uint64(id) / p.space.perGroup * p.space.perGroup)
	return max(from, 2), min(from+Pgid(p.space.perGroup), Pgid(p.space.end))
}

// Release makes freed pages available: no durable state and no snapshot reaches them, or only the
// last durable state does and OfferReusable has marked them.
func (p *Pager) Release(id Pgid, n uint64) error {
	if s := p.table.peek(id); s != nil {
		s.owner = 0
		p.forget(id, s)
		p.freeFrame(s)
	} else {
		p.forgetRead(id)
	}
	return p.space.setAvail(id, n)
}

// ReleaseFrame frees the frame of a page that the file holds, if owner still owns the page.
func (p *Pager) ReleaseFrame(id Pgid, owner uint64) {
	if s := p.table.peek(id); s != nil && s.owner == owner {
		p.markTrusted(id)
		p.freeFrame(s)
	}
}

// Frames are frames that belong to no page any more.
type Frames []unsafe.Pointer

// TakeFrames detaches the frames of pages that a checkpoint has written: later reads of these pages
// go to the file. Earlier readers may still use the frames.
func (p *Pager) TakeFrames(ids []Pgid) Frames {
	frames := make(Frames, 0, len(ids))
	for _, id := range ids {
		if s := p.table.peek(id); s != nil && s.dirty != nil {
			p.markTrusted(id)
			frames = append(frames, s.dirty)
			atomic.StorePointer(&s.dirty, nil)
		}
	}
	return frames
}

// ReturnFrames frees detached frames once no reader uses them.
func (p *Pager) ReturnFrames(frames Frames) {
	for _, f := range frames {
		p.arena.release(f)
	}
}

// flushFreeLists moves the pages of the free lists to the free map.
func (p *Pager) flushFreeLists() error {
	for _, id := range p.space.framedFree {
		p.freeFrame(p.table.slot(id))
		if err := p.space.setAvail(id, 1); err != nil {
			return err
		}
	}
	p.space.framedFree = p.space.framedFree[:0]
	return p.space.flushUnframed()
}

// dirtyPages returns the pages of the newest state that the file does not hold, in order, and
// clears the list.
func (p *Pager) dirtyPages() []Pgid {
	var out []Pgid
	for no, g := range p.space.groups {
		if !g.loaded {
			continue
		}
		for i, w := range g.dirty {
			for w != 0 {
				out = append(out, Pgid(uint64(no)*p.space.perGroup+uint64(i*64+bits.TrailingZeros64(w))))
				w &= w - 1
			}
			g.dirty[i] = 0
		}
	}
	p.space.dirty.Store(0)
	return out
}
