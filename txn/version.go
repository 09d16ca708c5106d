package txn

import (
	"cmp"
	"slices"

	"github.com/google/btree"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// A version is one state of the store: that of a commit, or the same state republished by
// maintenance. It never changes after its publication.
type version struct {
	serial  uint64      // order of publication; pages know the serial that they were born under
	seq     uint64      // commit number
	base    pager.Epoch // pages of later epochs are in frames, or were spilled
	trees   trees
	mark    int64   // clock mark, milliseconds
	lsn     wal.LSN // end of the commit's record
	syncLSN wal.LSN // durable before this version is visible: end of the newest Sync commit up to it
	nextID  TreeID  // first tree number never used
	trash   uint64  // first trash number never used
	hidden  bool    // must stay invisible until its checkpoint is durable; commitQueue.mu
}

// maxTree bounds the numbers of trees, as the meta page does.
const maxTree TreeID = 1 << 62

// trashBit marks the numbers of dropped trees whose pages are not all freed. They stay in the tree
// table.
const trashBit TreeID = 1 << 63

type treeState struct {
	id    TreeID
	t     tree.Tree
	stamp uint64 // see Tx.Stamp
}

func lessTree(a, b treeState) bool { return a.id < b.id }

// trees maps tree numbers to roots. Those that changed last are in small, a sorted slice that each
// commit copies; beyond maxSmall of them they move to large, an ordered tree that versions share.
// A number in both has the state of small.
type trees struct {
	small []treeState
	large *btree.BTreeG[treeState] // nil until small has been full once
	owned bool                     // large is this copy's own, and may change
	n     int                      // numbers in small, in large, or in both
}

// maxSmall: a larger slice costs more to copy than the nodes that the ordered tree copies.
const maxSmall = 24

// findSmall returns the tree in small, or nil. Usually it is there, near the front: no search is
// faster.
func (ts *trees) findSmall(id TreeID) *treeState {
	for i := range ts.small {
		if s := &ts.small[i]; s.id == id {
			return s
		}
	}
	return nil
}

func (ts *trees) findLarge(id TreeID) (treeState, bool) {
	if ts.large == nil {
		return treeState{}, false
	}
	return ts.large.Get(treeState{id: id})
}

func (ts *trees) get(id TreeID) (tree.Tree, bool) {
	if s := ts.findSmall(id); s != nil {
		return s.t, true
	}
	s, ok := ts.findLarge(id)
	return s.t, ok
}

// find returns the tree with its stamp; the zero value if there is none.
func (ts *trees) find(id TreeID) treeState {
	if s := ts.findSmall(id); s != nil {
		return *s
	}
	s, _ := ts.findLarge(id)
	return s
}

// set and remove are for an unpublished copy.
func (ts *trees) set(s treeState) {
	if at := ts.findSmall(s.id); at != nil {
		*at = s
		return
	}
	if _, ok := ts.findLarge(s.id); !ok {
		ts.n++
	}
	i, _ := slices.BinarySearchFunc(ts.small, s.id, compareTree)
	ts.small = slices.Insert(ts.small, i, s)
	if len(ts.small) > maxSmall {
		ts.ownLarge()
		for _, s := range ts.small {
			ts.large.ReplaceOrInsert(s)
		}
		ts.small = ts.small[:0]
	}
}

// ownLarge makes large one that no other copy has. Cloning marks the nodes of the original, so only
// the holder of the writer lock calls it; it copies none.
func (ts *trees) ownLarge() {
	switch {
	case ts.large == nil:
		ts.large = btree.NewG(16, lessTree)
	case !ts.owned:
		ts.large = ts.large.Clone()
	}
	ts.owned = true
}

func compareTree(s treeState, id TreeID) int { return cmp.Compare(s.id, id) }

func (ts *trees) remove(id TreeID) {
	i, inSmall := slices.BinarySearchFunc(ts.small, id, compareTree)
	if inSmall {
		ts.small = slices.Delete(ts.small, i, i+1)
	}
	_, inLarge := ts.findLarge(id)
	if inLarge {
		ts.ownLarge()
		ts.large.Delete(treeState{id: id})
	}
	if inSmall || inLarge {
		ts.n--
	}
}

func (ts *trees) len() int { return ts.n }

// copy returns trees that may change independently of ts, with buf for the small ones.
func (ts *trees) copy(buf []treeState) trees {
	if ts.owned { // never of a published version, which readers see
		ts.owned = false
	}
	return trees{small: append(buf, ts.small...), large: ts.large, n: ts.n}
}

// from calls fn for each tree with a number of at least id, in order, until it returns false.
func (ts *trees) from(id TreeID, fn func(TreeID, tree.Tree) bool) {
	i, _ := slices.BinarySearchFunc(ts.small, id, compareTree)
	more := true
	smallBelow := func(end TreeID) {
		for ; more && i < len(ts.small) && ts.small[i].id < end; i++ {
			more = fn(ts.small[i].id, ts.small[i].t)
		}
	}
	if ts.large != nil {
		ts.large.AscendGreaterOrEqual(treeState{id: id}, func(s treeState) bool {
			smallBelow(s.id)
			if more && (i == len(ts.small) || ts.small[i].id != s.id) {
				more = fn(s.id, s.t)
			}
			return more
		})
	}
	smallBelow(^TreeID(0))
}

// next returns the first tree with a number of at least id.
func (ts *trees) next(id TreeID) (found TreeID, t tree.Tree, ok bool) {
	ts.from(id, func(i TreeID, at tree.Tree) bool {
		found, t, ok = i, at, true
		return false
	})
	return found, t, ok
}

// firstTrash returns the first dropped tree with pages left, if any.
func (ts *trees) firstTrash() (id TreeID, dropped tree.Tree, ok bool) {
	return ts.next(trashBit)
}
