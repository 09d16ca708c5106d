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

// frameArena allocates frames: memory of one page each, cut from slabs outside the Go heap. The
// frame that was freed last is reused first, because it is still in the processor's cache. Slabs
// are freed when the arena is closed. If memory is short, trim releases the memory of free frames
// before that.
type frameArena struct {
	pageSize int
	scarce   func() bool // memory is short; nil: never

	mu      sync.Mutex // guards the fields below
	free    []unsafe.Pointer
	slabs   [][]byte
	small   int      // slabs of which new memory is in small pages: see useSmallPages
	uncut   []byte   // uncut part of the newest slab, or of a trimmed run
	trimmed [][]byte // runs of frames: addresses without memory
	inUse   atomic.Int64
}

// Slabs start small, so that a small store costs little, and double up to a size that huge pages
// serve.
const (
	firstSlab = 256 << 10
	lastSlab  = 16 << 20
)

// alloc returns a frame with undefined content.
func (a *frameArena) alloc() (unsafe.Pointer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.free); n > 0 {
		f := a.free[n-1]
		a.free = a.free[:n-1]
		a.inUse.Add(1)
		return f, nil
	}
	if n := len(a.trimmed); len(a.uncut) == 0 && n > 0 {
		a.uncut, a.trimmed = a.trimmed[n-1], a.trimmed[:n-1]
	}
	if len(a.uncut) == 0 {
		slab, err := a.slab()
		if err != nil {
			return nil, fmt.Errorf("memory for page frames: %w", err)
		}
		a.slabs = append(a.slabs, slab)
		a.uncut = slab
		if a.short() {
			a.useSmallPages()
		}
	}
	f := unsafe.Pointer(unsafe.SliceData(a.uncut))
	a.uncut = a.uncut[a.pageSize:]
	a.inUse.Add(1)
	return f, nil
}

// slab allocates the slab after the newest one.
func (a *frameArena) slab() ([]byte, error) {
	size := firstSlab
	if n := len(a.slabs); n > 0 {
		size = min(2*len(a.slabs[n-1]), lastSlab)
	}
	b, err := offheap.Alloc(max(size, 4*a.pageSize))
	if len(b) == offheap.HugePage { // A small store that needs part of it would clear all of it.
		offheap.UseSmallPages(b)
	}
	return b, err
}

// release frees a frame that no reader uses any more.
func (a *frameArena) release(f unsafe.Pointer) {
	a.mu.Lock()
	a.free = append(a.free, f)
	a.mu.Unlock()
	a.inUse.Add(-1)
}

func (a *frameArena) short() bool { return a.scarce != nil && a.scarce() }

// trimRun is the least number of adjacent frames whose memory trim releases, with one system call.
// A checkpoint beside commits leaves a few frames in use, anywhere: whole huge pages are seldom free.
const trimRun = 8

// useSmallPages ends the use of huge pages. trim releases runs of frames, of which a huge page that
// has a frame in use gives nothing back.
func (a *frameArena) useSmallPages() {
	for ; a.small < len(a.slabs); a.small++ {
		offheap.UseSmallPages(a.slabs[a.small])
	}
}

// trim releases the memory of runs of free frames. alloc reuses their addresses, the lowest first,
// before it allocates new slabs. The uncut part stays.
func (a *frameArena) trim() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.useSmallPages()
	first := make(map[unsafe.Pointer]bool, len(a.slabs)) // frames at the start of a slab
	for _, s := range a.slabs {
		first[unsafe.Pointer(unsafe.SliceData(s))] = true
	}
	slices.SortFunc(a.free, func(x, y unsafe.Pointer) int { return cmp.Compare(uintptr(y), uintptr(x)) })
	kept := a.free[:0]
	for free := a.free; len(free) > 0; {
		n := 1
		for n < len(free) && !first[free[n-1]] && uintptr(free[n-1])-uintptr(free[n]) == uintptr(a.pageSize) {
			n++
		}
		if n < trimRun {
			kept = append(kept, free[:n]...)
		} else {
			run := unsafe.Slice((*byte)(free[n-1]), n*a.pageSize)
			offheap.Release(run)
			a.trimmed = append(a.trimmed, run)
		}
		free = free[n:]
	}
	a.free = kept
}

// bytes is the memory of used frames.
func (a *frameArena) bytes() int64 { return a.inUse.Load() * int64(a.pageSize) }

func (a *frameArena) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.slabs {
		_ = offheap.Free(s) // no recovery from an error here
	}
	a.slabs, a.free, a.uncut, a.trimmed, a.small = nil, nil, nil, nil, 0
}
