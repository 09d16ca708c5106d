package txn

import (
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/invariant"
	"github.com/ebbkv/ebb/pager"
)

// freedPages are pages that a transaction frees: its commit hands them to the reclaimer.
type freedPages struct {
	id            pager.Pgid
	birth         uint64 // serial under which they were born; 0: before the store was opened
	n             uint32
	epoch         pager.Epoch // of birth
	bornInTx      bool        // born in the transaction that frees them
	logReferenced bool        // a log record may name them
	deltaBase     bool        // base of a delta: readers of the delta read it too
}

// Free frees a page. A page of this transaction that no savepoint needs is reused at once; the
// commit frees all others.
func (h *pageWriter) Free(ref pager.Ref) error { return h.free(ref, 1) }

func (h *pageWriter) free(ref pager.Ref, n uint32) error {
	owner := h.s.pg.Pool.Owner(ref.Pgid)
	if invariant.On && ref.Epoch > h.s.epoch {
		invariant.Fail("txn: freed page %v is of the future", ref)
	}
	if owner != 0 && ref.Epoch <= h.s.openedEpoch {
		// The file has two references to one page number: the page was freed through the other one
		// and reallocated. This transaction need not have read it through this one.
		return badfile.Page(h.s.path, uint64(ref.Pgid), -1,
			"freed as a page of epoch %d, and it has been born again", ref.Epoch)
	}
	replayed := owner > h.firstOwner && owner <= h.w.spillOwner
	if (owner == h.owner || replayed) && n == 1 && !h.saved {
		h.s.pg.Pool.SetOwner(ref.Pgid, 0)
		if replayed && owner > h.w.spilledOwner {
			h.w.freedInSpill = append(h.w.freedInSpill, ref.Pgid)
		} else {
			h.spare = append(h.spare, ref.Pgid)
		}
		return nil
	}
	if err := h.loadFreeMapGroup(ref, n); err != nil {
		return err
	}
	h.freed = append(h.freed, freedPages{})
	// Field by field: a literal is built elsewhere and copied, and the copy waits for the stores.
	f := &h.freed[len(h.freed)-1]
	f.id, f.n, f.epoch, f.birth, f.bornInTx = ref.Pgid, n, ref.Epoch, owner, owner >= h.firstOwner
	// The record of this transaction may name them, or one since the last checkpoint.
	f.logReferenced = owner == h.firstOwner ||
		ref.Epoch == h.s.epoch && n == 1 && h.s.pg.Pool.Written(ref.Pgid)
	return nil
}

// loadFreeMapGroup loads the part of the free map that freeing the pages changes.
func (h *pageWriter) loadFreeMapGroup(ref pager.Ref, n uint32) error {
	if h.allocMu != nil && n == 1 && h.cachedGroup.contains(ref.Pgid, len(h.freed)) {
		return nil
	}
	h.lockAllocator()
	defer h.unlockAllocator()
	// In a damaged tree a page, and its subtree, may be reachable on many paths.
	if uint64(len(h.freed)) >= h.s.pg.Alloc.Pages() {
		return badfile.Page(h.s.path, uint64(ref.Pgid), -1,
			"it is freed, and so are as many pages as there are")
	}
	if err := h.s.pg.Alloc.Touch(ref.Pgid, uint64(n)); err != nil {
		return err
	}
	if h.allocMu != nil {
		h.cachedGroup.from, h.cachedGroup.to = h.s.pg.Alloc.GroupOf(ref.Pgid)
		h.cachedGroup.pages = int(h.s.pg.Alloc.Pages())
	}
	return nil
}

// freeMapGroup is the range [from, to) of pages of one group of the free map. They may be freed as
// long as fewer than pages were freed.
type freeMapGroup struct {
	from, to pager.Pgid
	pages    int
}

func (t *freeMapGroup) contains(id pager.Pgid, freed int) bool {
	return id >= t.from && id < t.to && freed < t.pages
}

func (h *pageWriter) FreeExtent(ref pager.Ref, size int) error {
	n, pages := len(h.freed), pager.ExtentPages(size, h.PageSize())
	if h.w.noLog && h.s.pg.Pool.Owner(ref.Pgid) > h.firstOwner {
		if done, err := h.freeUnlogged(pageRun{ref.Pgid, uint32(pages)}); done || err != nil {
			return err
		}
	}
	err := h.free(ref, uint32(pages))
	if err == nil && len(h.freed) > n {
		h.freed[n].logReferenced = size >= h.s.logRefFrom()
	}
	return err
}

// freeUnloggedWindow is how many allocations freeUnlogged searches, from the newest back.
const freeUnloggedWindow = 64

// freeUnlogged frees pages that this transaction allocated recently, for immediate reuse, and says
// whether it found them. It is for replay, which applies the puts of one key in turn: in the
// original run each commit freed the pages of the previous value, and there may be no other free
// pages. No reader has seen the value.
func (h *pageWriter) freeUnlogged(r pageRun) (done bool, err error) {
	back := freeUnloggedWindow
	if h.s.logOrder { // the disk is full: find the pages however old they are
		back = h.allocated.len()
	}
	if !h.allocated.remove(r, back) {
		return false, nil
	}
	return true, h.s.pg.Unused(r.id, uint64(r.n))
}

// freeSpare frees the spare pages, for large values too: in the original run each commit freed
// them.
func (h *pageWriter) freeSpare() error {
	spare := make(map[pager.Pgid]bool, len(h.spare))
	for _, id := range h.spare {
		spare[id] = true
		if err := h.s.pg.Unused(id, 1); err != nil {
			return err
		}
	}
	h.allocated.drop(spare)
	h.spare = h.spare[:0]
	return nil
}
