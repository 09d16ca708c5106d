package txn

import "github.com/ebbkv/ebb/pager"

// Close compacts a store whose file is larger than its pages by more than these bounds. However
// large the store is, it moves a bounded number of pages: the process may be about to be killed.
const (
	shrinkPercent  = 30
	shrinkMinBytes = 1 << 20
	shrinkPages    = 1 << 16 // bound on the moved pages, in steps of as many as the cache holds
	scarcePages    = 1 << 13 // the same where memory is scarce
	shrinkLeast    = 64      // least pages of a step
)

// compact moves pages from the end of the file into free space further down, so that the tail can
// be cut. It begins with pages that the file does not hold yet, at almost no cost. Each step of the
// others ends with a checkpoint: a moved page is free only when its copy is durable.
func (k *checkpointer) compact() error {
	if !k.worthCompacting() || k.s.epoch >= lastEpoch { // the last epochs are for necessary checkpoints
		return nil
	}
	step := int(min(max(k.s.o.CacheBytes/int64(k.s.pg.PageSize()), shrinkLeast), shrinkPages))
	if err := k.movePages(max(step/16, shrinkLeast)); err != nil {
		return err
	}
	var r *relocation
	for left := k.shrinkMost(); left > 0; {
		if err := k.runLocked(); err != nil || !k.worthCompacting() {
			return err
		}
		if r == nil {
			var err error
			if r, err = k.newRelocation(left); err != nil {
				return err
			}
		}
		moved, err := r.step(min(left, step))
		if err != nil {
			return err
		}
		if r.done {
			break
		}
		left -= moved
	}
	return k.runLocked()
}

// shrinkMost is how many pages Close may move. Where memory is scarce, the disk reads each of them
// and each evicts another page. The next sessions move the rest.
func (k *checkpointer) shrinkMost() int {
	if k.s.pg.Scarce() {
		return scarcePages
	}
	return shrinkPages
}

// punchAtClose gives the free space that stays in the file back to the file system, before the last
// checkpoint of a session. If that is worth it a checkpoint frees the pages of the older state first:
// the last one does not supersede that state, so its pages are not punched after it.
func (k *checkpointer) punchAtClose() error {
	a := k.s.pg.Alloc
	if a.Holes.WorthFreeing() && k.s.epoch < lastEpoch {
		if err := k.runLocked(); err != nil {
			return err
		}
	}
	dead := a.Holes.TakeDead(k.s.pg.LastMeta().Pages, true)
	if len(dead) == 0 {
		return nil
	}
	if err := a.Holes.Punched(dead, a.Holes.Punch(dead)); err != nil {
		return k.s.fail(err)
	}
	return nil
}

// movePages moves pages that the file does not hold yet until they fill its low end, in steps whose
// copies take little memory: each begins after the freed pages were reclaimed, except those that
// snapshots hold when Abandon closes the store.
func (k *checkpointer) movePages(step int) error {
	if _, err := k.s.reclaimer.reclaim(reclaimAll); err != nil {
		return err
	}
	r := relocation{s: k.s, limit: k.s.pg.Alloc.Fill(), since: k.s.epoch}
	for !r.done {
		if _, err := r.step(step); err != nil {
			return err
		}
		k.s.queue.makeVisible()
		if _, err := k.s.reclaimer.reclaim(reclaimAll); err != nil {
			return err
		}
	}
	return nil
}

func (k *checkpointer) newRelocation(n int) (*relocation, error) {
	used := k.s.pg.Alloc.UsedPages()
	limit, err := k.s.pg.Alloc.Tail(uint64(n))
	if err != nil {
		return nil, k.s.spaceError(err)
	}
	return &relocation{s: k.s, limit: max(limit, pager.Pgid(used+used/16))}, nil
}

func (k *checkpointer) worthCompacting() bool {
	pages, used := k.s.pg.Alloc.Pages(), k.s.pg.Alloc.UsedPages()
	return pages*100 > used*(100+shrinkPercent) && (pages-used)*uint64(k.s.pg.PageSize()) > shrinkMinBytes
}
