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

// snapshots is the register of held versions, with the time of each. Begin and end of a read
// transaction touch one cache line, which other goroutines rarely share.
type snapshots struct {
	first snapshotBlock
	mu    sync.Mutex // adding blocks
}

// slotsPerBlock concurrent readers fit into a block.
const slotsPerBlock = 64

type snapshotBlock struct {
	slots [slotsPerBlock]snapshotSlot
	next  atomic.Pointer[snapshotBlock]
}

// A snapshotSlot fills a cache line, and the next one, which the processor prefetches with it.
type snapshotSlot struct {
	serial atomic.Uint64 // of the version held; 0: free
	began  atomic.Int64  // nanoseconds since the store's start, or noAge
	ahead  *verifyAhead  // of the transaction that holds it; nil: none
	_      [104]byte
}

// noAge is the start of a reader that ends too soon to have an age.
const noAge int64 = -1

// acquire registers a reader of the newest visible version and returns both. It publishes the slot
// before it loads the version again: a writer that saw the slot empty had published a newer version
// before that, so the second load differs, and the reader takes the newer version.
//
// A transaction that changes pages in place uses the opposite order: it activates the undo log
// before it scans the slots, so it sees this reader, or the reader sees the undo log and seals it.
func (r *snapshots) acquire(
	visible *atomic.Pointer[version], undo *pager.UndoLog, now int64,
) (*version, *snapshotSlot) {
	var here byte
	// Another goroutine has another stack, and so usually another slot.
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
				// Slots of brief readers stay at noAge: a store costs more than a load.
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

// pin registers a reader of a given version, which the caller holds in another way until pin
// returns.
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

func (s *snapshotSlot) release() {
	if s.ahead != nil {
		s.endVerifyAhead()
	}
	s.serial.Store(0)
}

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

// stats returns the number of readers and the age of the oldest.
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
