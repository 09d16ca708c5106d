package txn

import (
	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// A store whose file is more than this much larger than its pages is packed when it is closed, in one bounded go.
const (
	shrinkPercent  = 30
	shrinkMinBytes = 1 << 20
	shrinkMaxPages = 1 << 16
)

// shrink moves pages from the end of the file into free space further down, so that the tail can be cut. Each step is a
// checkpoint: what is moved is free only when its copy is durable.
func (s *Store) shrink() error {
	if !s.worthShrinking() {
		return nil
	}
	if err := s.checkpointLocked(); err != nil || !s.worthShrinking() {
		return err
	}
	s.pg.Pack(true)
	defer s.pg.Pack(false)
	w := &s.w
	w.begin()
	used := s.pg.UsedPages()
	limit, left := pager.Pgid(used+used/16), shrinkMaxPages
	var ids []TreeID
	s.head.trees.from(0, func(id TreeID, _ tree.Tree) bool {
		ids = append(ids, id)
		return true
	})
	for _, id := range ids {
		t, _ := w.trees.get(id)
		if t.Root.IsZero() || left <= 0 {
			continue
		}
		before := t.Root
		moved, err := tree.Relocate(w, &t, limit, left)
		if err != nil {
			w.rollback()
			return s.spaceError(err)
		}
		if t.Root != before { // also when nothing landed below the limit
			w.set(id, t)
		}
		left -= moved
		if err := w.spill(); err != nil {
			w.rollback()
			return err
		}
	}
	table := s.table
	if _, err := tree.Relocate(w, &table, limit, shrinkMaxPages); err != nil {
		w.rollback()
		return s.spaceError(err)
	}
	s.table = table
	w.upkeep()
	return s.checkpointLocked()
}

func (s *Store) worthShrinking() bool {
	pages, used := s.pg.Pages(), s.pg.UsedPages()
	return pages*100 > used*(100+shrinkPercent) && (pages-used)*uint64(s.pg.PageSize()) > shrinkMinBytes
}
