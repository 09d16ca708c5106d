package pager

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// A slot is what memory knows of one page number. Slots exist only for pages that were born or read
// into memory since the file was opened.
//
// What changing a page looks at comes first: see Ask.
type slot struct {
	// dirty is the frame of a page that the file does not hold yet, or held only since the last
	// checkpoint: set and cleared under the writer lock, read by anyone. The frame is recycled when
	// no snapshot can reach the page there.
	dirty unsafe.Pointer
	// delta is what a page has instead of a frame: see patches. Set under the writer lock, and
	// cleared there or by the checkpoint that has written the page; read by anyone.
	delta unsafe.Pointer
	// owner is the serial of the transaction (or savepoint) in which the page was born; 0 if before
	// the file was opened or given back since. Guarded by the writer lock.
	owner uint64
	// changed is the serial of the transaction that changed the page in place last: older versions
	// find it as it was in the undo.
	changed atomic.Uint64
}

// A cleanSlot is a page as read from a file that cannot be mapped.
type cleanSlot struct {
	// page is memory of the Go heap, so that dropping it here is enough. Set and cleared by
	// compare-and-swap.
	page unsafe.Pointer
	// hot is set by reads and cleared by the CLOCK hand.
	hot atomic.Bool
}

// slotHotBytes is the size of the fields of a slot up to changed, in bytes.
const slotHotBytes = unsafe.Offsetof(slot{}.changed) + unsafe.Sizeof(slot{}.changed)

const (
	tableShift = 10
	tableChunk = 1 << tableShift
)

// pageTable finds the slot of a page number in two loads. Chunks never move.
type pageTable[S any] struct {
	dir atomic.Pointer[[]atomic.Pointer[[tableChunk]S]]
	mu  sync.Mutex // growth
}

// peek returns the slot of id, or nil if there is none.
func (t *pageTable[S]) peek(id Pgid) *S {
	dir := t.dir.Load()
	i := uint64(id) >> tableShift
	if dir == nil || i >= uint64(len(*dir)) {
		return nil
	}
	c := (*dir)[i].Load()
	if c == nil {
		return nil
	}
	return &c[uint64(id)%tableChunk]
}

// slot returns the slot of id, making it if need be. The caller has checked id against the page
// count.
func (t *pageTable[S]) slot(id Pgid) *S {
	if s := t.peek(id); s != nil {
		return s
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	i := int(uint64(id) >> tableShift)
	dir := t.dir.Load()
	if dir == nil || i >= len(*dir) {
		bigger := make([]atomic.Pointer[[tableChunk]S], max(2*i, 16))
		if dir != nil {
			for k := range *dir {
				bigger[k].Store((*dir)[k].Load())
			}
		}
		t.dir.Store(&bigger)
		dir = &bigger
	}
	if (*dir)[i].Load() == nil {
		(*dir)[i].Store(new([tableChunk]S))
	}
	return &(*dir)[i].Load()[uint64(id)%tableChunk]
}

// pageSet is a set of page numbers for concurrent use: pages that were verified since the file was
// opened.
type pageSet struct {
	dir atomic.Pointer[[]atomic.Pointer[[bitChunk / 32]atomic.Uint32]]
	mu  sync.Mutex // growth
}

const (
	bitShift = 15
	bitChunk = 1 << bitShift
)

func (b *pageSet) has(id Pgid) bool {
	dir := b.dir.Load()
	i := uint64(id) >> bitShift
	if dir == nil || i >= uint64(len(*dir)) {
		return false
	}
	c := (*dir)[i].Load()
	return c != nil && c[uint64(id)%bitChunk/32].Load()&(1<<(id%32)) != 0
}

func (b *pageSet) add(id Pgid) {
	i := int(uint64(id) >> bitShift)
	dir := b.dir.Load()
	if dir == nil || i >= len(*dir) || (*dir)[i].Load() == nil {
		dir = b.grow(i)
	}
	(*dir)[i].Load()[uint64(id)%bitChunk/32].Or(1 << (id % 32))
}

func (b *pageSet) remove(id Pgid) {
	if b.has(id) {
		(*b.dir.Load())[uint64(id)>>bitShift].Load()[uint64(id)%bitChunk/32].And(^uint32(1 << (id % 32)))
	}
}

// clear removes all that were there before it was called.
func (b *pageSet) clear() {
	dir := b.dir.Load()
	if dir == nil {
		return
	}
	for i := range *dir {
		if c := (*dir)[i].Load(); c != nil {
			for k := range c {
				c[k].Store(0)
			}
		}
	}
}

func (b *pageSet) grow(i int) *[]atomic.Pointer[[bitChunk / 32]atomic.Uint32] {
	b.mu.Lock()
	defer b.mu.Unlock()
	dir := b.dir.Load()
	if dir == nil || i >= len(*dir) {
		bigger := make([]atomic.Pointer[[bitChunk / 32]atomic.Uint32], max(2*i, 4))
		if dir != nil {
			for k := range *dir {
				bigger[k].Store((*dir)[k].Load())
			}
		}
		b.dir.Store(&bigger)
		dir = &bigger
	}
	if (*dir)[i].Load() == nil {
		(*dir)[i].Store(new([bitChunk / 32]atomic.Uint32))
	}
	return dir
}
