package pager

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebbkv/ebb/internal/offheap"
)

// arena hands out frames: memory of one page each, cut from slabs outside the Go heap. Freed frames are used again,
// the last one first, because it is the one still in the processor's cache. Slabs go back when the arena is closed.
type arena struct {
	pageSize int

	mu    sync.Mutex // guards the fields below
	free  []unsafe.Pointer
	slabs [][]byte
	rest  []byte // of the newest slab, not yet cut
	inUse atomic.Int64
}

// Slabs start small, so that a small store costs little, and double up to a bound that huge pages can serve.
const (
	firstSlab = 256 << 10
	lastSlab  = 16 << 20
)

// alloc returns a frame with unknown content.
func (a *arena) alloc() (unsafe.Pointer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.free); n > 0 {
		f := a.free[n-1]
		a.free = a.free[:n-1]
		a.inUse.Add(1)
		return f, nil
	}
	if len(a.rest) < a.pageSize {
		size := firstSlab
		if n := len(a.slabs); n > 0 {
			size = min(2*len(a.slabs[n-1]), lastSlab)
		}
		slab, err := offheap.Alloc(max(size, 4*a.pageSize))
		if err != nil {
			return nil, fmt.Errorf("memory for page frames: %w", err)
		}
		a.slabs = append(a.slabs, slab)
		a.rest = slab
	}
	f := unsafe.Pointer(unsafe.SliceData(a.rest))
	a.rest = a.rest[a.pageSize:]
	a.inUse.Add(1)
	return f, nil
}

// release takes a frame back. Nobody may read it any more.
func (a *arena) release(f unsafe.Pointer) {
	a.mu.Lock()
	a.free = append(a.free, f)
	a.mu.Unlock()
	a.inUse.Add(-1)
}

// bytes is the memory of frames in use.
func (a *arena) bytes() int64 { return a.inUse.Load() * int64(a.pageSize) }

func (a *arena) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.slabs {
		_ = offheap.Free(s) // nothing to do about a refusal at this point
	}
	a.slabs, a.free, a.rest = nil, nil, nil
}
