package txn

import (
	"slices"

	"github.com/google/btree"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// A version is one state of the store: what a commit made, or the same state once more after upkeep. It never changes
// after it was published.
type version struct {
	serial  uint64      // order of publication; pages know the serial that they were born under
	seq     uint64      // commit number
	base    pager.Epoch // pages of later epochs are in frames, or were written early
	trees   trees
	mark    int64   // clock mark, milliseconds
	lsn     wal.LSN // end of the commit's record
	syncLSN wal.LSN // must be durable before anyone may see this version: the newest Sync commit up to it
	nextID  TreeID  // first tree number never used
	trash   uint64  // first trash number never used
	hold    bool    // not to be seen yet: its checkpoint is not durable; Store.queueMu
}

// maxTree bounds the numbers of trees, as the meta page does.
const maxTree TreeID = 1 << 62

// trashBit marks the numbers of dropped trees whose pages have not come back yet. They stay in the tree table.
const trashBit TreeID = 1 << 63

type treeState struct {
	id    TreeID
	t     tree.Tree
	stamp uint64 // see Tx.Stamp
}

func lessTree(a, b treeState) bool { return a.id < b.id }

// trees maps tree numbers to roots. A few are a sorted slice, copied by each commit that changes it; more are an
// ordered tree whose clone costs nothing.
type trees struct {
	few  []treeState
	many *btree.BTreeG[treeState]
}

// maxFew is where a copy of the slice costs about as much as the nodes that the ordered tree copies.
const maxFew = 24

// amongFew returns the place of a tree in few, or nil. As a rule it is there, and near: no search beats that.
func (ts *trees) amongFew(id TreeID) *treeState {
	for i := range ts.few {
		if s := &ts.few[i]; s.id == id {
			return s
		}
	}
	return nil
}

func (ts *trees) amongMany(id TreeID) (treeState, bool) {
	if ts.many == nil {
		return treeState{}, false
	}
	return ts.many.Get(treeState{id: id})
}

func (ts *trees) get(id TreeID) (tree.Tree, bool) {
	if s := ts.amongFew(id); s != nil {
		return s.t, true
	}
	s, ok := ts.amongMany(id)
	return s.t, ok
}

func (ts *trees) rows(id TreeID) uint64 {
	if s := ts.amongFew(id); s != nil {
		return s.t.Rows
	}
	s, _ := ts.amongMany(id)
	return s.t.Rows
}

func (ts *trees) stamp(id TreeID) uint64 {
	if s := ts.amongFew(id); s != nil {
		return s.stamp
	}
	s, _ := ts.amongMany(id)
	return s.stamp
}

// set and remove are for a copy that nobody else has seen.
func (ts *trees) set(s treeState) {
	if ts.many != nil {
		ts.many.ReplaceOrInsert(s)
		return
	}
	if at := ts.amongFew(s.id); at != nil {
		*at = s
		return
	}
	i, _ := slices.BinarySearchFunc(ts.few, s.id, compareTree)
	ts.few = slices.Insert(ts.few, i, s)
	if len(ts.few) > maxFew {
		ts.many = btree.NewG(16, lessTree)
		for _, s := range ts.few {
			ts.many.ReplaceOrInsert(s)
		}
		ts.few = nil
	}
}

func compareTree(s treeState, id TreeID) int {
	switch {
	case s.id < id:
		return -1
	case s.id > id:
		return 1
	}
	return 0
}

func (ts *trees) remove(id TreeID) {
	if ts.many != nil {
		ts.many.Delete(treeState{id: id})
		return
	}
	if i, found := slices.BinarySearchFunc(ts.few, id, compareTree); found {
		ts.few = slices.Delete(ts.few, i, i+1)
	}
}

func (ts *trees) len() int {
	if ts.many != nil {
		return ts.many.Len()
	}
	return len(ts.few)
}

// copy returns trees that may be changed without ts seeing it. Cloning marks both sides, so it belongs to the writer.
func (ts *trees) copy() trees {
	if ts.many != nil {
		return trees{many: ts.many.Clone()}
	}
	return trees{few: slices.Clone(ts.few)}
}

// from calls fn for each tree with a number of at least id, in order, until it returns false.
func (ts *trees) from(id TreeID, fn func(TreeID, tree.Tree) bool) {
	if ts.many != nil {
		ts.many.AscendGreaterOrEqual(treeState{id: id}, func(s treeState) bool { return fn(s.id, s.t) })
		return
	}
	for _, s := range ts.few {
		if s.id >= id && !fn(s.id, s.t) {
			return
		}
	}
}

// firstTrash is a dropped tree with pages left, if any.
func (ts *trees) firstTrash() (id TreeID, dropped tree.Tree, ok bool) {
	ts.from(trashBit, func(i TreeID, at tree.Tree) bool {
		id, dropped, ok = i, at, true
		return false
	})
	return id, dropped, ok
}
