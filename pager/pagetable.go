package pager

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebbkv/ebb/internal/offheap"
)

// A slot is the state in memory of one page number. Only pages that were allocated or read into
// memory since the file was opened have slots.
//
// The fields that an in-place change reads come first: see PrefetchSlot.
type slot struct {
	// dirty is the frame of a page that the file does not hold yet, or holds only since the last
	// checkpoint. It is set and cleared under the writer lock, and read without it. The frame is
	// recycled when no snapshot can reach the page there.
	dirty unsafe.Pointer
	// delta is the delta that a page has instead of a frame. It is set under the writer lock,
	// cleared there or by the checkpoint that has written the page, and read without a lock.
	delta unsafe.Pointer
	// owner is the serial of the transaction (or savepoint) that allocated the page; 0 if the page
	// is free or older than the session. Guarded by the writer lock.
	owner uint64
	// changed is the serial of the last transaction that changed the page in place: readers of
	// older versions get the page from the undo log.
	changed atomic.Uint64
}

// A cleanSlot holds a page that was read from a file that cannot be mapped.
type cleanSlot struct {
	// page is memory of the Go heap, so that clearing this pointer frees it. Set and cleared by
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

// pageTable maps a page number to its slot in two loads. Chunks never move.
type pageTable[S any] struct {
	dir atomic.Pointer[[]atomic.Pointer[[tableChunk]S]]
	mu  sync.Mutex // growth
	// offHeap says that chunks are in slabs: S has no pointers to the Go heap. There, a table would
	// take twice its size before each collection, which would go through all of it.
	offHeap bool
	slabs   [][]byte
}

// chunk returns a new chunk. Without memory for a slab it is in the Go heap.
func (t *pageTable[S]) chunk() *[tableChunk]S {
	if t.offHeap {
		if b, err := offheap.Alloc(int(unsafe.Sizeof([tableChunk]S{}))); err == nil {
			t.slabs = append(t.slabs, b)
			return (*[tableChunk]S)(unsafe.Pointer(unsafe.SliceData(b)))
		}
	}
	return new([tableChunk]S)
}

// close frees the slabs. The table is empty then.
func (t *pageTable[S]) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dir.Store(nil)
	for _, b := range t.slabs {
		_ = offheap.Free(b) // no recovery from an error here
	}
	t.slabs = nil
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

// slot returns the slot of id, and creates it if necessary. The caller has checked id against the
// page count.
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
		(*dir)[i].Store(t.chunk())
	}
	return &(*dir)[i].Load()[uint64(id)%tableChunk]
}

// all iterates over the slots of all chunks, in order.
func (t *pageTable[S]) all(yield func(i int, s *S) bool) {
	dir := t.dir.Load()
	for k := 0; dir != nil && k < len(*dir); k++ {
		if c := (*dir)[k].Load(); c != nil {
			for i := range c {
				if !yield(k<<tableShift+i, &c[i]) {
					return
				}
			}
		}
	}
}

// pageSet is a concurrent set of page numbers, 32 of them in a word.
type pageSet struct{ words pageTable[atomic.Uint32] }

func (b *pageSet) has(id Pgid) bool {
	dir, i := b.words.dir.Load(), uint64(id/32)>>tableShift // not peek: has is inlined
	if dir == nil || i >= uint64(len(*dir)) {
		return false
	}
	c := (*dir)[i].Load()
	return c != nil && c[uint64(id/32)%tableChunk].Load()&(1<<(id%32)) != 0
}

func (b *pageSet) add(id Pgid) { b.words.slot(id / 32).Or(1 << (id % 32)) }

func (b *pageSet) remove(id Pgid) {
	if b.has(id) {
		b.words.peek(id / 32).And(^uint32(1 << (id % 32)))
	}
}

// clear removes all numbers that were added before the call.
func (b *pageSet) clear() {
	for _, w := range b.words.all {
		w.Store(0)
	}
}
