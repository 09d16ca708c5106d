package btree

import (
	"bytes"

	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/pager"
)

// Delete removes key and tells of the row that was there. If there was none, nothing is copied.
func Delete(w Writer, t *Tree, key []byte) (was Info, err error) {
	return DeleteOnly(w, t, key, nil)
}

// DeleteOnly is Delete of a row that has exactly this value, unless that is nil. A row with another
// one is not found, nor one whose value is too large to stand in the page.
func DeleteOnly(w Writer, t *Tree, key, value []byte) (was Info, err error) {
	was, _, err = remove(w, t, key, value, pathHint{})
	return was, err
}

// remove is DeleteOnly by a way, as far as that is known. reshaped is that of set.
func remove(w Writer, t *Tree, key, only []byte, by pathHint) (was Info, reshaped uint8, err error) {
	var d deleteOp // field by field: a literal would be made elsewhere and copied
	d.w, d.key, d.hint = w, key, by
	b, s, err := d.locate(*t)
	if !s.found() || err != nil {
		return Info{}, 0, err
	}
	if only != nil && (infoAt(b, s)&infoOverflow != 0 || !bytes.Equal(valueAt(b, s), only)) {
		return Info{}, 0, nil
	}
	was = infoAtCell(b, s)
	if d.deleteInPlace(t) {
		return was, 0, nil
	}
	err = d.delete(t)
	d.releaseScratch()
	return was, d.highestChanged, err
}

// A deleter is one Delete on its way down the tree and up again.
type deleteOp struct {
	pageEditor
	path
	cell           int    // in the leaf
	readLeaf       []byte // the leaf, if it is one
	key            []byte
	hint           pathHint
	highestChanged uint8 // level of the highest branch that has lost a child, or got another separator; 0: none
}

// locate finds the leaf and the spot of the cell of key, if there is one, without changing
// anything, and notes the trail to it.
func (d *deleteOp) locate(t Tree) (b []byte, s cellPos, err error) {
	if err := t.checkDepth(); err != nil || t.Depth == 0 {
		return nil, cellPos{}, err
	}
	ref := t.Root
	d.top = t.Depth - 1
	for level := d.top; ; level-- {
		b, n, err := d.page(ref, level)
		if err != nil {
			return nil, cellPos{}, err
		}
		if level < d.top && !d.hint.complete() {
			prefetch.Bytes(b[:nearBytes(level)])
		}
		if level == 0 {
			i, s := leafFind(b, n, d.key)
			d.steps[0].set(ref, b, 0, n)
			d.cell = i
			return b, s, nil
		}
		i := d.hint.child(b, n, level, d.key)
		if level < pathDepth {
			d.steps[level].set(ref, b, i, n)
		}
		ref = childRef(b, n, i)
	}
}

// page is pageAt, but that a leaf which nobody has looked at becomes the draft.
func (d *deleteOp) page(ref pager.Ref, level uint8) (b []byte, n int, err error) {
	if level > 0 || !d.w.Cold(ref) {
		return pageAt(d.w, ref, level)
	}
	if b, err = d.w.ReadForUpdate(ref); err != nil {
		return nil, 0, err
	}
	if ld32(b, offKind)&0xffff != place(0) {
		return nil, 0, misplaced(ref, b, 0)
	}
	d.readLeaf = b
	return b, count(b), nil
}

// edit is that of the editor, but that the leaf may be there as a draft.
func (d *deleteOp) edit(ref pager.Ref, level uint8) (pager.Ref, []byte, error) {
	if level > 0 || d.readLeaf == nil {
		return d.pageEditor.edit(ref, level)
	}
	draft := d.readLeaf
	d.readLeaf = nil
	return d.w.EditRead(ref, draft)
}

func (d *deleteOp) delete(t *Tree) error {
	ref, b, err := d.edit(t.Root, t.Depth-1)
	if err != nil {
		return err
	}
	t.Root = ref
	if t.Rows == 0 {
		return damage(ref, "rows in a tree that counts none")
	}
	t.Rows--
	if err := d.below(b, t.Depth-1); err != nil {
		return err
	}
	if count(b) == 0 {
		*t = Tree{}
		return d.w.Free(ref)
	}
	return d.collapse(t)
}

// below deletes the cell that look has found from below page b at level, which is being edited.
func (d *deleteOp) below(b []byte, level uint8) error {
	n := count(b)
	if level == 0 {
		if err := d.freeExtent(b, cellPosOf(b, n, d.cell)); err != nil {
			return err
		}
		leafRemove(b, d.cell)
		return nil
	}
	i := 0
	if level < pathDepth {
		i = d.steps[level].i
	} else {
		i = branchSearch(b, n, d.key)
	}
	ref, cb, err := d.edit(childRef(b, n, i), level-1)
	if err != nil {
		return err
	}
	setChildRef(b, n, i, ref)
	if err := d.below(cb, level-1); err != nil {
		return err
	}
	if count(cb) > 0 {
		if err := subRows(b, n, i, 1); err != nil {
			return err
		}
	}
	if underfull(cb) {
		d.highestChanged = level
		return d.rebalance(b, i, level-1)
	}
	return nil
}

