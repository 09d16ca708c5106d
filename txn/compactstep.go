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
	tree  TreeID      // start of the next step
	from  []byte      // first key of that step
	done  bool        // all pages are moved, or the space below the limit is full
}

// step moves about most pages, and returns their number. Writer lock.
func (r *relocation) step(most int) (moved int, err error) {
	s := r.s
	w := &s.w
	w.begin()
	w.policy.Fit = pager.FitLowest
	var ids []TreeID
	s.head.trees.from(r.tree, func(id TreeID, _ tree.Tree) bool {
		ids = append(ids, id)
		return true
	})
	step := tree.Move{Limit: r.limit, Since: r.since, Most: most, Pages: s.pg.Alloc.Pages()}
	for _, id := range ids {
		if id != r.tree {
			r.tree, r.from = id, nil
		}
		if step.Most <= 0 {
			return moved, w.moved()
		}
		t, _ := w.trees.get(id)
		before := t.Root
		step.From = r.from
		m, err := tree.Relocate(w, &t, step)
		if err != nil {
			w.rollback()
			return 0, s.spaceError(err)
		}
		if t.Root != before { // also if no page moved below the limit
			w.set(id, t)
		}
		if err := w.spill(); err != nil {
			w.rollback()
			return 0, err
		}
		moved += m.Pages
		step.Most -= m.Pages
		r.from, r.done = m.Next, m.Full
		if m.Next != nil || m.Full {
			return moved, w.moved()
		}
	}
	table := s.table
	step = tree.Move{Limit: r.limit, Since: r.since, Most: most, Pages: s.pg.Alloc.Pages()}
	m, err := tree.Relocate(w, &table, step)
	if err != nil {
		w.rollback()
		return 0, s.spaceError(err)
	}
	if err := w.moved(); err != nil {
		return 0, err
	}
	s.table = table
	r.done = true
	return moved + m.Pages, nil
}

// moved publishes a step as the newest version.
func (w *writer) moved() error {
	if err := w.validateFreed(); err != nil {
		w.rollback()
		return err
	}
	w.publishMaintenance()
	return nil
}
