package txn

import (
	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// A store whose file is more than this much larger than its pages is packed when it is closed. So many pages are moved at most, however large
// the store is: who closes it may be about to be killed.
const (
	shrinkPercent  = 30
	shrinkMinBytes = 1 << 20
	shrinkPages    = 1 << 16 // are moved at most, in steps of as many as the cache holds
	shrinkLeast    = 64      // pages in a step nevertheless
)

// shrink moves pages from the end of the file into free space further down, so that the tail can be cut. Each step is a
// checkpoint: what is moved is free only when its copy is durable.
func (s *Store) shrink() error {
	if !s.worthShrinking() {
		return nil
	}
	defer s.pg.Pack(false)
	step := int(min(max(s.o.CacheBytes/int64(s.pg.PageSize()), shrinkLeast), shrinkPages))
	for left := shrinkPages; left > 0; {
		if err := s.checkpointLocked(); err != nil || !s.worthShrinking() {
			return err
		}
		moved, err := s.pack(left, step)
		if err != nil {
			return err
		}
		if moved < step { // No more could be moved, or none to where it helps.
			break
		}
		left -= moved
	}
	return s.checkpointLocked()
}

// pack is a step of at most step pages on the way to a file whose last all pages have moved. It tells of how many it moved.
func (s *Store) pack(all, step int) (moved int, err error) {
	used := s.pg.UsedPages()
	limit, err := s.pg.Tail(uint64(all))
	if err != nil {
		return 0, s.spaceError(err)
	}
	limit = max(limit, pager.Pgid(used+used/16))
	s.pg.Pack(true) // from the low end on, again
	w := &s.w
	w.begin()
	var ids []TreeID
	s.head.trees.from(0, func(id TreeID, _ tree.Tree) bool {
		ids = append(ids, id)
		return true
	})
	for _, id := range ids {
		t, _ := w.trees.get(id)
		if t.Root.IsZero() || moved >= step {
			continue
		}
		before := t.Root
		n, err := tree.Relocate(w, &t, limit, step-moved)
		if err != nil {
			w.rollback()
			return 0, s.spaceError(err)
		}
		if t.Root != before { // also when nothing landed below the limit
			w.set(id, t)
		}
		moved += n
		if err := w.spill(); err != nil {
			w.rollback()
			return 0, err
		}
	}
	table := s.table
	n, err := tree.Relocate(w, &table, limit, step)
	if err != nil {
		w.rollback()
		return 0, s.spaceError(err)
	}
	s.table = table
	w.upkeep()
	return moved + n, nil
}

func (s *Store) worthShrinking() bool {
	pages, used := s.pg.Pages(), s.pg.UsedPages()
	return pages*100 > used*(100+shrinkPercent) && (pages-used)*uint64(s.pg.PageSize()) > shrinkMinBytes
}
