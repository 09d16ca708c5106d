package txn

import (
	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// A relocation moves pages from limit on to the low end of the file, in steps, each of which is a
// version of its own with the same rows: nothing is in place, and what a crash leaves are the rows
// as they were.
type relocation struct {
	s     *Store
	limit pager.Pgid
	since pager.Epoch // 0: all pages; else those born in this epoch or later, and not in the file yet
	tree  TreeID      // where the next step begins
	from  []byte      // and the key there
	done  bool        // there is nothing left to move, or no room below the limit
}

// step moves about most pages, and tells of how many. Writer lock.
func (r *relocation) step(most int) (moved int, err error) {
	s := r.s
	if err := s.pg.Pack(); err != nil {
		return 0, s.fail(err)
	}
	defer s.pg.EndPack()
	w := &s.w
	w.begin()
	var ids []TreeID
	s.head.trees.from(r.tree, func(id TreeID, _ tree.Tree) bool {
		ids = append(ids, id)
		return true
	})
	step := tree.Move{Limit: r.limit, Since: r.since, Most: most, Pages: s.pg.Pages()}
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
		if t.Root != before { // also when nothing landed below the limit
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
	m, err := tree.Relocate(
		w,
		&table,
		tree.Move{Limit: r.limit, Since: r.since, Most: most, Pages: s.pg.Pages()},
	)
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

// moved makes what a step has moved the newest version.
func (w *writer) moved() error {
	if err := w.validateFreed(); err != nil {
		w.rollback()
		return err
	}
	w.publishMaintenance()
	return nil
}
