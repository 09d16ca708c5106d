package txn

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ebbkv/ebb/internal/mapfault"
	"github.com/ebbkv/ebb/pager"
)

// A verifyAhead verifies the next leaves of a scan on a second processor: the first read of a page
// takes longer than its rows. Its goroutine goes backwards through a window of leaves while the scan
// goes forwards through it, and reads what is not verified yet. They meet where each has done its
// part, and neither waits for the other.
//
// The goroutine ends soon after its last window, and at the latest with the snapshot. It reports
// nothing: a page that is damaged, or cannot be read, stays unverified, and the scan finds the same.
type verifyAhead struct {
	view    pager.View
	windows chan []pager.Ref
	running atomic.Bool // the goroutine runs, or a fault has ended it: there will be no other
	stop    atomic.Bool
	done    sync.WaitGroup
}

const (
	// leastVerifyAhead is the number of leaves in a scan's first window. To wake a processor takes as
	// long as to verify ten pages, and a scan that requests so many usually goes on.
	leastVerifyAhead = 16
	// verifyWindows are kept for the goroutine. The scan itself verifies what is beyond them.
	verifyWindows = 4
	// verifySpins is how often the goroutine looks for a window before it ends: for about the time
	// that it takes to start another.
	verifySpins = 300
)

// ReadAhead is View.ReadAhead, and in a long scan of pages without a read so far begins to verify them.
func (tx *Tx) ReadAhead(refs []pager.Ref) {
	tx.View.ReadAhead(refs)
	if tx.slot != nil && len(refs) > 0 && tx.View.Cold(refs[len(refs)-1]) {
		tx.slot.verifyAhead(tx.View, refs)
	}
}

// verifyAhead passes a window to the goroutine, and starts it if necessary.
func (s *snapshotSlot) verifyAhead(v pager.View, refs []pager.Ref) {
	a := s.ahead
	if a == nil {
		if len(refs) < leastVerifyAhead || runtime.GOMAXPROCS(0) == 1 {
			return
		}
		a = &verifyAhead{view: v, windows: make(chan []pager.Ref, verifyWindows)}
		s.ahead = a
	}
	select {
	case a.windows <- slices.Clone(refs):
	default:
		return
	}
	if a.running.CompareAndSwap(false, true) {
		a.done.Go(a.run)
	}
}

// endVerifyAhead waits for the goroutine, which is in the middle of a page at most.
func (s *snapshotSlot) endVerifyAhead() {
	s.ahead.stop.Store(true)
	s.ahead.done.Wait()
	s.ahead = nil
}

func (a *verifyAhead) run() {
	_ = mapfault.Guard(func(uintptr) error { return pager.ErrRead }, func() error {
		for more := true; more; {
			a.verifyWindows()
			a.running.Store(false)
			// The scan did not start a goroutine for a window that came just before.
			more = len(a.windows) > 0 && !a.stop.Load() && a.running.CompareAndSwap(false, true)
		}
		return nil
	})
}

// verifyWindows verifies windows until none comes.
func (a *verifyAhead) verifyWindows() {
	for spins := 0; spins < verifySpins && !a.stop.Load(); spins++ {
		select {
		case refs := <-a.windows:
			a.verify(refs)
			spins = 0
		default:
			runtime.Gosched()
		}
	}
}

func (a *verifyAhead) verify(refs []pager.Ref) {
	for _, ref := range slices.Backward(refs) {
		if a.stop.Load() {
			return
		}
		if a.view.Cold(ref) {
			_, _, _ = a.view.Leaf(ref)
		}
	}
}
