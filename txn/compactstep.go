package txn

import (
	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// relocation moves pages from limit on to the low end of the file, in steps. Each step is a version
// of its own with the same rows, built copy-on-write: a crash leaves the rows as they were.
type relocation struct {
	s     *Store
	limit pager.Pgid
	since pager.Epoch // 0: all pages; else those born since this epoch that are not in the file yet
	reads int         // bound on the pages that a step reads; 0: none
	tree  TreeID      // start of the next step
	from  []byte      // first key of that step
	kept  int         // large values that found no space further down
	done  bool        // all pages are moved, or the space below the limit is full
}

// step moves about most pages, and returns their number. Writer lock.
func (r *relocation) step(most int) (moved int, err error) {
	w := &r.s.w
	w.begin()
	w.policy.Fit = pager.FitLowest
	left := tree.Move{
		Limit: r.limit, Since: r.since, Most: most, Reads: r.reads, Pages: r.s.pg.Alloc.Pages(),
	}
	ended := false
	for !ended {
		id, t, found := w.trees.next(r.tree)
		if !found {
			break
		}
		if id != r.tree {
			r.tree, r.from = id, nil
		}
		before := t.Root
		if ended, err = r.moveSome(&t, &left); err != nil {
			return 0, r.undo(err)
		}
		if t.Root != before { // also if no page moved below the limit
			w.set(id, t)
		}
		if err := w.spill(); err != nil {
			w.rollback()
			return 0, err
		}
	}
	table := r.s.table
	if !ended {
		left.Reads = 0
		if _, err := r.moveSome(&table, &left); err != nil {
			return 0, r.undo(err)
		}
		r.done = true
	}
	if err := w.moved(); err != nil {
		return 0, err
	}
	r.s.table = table
	return most - left.Most, nil
}

// moveSome moves pages of a tree, and takes them off what is left of the step. ended says that the
// step is over; else the next tree is next.
func (r *relocation) moveSome(t *tree.Tree, left *tree.Move) (ended bool, err error) {
	left.From = r.from
	m, err := tree.Relocate(&r.s.w, t, *left)
	if err != nil {
		return true, err
	}
	r.kept += m.Kept
	left.Most -= m.Pages
	left.Reads -= m.Read
	if r.from, r.done = m.Next, m.Full; m.Next != nil || m.Full {
		return true, nil
	}
	r.tree++
	return left.Most <= 0 || r.reads > 0 && left.Reads <= 0, nil
}

// undo rolls a step back after an error.
func (r *relocation) undo(err error) error {
	r.s.w.rollback()
	return r.s.spaceError(err)
}

// moved publishes a step as the newest version, if it moved anything.
func (w *writer) moved() error {
	if w.allocated.len() == 0 {
		w.rollback()
		return nil
	}
	if err := w.validateFreed(); err != nil {
		w.rollback()
		return err
	}
	w.publishMaintenance()
	return nil
}