// rebalance deals with child i of branch b, a page at level that is being edited and is less than a
// quarter full: it goes if it is empty, is merged with a neighbour if one page is enough for both,
// and else gets entries from it. It stays as it is if it has no neighbour, or if b has no room for
// the new separator.
func (e *pageEditor) rebalance(b []byte, i int, level uint8) error {
	n := count(b)
	ref, cb, err := e.edit(childRef(b, n, i), level)
	if err != nil {
		return err
	}
	setChildRef(b, n, i, ref)
	if count(cb) == 0 {
		branchRemove(b, i, i+1)
		return e.w.Free(ref)
	}
	if n == 1 {
		return nil
	}
	j := i + 1
	if j == n {
		j = i - 1
	}
	left, right := min(i, j), max(i, j)
	sref := childRef(b, n, j)
	sb, _, err := pageAt(e.w, sref, level)
	if err != nil {
		return err
	}
	total := usedTogether(cb, sb)
	if level > 0 {
		total += sepLen(b, n, right)
	}
	if total <= payload(cb)/5*4 { // above that, the next inserts would split the page again
		if err := e.layPair(b, left, right, i, cb, sb, level); err != nil {
			return err
		}
		setChildRef(b, n, left, ref)
		if err := setSummary(b, n, left, cb); err != nil {
			return err
		}
		branchRemove(b, right, right+1)
		return e.w.Free(sref)
	}
	return e.refill(b, left, right, i, cb, j, sref, level)
}

// collectPair collects the entries of children left and right of b in the scratch, from copies: cb
// is child i, sb the other.
func (e *pageEditor) collectPair(b []byte, left, right, i int, cb, sb []byte, level uint8) (*scratch, error) {
	s := e.scratchPages(len(b))
	lb, rb := s.copyOf(cb, 0), s.copyOf(sb, 1)
	if i != left {
		lb, rb = rb, lb
	}
	ln, rn, n := count(lb), count(rb), count(b)
	if level == 0 {
		if bytes.Compare(leafKey(lb, ln, ln-1), leafKey(rb, rn, 0)) >= 0 {
			return nil, damage(childRef(b, n, right), "keys out of order with those of the page before it")
		}
		s.cells = appendCells(s.cells[:0], lb, 0, ln)
		s.cells = appendCells(s.cells, rb, 0, rn)
		return s, nil
	}
	middle := s.keepSep(sep(b, n, right))
	if ln > 1 && bytes.Compare(sep(lb, ln, ln-1), middle) >= 0 ||
		rn > 1 && bytes.Compare(middle, sep(rb, rn, 1)) >= 0 {
		return nil, damage(childRef(b, n, right), "separators out of order with those of the page above")
	}
	s.items = appendItems(s.items[:0], lb)
	s.items = appendItems(s.items, rb)
	s.items[ln].sep = middle
	return s, nil
}

// layPair puts the entries of children left and right of b into cb, which is one of them.
func (e *pageEditor) layPair(b []byte, left, right, i int, cb, sb []byte, level uint8) error {
	s, err := e.collectPair(b, left, right, i, cb, sb, level)
	if err != nil {
		return err
	}
	if level == 0 {
		layLeaf(cb, s.cells)
	} else {
		layBranch(cb, s.items)
	}
	return nil
}

// refill divides the entries of child i, which is cb, and child j of b anew.
func (e *pageEditor) refill(
	b []byte,
	left, right, i int,
	cb []byte,
	j int,
	sref pager.Ref,
	level uint8,
) error {
	sref, sb, err := e.edit(sref, level)
	if err != nil {
		return err
	}
	n := count(b)
	setChildRef(b, n, j, sref)
	s, err := e.collectPair(b, left, right, i, cb, sb, level)
	if err != nil {
		return err
	}
	lb, rb := cb, sb
	if i != left {
		lb, rb = sb, cb
	}
	var m int
	var middle []byte
	if level == 0 {
		if m = cutCells(s.cells, payload(cb)); m > 0 {
			middle = separator(s.cells[m-1].key(), s.cells[m].key())
		}
	} else if m = cutItems(s.items, payload(cb)); m > 0 {
		middle = s.items[m].sep
	}
	if m == 0 || !sepFits(b, n, right, len(middle)) {
		return nil
	}
	if err := sepBetween(b, n, right-1, right+1, middle); err != nil {
		return err
	}
	if level == 0 {
		layLeaf(lb, s.cells[:m])
		layLeaf(rb, s.cells[m:])
	} else {
		layBranch(lb, s.items[:m])
		layBranch(rb, s.items[m:])
	}
	if err := setSummary(b, n, left, lb); err != nil {
		return err
	}
	if err := setSummary(b, n, right, rb); err != nil {
		return err
	}
	e.replaceSep(b, right, s.keepSep(middle))
	return nil
}
