package txn

import (
	"encoding/binary"
	"fmt"
	"slices"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// saveTrees updates the tree table. The change has no log record: replay repeats it.
func (w *writer) saveTrees() error {
	s := w.s
	if len(s.changed) == 0 {
		return nil
	}
	ids := make([]TreeID, 0, len(s.changed))
	for id := range s.changed {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	w.begin()
	w.policy.Purpose = pager.ForCheckpoint
	table := s.table
	for _, id := range ids {
		key := treeKey(id)
		t, ok := w.trees.get(id)
		var err error
		if ok {
			_, err = tree.Put(w, &table, key, appendTree(nil, t), 0)
		} else {
			_, err = tree.Delete(w, &table, key)
		}
		if err != nil {
			w.rollback()
			return s.spaceError(err)
		}
	}
	if err := w.validateFreed(); err != nil {
		w.rollback()
		return err
	}
	s.table = table
	w.changed = w.changed[:0]
	w.publishMaintenance()
	clear(s.changed)
	return nil
}

// minTreeTableRows is the least number of rows in a leaf of the table, for each 4 KiB: a quarter of
// a full leaf, since leaves with fewer are merged.
const minTreeTableRows = 24

// reserveTreeTable reserves the pages of the tree table that the next checkpoint copies after n
// more trees have changed. If the disk is full it says so while the commit can still be refused. A
// changed row keeps its length: only new trees, whose numbers are above all others, need new pages.
func (w *writer) reserveTreeTable(n int) error {
	s := w.s
	least := uint64(w.PageSize() / pager.MinPageSize * minTreeTableRows)
	leaves := min(uint64(len(s.changed)+n), s.table.Rows/least+1)
	if there := uint64(w.trees.len()); there > s.table.Rows {
		leaves += (there - s.table.Rows) / least
	}
	branches := leaves/8 + uint64(s.table.Depth)
	return s.spaceError(s.pg.Alloc.ReserveTreeTable(leaves + branches))
}

// Tree table row: the tree's number, big-endian, to
//
//	0 root pgid u64   8 rows u64   16 root epoch u32   20 depth u8   21 zeros to 24
//
// Numbers with the highest bit set are dropped trees whose pages are not all freed. Golden bytes:
// testdata/tree-row.hex.
const treeRow = 24

func treeKey(id TreeID) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

func appendTree(b []byte, t tree.Tree) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(t.Root.Pgid))
	b = binary.LittleEndian.AppendUint64(b, t.Rows)
	b = binary.LittleEndian.AppendUint32(b, uint32(t.Root.Epoch))
	return append(b, t.Depth, 0, 0, 0)
}

func decodeTree(b []byte) (tree.Tree, error) {
	if len(b) != treeRow || b[21]|b[22]|b[23] != 0 {
		return tree.Tree{}, fmt.Errorf("tree table row of %d bytes, %d belong, the last 3 zero",
			len(b), treeRow)
	}
	t := tree.Tree{
		Root: pager.Ref{
			Pgid:  pager.Pgid(binary.LittleEndian.Uint64(b)),
			Epoch: pager.Epoch(binary.LittleEndian.Uint32(b[16:])),
		},
		Rows:  binary.LittleEndian.Uint64(b[8:]),
		Depth: b[20],
	}
	if (t.Depth == 0) != t.Root.IsZero() || t.Root.IsZero() && t.Rows != 0 {
		return tree.Tree{}, fmt.Errorf("tree with root %v, depth %d, %d rows", t.Root, t.Depth, t.Rows)
	}
	return t, nil
}

// DecodeTreeRow decodes a row of the tree table.
func DecodeTreeRow(key, row []byte) (id TreeID, t tree.Tree, err error) {
	if len(key) != 8 {
		return 0, t, fmt.Errorf("tree table has a key of %d bytes", len(key))
	}
	t, err = decodeTree(row)
	return TreeID(binary.BigEndian.Uint64(key)), t, err
}

// Dropped reports whether the tree was dropped, and not all of its pages are free.
func (id TreeID) Dropped() bool { return id >= trashBit }

// loadTrees reads the tree table.
func (v *version) loadTrees(s *Store) error {
	if v.nextID < firstTree {
		return badfile.Page(s.path, 0, -1,
			"the meta page says that tree %d never was, and it is one with a fixed meaning", v.nextID)
	}
	bad := func(format string, args ...any) error {
		return badfile.Page(s.path, uint64(s.table.Root.Pgid), -1, format, args...)
	}
	r := s.pg.Reader.View(v.base, pager.Newest)
	var c tree.Cursor
	c.Reset(r, s.table)
	for ok := c.First(); ok; ok = c.Next() {
		id, t, err := DecodeTreeRow(c.Key(), c.Value())
		switch {
		case err != nil:
			return bad("%v", err)
		case t.Root.Epoch > s.table.Root.Epoch:
			return bad("tree table of epoch %d has a root of epoch %d", s.table.Root.Epoch, t.Root.Epoch)
		case id < trashBit && id >= v.nextID, id >= trashBit && uint64(id&^trashBit) >= v.trash:
			return bad("tree table has tree %#x, the meta page says that trees from %d on, "+
				"and trash from %d on, never were", id, v.nextID, v.trash)
		}
		s.stamps++
		v.trees.set(treeState{id, t, s.stamps})
	}
	if err := c.Err(); err != nil {
		return err
	}
	if _, ok := v.trees.get(CatalogTree); !ok {
		if v.trees.len() > 0 {
			return bad("tree table lacks the catalog")
		}
		v.trees.set(treeState{id: CatalogTree}) // a new store
		s.changed[CatalogTree] = struct{}{}
	}
	return nil
}
