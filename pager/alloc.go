package pager

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/ebbkv/ebb/internal/vfs"
)

// Everything in this file belongs to the holder of the writer lock.

// allocate gets the number of a free page, growing the file if there is none. inMemory is as for
// space.nextPage.
func (p *Pager) allocate(inMemory bool) (Pgid, error) {
	if err := p.keep(1); err != nil {
		return 0, err
	}
	id, ok, err := p.space.nextPage(inMemory)
	if err != nil || ok {
		return id, err
	}
	return p.allocateAtEnd()
}

// allocateAtEnd gets a page behind the last one, or, where there is no room for one, one of the
// holes that are left alone else: a replay finds its free pages scattered between those that the
// log names, and has to do with what the run had.
func (p *Pager) allocateAtEnd() (id Pgid, err error) {
	if err = p.ensureFileSpace(1); err != nil {
		if NoSpace(err) {
			if id, ok, bad := p.space.allocateFromHole(); ok || bad != nil {
				return id, bad
			}
		}
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

// SpaceError says that a bound on the main file is met, not the disk's: that of the format, or
// Options.MaxBytes. It is ErrNoSpace.
type SpaceError struct {
	Missing uint64 // pages
	text    string
}

func (e *SpaceError) Error() string        { return e.text }
func (e *SpaceError) Is(target error) bool { return target == ErrNoSpace }

// SetMaxBytes says how much of MaxBytes the main file may have.
func (p *Pager) SetMaxBytes(n int64) { p.bound = max(n, 1) }

// Overdraft says whether pages may come from the slack, and past MaxBytes, from now on: what frees
// space must be able to go on. It returns what was said before.
func (p *Pager) Overdraft(on bool) (was bool) {
	was, p.overdraft = p.overdraft, on
	return was
}

// Capturing says whether a checkpoint is being captured from now on: it may have all of the slack.
// It returns what was said before.
func (p *Pager) Capturing(on bool) (was bool) {
	was, p.capturing = p.capturing, on
	return was
}

// Pack says that holes of any size are filled from now on, from the low end, and before pages that
// were free a moment ago, which may be anywhere.
func (p *Pager) Pack() error {
	p.space.packing = true
	p.space.rewind()
	return p.flushFramed()
}

// Tight says whether long runs of free pages are left whole for large values, as far as that is
// possible, from now on. It takes time.
func (p *Pager) Tight(on bool) error {
	p.space.tight = on
	p.space.rewind()
	return p.flushFramed()
}

// EndPack says that pages go to runs again.
func (p *Pager) EndPack() {
	p.space.packing = false
	p.space.rewind()
}

// New returns a page with unknown content, owned by the transaction with this serial.
func (p *Pager) New(owner uint64) (Pgid, []byte, error) {
	id, err := p.allocate(true)
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

// Reuse gives a page that the open transaction has freed a new life under owner.
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

// Owner is the serial under which a page was born; 0 if that was before the file was opened.
func (p *Pager) Owner(id Pgid) uint64 {
	if s := p.table.peek(id); s != nil {
		return s.owner
	}
	return 0
}

// SetOwner changes the serial that a page of the open transaction belongs to; 0: it is no longer in
// use.
func (p *Pager) SetOwner(id Pgid, owner uint64) { p.table.slot(id).owner = owner }

// Frame returns a page's frame for its owner to change in place. A page that was written early gets
// a frame again.
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

// unwritten says whether the file may not hold a page yet: it has a frame, or a patch.
func (p *Pager) unwritten(id Pgid) bool {
	s := p.table.peek(id)
	return s != nil && (atomic.LoadPointer(&s.dirty) != nil || atomic.LoadPointer(&s.delta) != nil)
}

// Written says whether the file holds a page: it was written early, or laid, or a checkpoint has
// come since it was born.
func (p *Pager) Written(id Pgid) bool { return !p.unwritten(id) }

// InFrame says whether a page has a frame.
func (p *Pager) InFrame(id Pgid) bool {
	s := p.table.peek(id)
	return s != nil && s.dirty != nil
}

// InFrames lists those of the pages of a capture that have a frame. No lock is needed.
func (p *Pager) InFrames(ids []Pgid) (framed []Pgid) {
	for _, id := range ids {
		if s := p.table.peek(id); s != nil && atomic.LoadPointer(&s.dirty) != nil {
			framed = append(framed, id)
		}
	}
	return framed
}

func (p *Pager) writeAt(b []byte, off int64) error {
	if err := vfs.WriteFull(p.file, b, off); err != nil {
		return fmt.Errorf("write %s at %d: %w", p.name, off, err)
	}
	return nil
}

// Unused takes back pages that an open transaction took and no committed state ever reached, of an
// extent or one by one. A single page keeps its frame for whoever takes it next.
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

// maxFramedFree bounds the hot stack: beyond it, frames are better given back.
const maxFramedFree = 1024

func (p *Pager) freeFrame(s *slot) {
	if f := s.dirty; f != nil {
		atomic.StorePointer(&s.dirty, nil)
		p.arena.release(f)
	}
}

// Commit counts pages that a transaction took as in use by the newest state.
func (p *Pager) Commit(id Pgid, n uint64) error {
	return p.space.markUsed(id, n, n == 1 && p.unwritten(id))
}

// Freed counts pages as no longer in use by the newest state. They stay readable until Release.
func (p *Pager) Freed(id Pgid, n uint64) error { return p.space.markUnused(id, n) }

// TryFree takes pages out of those that the newest state reaches until Restore, to find what would
// be freed twice: what is not among them is damage, and nothing is struck. Touch has been called
// for them. Writer lock.
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

// UndoFree undoes Strike.
func (p *Pager) UndoFree(id Pgid, n uint64) {
	for i := range n {
		if g, at, err := p.space.at(id + Pgid(i)); err == nil {
			g.used[at/64] |= 1 << (at % 64)
		}
	}
}

// Touch makes sure that Freed and Release of these pages cannot fail for reading the free map. The
// number may come from a page that was not read: no other check stands between it and the free map.
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

// GroupOf is the range of pages, up to the end of the file, that Touch of one of them has made sure
// of.
func (p *Pager) GroupOf(id Pgid) (from, to Pgid) {
	from = Pgid(uint64(id) / p.space.perGroup * p.space.perGroup)
	return max(from, 2), min(from+Pgid(p.space.perGroup), Pgid(p.space.end))
}

// Release makes freed pages available: no durable state and no snapshot reaches them any more, or
// only the last durable state does and they are Promised.
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

// ReleaseFrame gives back the frame of a page that the file holds, if the page is still the one
// born under owner.
func (p *Pager) ReleaseFrame(id Pgid, owner uint64) {
	if s := p.table.peek(id); s != nil && s.owner == owner {
		p.markTrusted(id)
		p.freeFrame(s)
	}
}

// Frames are frames that no page has any more.
type Frames []unsafe.Pointer

// TakeFrames takes their frames away from pages that a checkpoint has written: who asks for one of
// these pages from now on reads the file. Who has asked before may still be looking at the frame.
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

// ReturnFrames gives frames back that were taken away and that nobody looks at any more.
func (p *Pager) ReturnFrames(frames Frames) {
	for _, f := range frames {
		p.arena.release(f)
	}
}

// flushFramed makes the pages on the hot stack ordinary free ones.
func (p *Pager) flushFramed() error {
	for _, id := range p.space.framedFree {
		p.freeFrame(p.table.slot(id))
		if err := p.space.setAvail(id, 1); err != nil {
			return err
		}
	}
	p.space.framedFree = p.space.framedFree[:0]
	return p.space.flushUnframed()
}

// dirtyPages lists the pages of the newest state that the file does not hold, in order, and starts
// a new list.
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
