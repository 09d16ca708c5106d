package pager

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// cache bounds the pages read from a file that cannot be mapped: a CLOCK over the slots that hold
// one. The pages are memory of the Go heap, so a reader of an evicted page keeps it alive.
type cache struct {
	bound int64 // pages
	pages pageTable[cleanSlot]

	mu   sync.Mutex // guards the fields below
	ring []Pgid
	next int // position in ring
}

// cached returns a page of an unmapped file. If two readers read a page at the same time, one of
// the copies stays.
func (r *Reader) cached(ref Ref) ([]byte, error) {
	s := r.cache.pages.slot(ref.Pgid)
	if c := atomic.LoadPointer(&s.page); c != nil {
		b := unsafe.Slice((*byte)(c), r.pageSize)
		if epochOf(b) != ref.Epoch {
			return nil, r.otherEpoch(ref, b)
		}
		s.hot.Store(true)
		return b, nil
	}
	b := make([]byte, r.pageSize)
	if err := r.read(ref.Pgid, b); err != nil {
		return nil, err
	}
	if err := r.verify(ref, b); err != nil {
		return nil, err
	}
	if atomic.CompareAndSwapPointer(&s.page, nil, unsafe.Pointer(unsafe.SliceData(b))) {
		r.cache.add(ref.Pgid)
	}
	return b, nil
}

// add adds a page to the ring. If the ring is full, it evicts the next page that was not used since
// the last pass.
func (c *cache) add(id Pgid) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int64(len(c.ring)) < c.bound {
		c.ring = append(c.ring, id)
		return
	}
	for {
		c.next = (c.next + 1) % len(c.ring)
		s := c.pages.slot(c.ring[c.next])
		if s.hot.Swap(false) && atomic.LoadPointer(&s.page) != nil {
			continue
		}
		atomic.StorePointer(&s.page, nil)
		c.ring[c.next] = id
		return
	}
}

// forget drops a page whose number is reused. The next pass over the ring reuses its position.
func (r *Reader) forget(id Pgid) {
	r.pool.dropDelta(id)
	if c := r.cache.pages.peek(id); c != nil {
		atomic.StorePointer(&c.page, nil)
	}
	r.verified.remove(id)
	r.accessed.remove(id)
}

// drop drops all that memory has of a page number that no transaction owns any more.
func (r *Reader) drop(id Pgid) {
	r.forget(id)
	if s := r.pool.table.peek(id); s != nil {
		s.owner = 0
		r.pool.freeFrame(s)
	}
}
