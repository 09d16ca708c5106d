package pager

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebbkv/ebb/internal/offheap"
)

// frameArena hands out frames: memory of one page each, cut from slabs outside the Go heap. Freed
// frames are used again, the last one first, because it is the one still in the processor's cache.
// Slabs are freed when the arena is closed; where memory is short, the memory of stretches that no
// frame uses goes back to the system before: see trim.
type frameArena struct {
	pageSize int
	scarce   func() bool // memory is short: nil: it never is

	mu    sync.Mutex // guards the fields below
	free  []unsafe.Pointer
	slabs [][]byte
	rest  []byte   // of the newest slab, or of a stretch that was trimmed, not yet cut
	gone  [][]byte // stretches that were trimmed: addresses without memory
	next  []byte   // the slab after that one, if its beginning has been asked for
	inUse atomic.Int64

	prefaulting sync.WaitGroup // goroutines that have memory touched
}

// Slabs start small, so that a small store costs little, and double up to a bound that huge pages
// can serve.
const (
	firstSlab = 256 << 10
	lastSlab  = 16 << 20

	hugePageBytes = 2 << 20 // of a slab: a huge page
)

// alloc returns a frame with unknown content.
func (a *frameArena) alloc() (unsafe.Pointer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.free); n > 0 {
		f := a.free[n-1]
		a.free = a.free[:n-1]
		a.inUse.Add(1)
		return f, nil
	}
	if n := len(a.gone); len(a.rest) == 0 && n > 0 {
		a.rest, a.gone = a.gone[n-1], a.gone[:n-1]
	}
	if len(a.rest) == 0 {
		slab, err := a.next, error(nil)
		if a.next = nil; slab == nil {
			slab, err = a.slab()
		}
		if err != nil {
			return nil, fmt.Errorf("memory for page frames: %w", err)
		}
		a.slabs = append(a.slabs, slab)
		a.rest = slab
	}
	if len(a.rest)%hugePageBytes == 0 && len(a.gone) == 0 && a.next == nil && !a.short() {
		a.prefaultNext()
	}
	f := unsafe.Pointer(unsafe.SliceData(a.rest))
	a.rest = a.rest[a.pageSize:]
	a.inUse.Add(1)
	return f, nil
}

// slab gets memory for the slab after the newest one.
func (a *frameArena) slab() ([]byte, error) {
	size := firstSlab
	if n := len(a.slabs); n > 0 {
		size = min(2*len(a.slabs[n-1]), lastSlab)
	}
	return offheap.Alloc(max(size, 4*a.pageSize))
}

// prefaultNext is called where a stretch begins, and has the one after it touched by a goroutine
// that ends with it. The first touch of a huge page takes the system a fifth of a millisecond at
// best, and some hosts several: whoever takes a frame holds the writer lock, and all writers would
// wait with it.
func (a *frameArena) prefaultNext() {
	var after []byte
	if len(a.rest) > hugePageBytes {
		after = a.rest[hugePageBytes : 2*hugePageBytes]
	} else {
		var err error
		if a.next, err = a.slab(); err != nil {
			a.next = nil // who needs it will be told
			return
		}
		after = a.next[:min(hugePageBytes, len(a.next))]
	}
	a.prefaulting.Add(1)
	go func() {
		defer a.prefaulting.Done()
		offheap.Touch(after)
	}()
}

// release takes a frame back. Nobody may read it any more.
func (a *frameArena) release(f unsafe.Pointer) {
	a.mu.Lock()
	a.free = append(a.free, f)
	a.mu.Unlock()
	a.inUse.Add(-1)
}

func (a *frameArena) short() bool { return a.scarce != nil && a.scarce() }

// trim gives the memory of stretches of which all frames are free back to the system. Their
// addresses are used again before those of new slabs are. What is not cut yet, and slabs below a
// stretch, stay.
func (a *frameArena) trim() {
	a.mu.Lock()
	defer a.mu.Unlock()
	slabs := slices.Clone(a.slabs)
	slices.SortFunc(slabs, func(x, y []byte) int { return cmp.Compare(address(x), address(y)) })
	in := func(f unsafe.Pointer) uintptr { // the address of the stretch; 0: of none
		i, found := slices.BinarySearchFunc(slabs, uintptr(f), func(s []byte, at uintptr) int {
			return cmp.Compare(address(s), at)
		})
		if !found {
			i--
		}
		if len(slabs[i]) < hugePageBytes {
			return 0
		}
		return uintptr(f) - (uintptr(f)-address(slabs[i]))%hugePageBytes
	}
	free := map[uintptr]int{}
	for _, f := range a.free {
		free[in(f)]++
	}
	a.free = slices.DeleteFunc(a.free, func(f unsafe.Pointer) bool {
		at := in(f)
		if at == 0 || free[at] < hugePageBytes/a.pageSize {
			return false
		}
		if uintptr(f) == at {
			whole := unsafe.Slice((*byte)(f), hugePageBytes)
			offheap.Release(whole)
			a.gone = append(a.gone, whole)
		}
		return true
	})
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// bytes is the memory of frames in use.
func (a *frameArena) bytes() int64 { return a.inUse.Load() * int64(a.pageSize) }

func (a *frameArena) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.prefaulting.Wait()
	if a.next != nil {
		a.slabs = append(a.slabs, a.next)
	}
	for _, s := range a.slabs {
		_ = offheap.Free(s) // nothing to do about a refusal at this point
	}
	a.slabs, a.free, a.rest, a.next, a.gone = nil, nil, nil, nil, nil
}
