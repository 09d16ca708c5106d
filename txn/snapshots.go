package txn

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ebbkv/ebb/internal/invariant"
	"github.com/ebbkv/ebb/pager"
)

// snapshots is the register of snapshots: which versions are held, and since when. Begin and end
// touch one cache line that is, as a rule, nobody else's.
type snapshots struct {
	first snapshotBlock
	mu    sync.Mutex // adding blocks
}

// slotsPerBlock readers at once find a place without another block.
const slotsPerBlock = 64

type snapshotBlock struct {
	slots [slotsPerBlock]snapshotSlot
	next  atomic.Pointer[snapshotBlock]
}

// A snapshotSlot fills a cache line, and the one that the processor fetches beside it.
type snapshotSlot struct {
	serial atomic.Uint64 // of the version held; 0: free
	began  atomic.Int64  // nanoseconds since the store's start, or ageless
	_      [112]byte
}

// noAge is what a reader begins at that ends too soon to have an age.
const noAge int64 = -1

// acquire registers a reader of the newest visible version and returns both. The slot is published
// before the version is looked at again: a writer that saw the slot empty has made a newer version
// visible before, and then the look fails and the reader takes that one.
//
// A transaction that is changing pages in place works the other way round: it has said so before it
// looked at the slots, and so it saw this reader, or the reader sees that and stops it.
func (r *snapshots) acquire(
	visible *atomic.Pointer[version],
	undo *pager.UndoLog,
	now int64,
) (*version, *snapshotSlot) {
	var here byte
	// another stack, as a rule another slot
	at := uint64(uintptr(unsafe.Pointer(&here))) >> 10 * 0x9E3779B97F4A7C15 >> 58
	b := &r.first
	for probe := uint64(0); ; probe++ {
		if probe == slotsPerBlock {
			probe, b = 0, r.after(b)
		}
		s := &b.slots[(at+probe)%slotsPerBlock]
		if s.serial.Load() != 0 {
			continue
		}
		v := visible.Load()
		invariant.Pause()
		if !s.serial.CompareAndSwap(0, v.serial) {
			continue
		}
		for {
			if undo.Active() {
				undo.Seal()
			}
			invariant.Pause()
			again := visible.Load()
			if again == v {
				// The slots of brief readers stay ageless, and a store costs more than the look.
				if s.began.Load() != now {
					s.began.Store(now)
				}
				return v, s
			}
			v = again
			invariant.Pause()
			s.serial.Store(v.serial)
		}
	}
}

// pin registers a reader of a given version that is certain to be held by the caller in another
// way.
func (r *snapshots) pin(v *version, now int64) *snapshotSlot {
	for b := &r.first; ; b = r.after(b) {
		for i := range b.slots {
			if s := &b.slots[i]; s.serial.CompareAndSwap(0, v.serial) {
				s.began.Store(now)
				return s
			}
		}
	}
}

func (r *snapshots) after(b *snapshotBlock) *snapshotBlock {
	if n := b.next.Load(); n != nil {
		return n
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.next.Load() == nil {
		b.next.Store(new(snapshotBlock))
	}
	return b.next.Load()
}

func (s *snapshotSlot) release() { s.serial.Store(0) }

// held appends the serials of all held versions to buf, in order.
func (r *snapshots) held(buf []uint64) []uint64 {
	for b := &r.first; b != nil; b = b.next.Load() {
		for i := range b.slots {
			if s := b.slots[i].serial.Load(); s != 0 {
				buf = append(buf, s)
			}
		}
	}
	slices.Sort(buf)
	return buf
}

// stats counts the readers and finds the age of the oldest.
func (r *snapshots) stats(now int64) (n int, oldest time.Duration) {
	for b := &r.first; b != nil; b = b.next.Load() {
		for i := range b.slots {
			if b.slots[i].serial.Load() == 0 {
				continue
			}
			n++
			if began := b.slots[i].began.Load(); began != noAge {
				oldest = max(oldest, time.Duration(now-began))
			}
		}
	}
	return n, oldest
}
