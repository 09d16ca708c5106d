package btree

import (
	"bytes"

	"github.com/ebbkv/ebb/pager"
)

// A Finger points to the leaf that rows of a tree are put into one after the other, with the way to
// it: rows that come in order, or close together, cost no descent. Its zero value points nowhere.
//
// What it knows holds only as long as nothing but its own Put changes the tree and the transaction
// may still change the pages of the way in place, where they are. Its owner forgets it (*f =
// Finger{}) when that may have ended, and takes what was filled before.
type InsertCursor struct {
	last      pager.Ref               // leaf of the last put: the finger points there when a second one meets it
	leaf      []byte                  // nil: it points nowhere
	path      [insertCursorDepth]step // way[l] is the branch at level l, and its child; way[0] is not used
	branches  uint8                   // above the leaf
	rightmost bool                    // no leaf is right of it
	filled    int                     // see TakeFilledLeaves
}

// TakeFilledLeaves is how many leaves rows in order have filled and left behind since it was last
// called.
func (f *InsertCursor) TakeFilledLeaves() int {
	n := f.filled
	f.filled = 0
	return n
}

// reset makes the finger point nowhere.
func (f *InsertCursor) reset() { *f = InsertCursor{filled: f.filled} }

// A tree that is deeper is put into without a finger.
const insertCursorDepth = 8

// put puts the cell, which has its value with it, into the leaf, if that is certainly its place:
// the key is there, or lies between two keys of it, or behind all keys of the tree. It tells of the
// row that was there. Everything else is for a descent.
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
			return Info{}, false // its extent is to be given back
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

// Append puts rows that come in order behind all keys of the tree: as many of the changes, from the
// first one on, as have room in the leaf that the finger points to. It says how many. None of them
// was there; the others are for Apply.
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

// count adds rows to those of the tree, and of the branches above the leaf. There is room for them.
func (f *InsertCursor) count(t *Tree, rows uint64) {
	for l := uint8(1); l <= f.branches; l++ {
		s := &f.path[l]
		setChildRows(s.b, s.n, s.i, childRows(s.b, s.n, s.i)+rows)
	}
	t.Rows += rows
}

// freeRows is how many rows the branches above the leaf can count beside those that they do.
func (f *InsertCursor) freeRows() uint64 {
	room := uint64(maxRows)
	for l := uint8(1); l <= f.branches; l++ {
		s := &f.path[l]
		room = min(room, maxRows-min(rowsBelow(s.b, s.n, s.i), maxRows))
	}
	return room
}

// Beyond says that key belongs behind all keys of the tree, into the leaf that the finger points to
// or one right of it.
func (f *InsertCursor) Beyond(key []byte) bool {
	if f == nil || f.leaf == nil || !f.rightmost {
		return false
	}
	n := count(f.leaf)
	return n > 0 && bytes.Compare(leafKey(f.leaf, n, n-1), key) < 0
}

// LastKey is the last key of the tree, if something is Beyond. It stands in its leaf.
func (f *InsertCursor) LastKey() []byte {
	n := count(f.leaf)
	return leafKey(f.leaf, n, n-1)
}

// setLeaf is told where a descent has ended, whose steps are in way. The finger points there if the
// one before ended there too.
func (f *InsertCursor) setLeaf(ref pager.Ref, b []byte, depth uint8, rightmost bool) {
	if ref != f.last {
		f.last, f.leaf = ref, nil
		return
	}
	f.leaf, f.branches, f.rightmost = b, depth-1, rightmost
}
