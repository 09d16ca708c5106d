package btree

import (
	"bytes"

	"github.com/ebbkv/ebb/pager"
)

// An InsertCursor points to the leaf of the last insert of a run, with the path to it: rows that
// come in order, or close together, need no descent. The zero value points to no leaf.
//
// Its state is valid only while its own Put alone changes the tree, and the transaction may still
// change the pages of the path in place. When that may have ended, its owner takes the number of
// filled leaves and resets it (*f = InsertCursor{}).
type InsertCursor struct {
	last      pager.Ref               // leaf of the last put: a second put there sets leaf
	leaf      []byte                  // nil: it points to no leaf
	path      [insertCursorDepth]step // by level; path[0] is not used
	branches  uint8                   // above the leaf
	rightmost bool                    // no leaf is right of it
	filled    int                     // see TakeFilledLeaves
}

// TakeFilledLeaves returns the number of leaves that inserts in order have filled since the last
// call.
func (f *InsertCursor) TakeFilledLeaves() int {
	n := f.filled
	f.filled = 0
	return n
}

// reset makes the cursor point to no leaf.
func (f *InsertCursor) reset() { *f = InsertCursor{filled: f.filled} }

// A tree that is deeper is changed without an insert cursor.
const insertCursorDepth = 8

// put puts the cell, which has an inline value, into the leaf, if the leaf is certainly its place:
// the leaf has the key, or the key lies between two keys of it, or above all keys of the tree. It
// returns the Info of the old row. Otherwise the caller descends.
func (f *InsertCursor) put(t *Tree, c *cell) (was Info, done bool) {
	if f == nil || f.leaf == nil {
		return Info{}, false
	}
	b := f.leaf
	n := count(b)
	i, found, shared := leafSearch(b, n, c.key)
	if found {
		s := cellPosOf(b, n, i)
		if infoAt(b, s)&infoOverflow != 0 {
			return Info{}, false // its extent must be freed
		}
		was = infoAtCell(b, s)
		return was, leafReplace(b, i, c)
	}
	if i == 0 || i == n && !f.rightmost || !c.fits(b) {
		return Info{}, false
	}
	if f.freeRows() == 0 {
		return Info{}, false
	}
	leafInsert(b, i, c, shared)
	f.count(t, 1)
	return Info{}, true
}

// Append puts rows that come in order above all keys of the tree: the longest prefix of changes
// that fits into the cursor's leaf. It returns the number of rows, which are all new. The caller
// passes the other changes to Apply.
func (f *InsertCursor) Append(t *Tree, changes []Change) (n int) {
	if f == nil || f.leaf == nil || !f.rightmost {
		return 0
	}
	if n = leafAppend(f.leaf, changes, f.freeRows()); n == 0 {
		return 0
	}
	f.count(t, uint64(n))
	return n
}

// count adds rows to the tree and to the branches above the leaf, which can count them.
func (f *InsertCursor) count(t *Tree, rows uint64) {
	for l := uint8(1); l <= f.branches; l++ {
		s := &f.path[l]
		setChildRows(s.b, s.n, s.i, childRows(s.b, s.n, s.i)+rows)
	}
	t.Rows += rows
}

// freeRows is the number of further rows that all branches above the leaf can count.
func (f *InsertCursor) freeRows() uint64 {
	free := uint64(maxRows)
	for l := uint8(1); l <= f.branches; l++ {
		s := &f.path[l]
		free = min(free, maxRows-min(rowsBelow(s.b, s.n, s.i), maxRows))
	}
	return free
}

// Beyond reports whether key lies above all keys of the tree, so that it belongs into the cursor's
// leaf or one right of it.
func (f *InsertCursor) Beyond(key []byte) bool {
	if f == nil || f.leaf == nil || !f.rightmost {
		return false
	}
	n := count(f.leaf)
	return n > 0 && bytes.Compare(leafKey(f.leaf, n, n-1), key) < 0
}

// LastKey returns the last key of the tree if a key is Beyond. It points into the leaf.
func (f *InsertCursor) LastKey() []byte {
	n := count(f.leaf)
	return leafKey(f.leaf, n, n-1)
}

// setLeaf records the leaf at which a descent ended, whose steps are in path. The cursor points to
// it if the descent before ended there, too.
func (f *InsertCursor) setLeaf(ref pager.Ref, b []byte, depth uint8, rightmost bool) {
	if ref != f.last {
		f.last, f.leaf = ref, nil
		return
	}
	f.leaf, f.branches, f.rightmost = b, depth-1, rightmost
}
