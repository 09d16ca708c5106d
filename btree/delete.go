package btree

import (
	"bytes"

	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/pager"
)

// Delete removes key and returns the Info of its row. Without such a row it copies no page.
func Delete(w Writer, t *Tree, key []byte) (was Info, err error) {
	return DeleteOnly(w, t, key, nil)
}

// DeleteOnly is Delete of a row whose value equals value, unless value is nil. It does not find a
// row with another value, nor one with an overflow value.
func DeleteOnly(w Writer, t *Tree, key, value []byte) (was Info, err error) {
	var d deleteOp // field by field: the compiler would build a literal elsewhere and copy it
	d.w, d.key = w, key
	b, s, err := d.locate(*t)
	if !s.found() || err != nil {
		return Info{}, err
	}
	if value != nil && (infoAt(b, s)&infoOverflow != 0 || !bytes.Equal(valueAt(b, s), value)) {
		return Info{}, nil
	}
	was = infoAtCell(b, s)
	if d.deleteInPlace(t) {
		return was, nil
	}
	err = d.delete(t)
	d.releaseScratch()
	return was, err
}

// A deleteOp is one Delete: the descent, the removal and the rebalancing.
type deleteOp struct {
	pageEditor
	path
	cell     int    // in the leaf
	readLeaf []byte // the leaf, if ReadForUpdate read it
	key      []byte
}

// locate finds the leaf and the position of the cell of key, changes nothing, and records the path.
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
		if level < d.top {
			prefetch.Bytes(b[:nearBytes(level)])
		}
		if level == 0 {
			i, s := leafFind(b, n, d.key)
			d.steps[0].set(ref, b, 0, n)
			d.cell = i
			return b, s, nil
		}
		i := branchSearch(b, n, d.key)
		if level < pathDepth {
			d.steps[level].set(ref, b, i, n)
		}
		ref = childRef(b, n, i)
	}
}

// page is pageAt, but reads a cold leaf with ReadForUpdate.
func (d *deleteOp) page(ref pager.Ref, level uint8) (b []byte, n int, err error) {
	if level > 0 || !d.w.Cold(ref) {
		return pageAt(d.w, ref, level)
	}
	if b, err = d.w.ReadForUpdate(ref); err != nil {
		return nil, 0, err
	}
	if ld32(b, offKind)&0xffff != kindWord(0) {
		return nil, 0, misplaced(ref, b, 0)
	}
	d.readLeaf = b
	return b, count(b), nil
}

// edit is pageEditor.edit, but edits a leaf that ReadForUpdate has read with those bytes.
func (d *deleteOp) edit(ref pager.Ref, level uint8) (pager.Ref, []byte, error) {
	if level > 0 || d.readLeaf == nil {
		return d.pageEditor.edit(ref, level)
	}
	read := d.readLeaf
	d.readLeaf = nil
	return d.w.Edit(ref, read)
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

// below deletes the cell that locate found from below page b at level, which is editable.
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
		return d.rebalance(b, i, level-1)
	}
	return nil
}

// rebalance frees child i of branch b if it is empty, merges it with a neighbour if one page can
// hold both, and else moves entries to it from the neighbour. The child is an editable page at
// level and less than a quarter full. It stays as it is without a neighbour, or if b has no space
// for the new separator.
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
	total := usedMerged(cb, sb)
	if level > 0 {
		total += sepLen(b, n, right)
	}
	if total <= payload(cb)/5*4 { // above that, the next inserts would split the page again
		if err := e.mergePair(b, left, right, i, cb, sb, level); err != nil {
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
	middle := s.saveSep(sep(b, n, right))
	if ln > 1 && bytes.Compare(sep(lb, ln, ln-1), middle) >= 0 ||
		rn > 1 && bytes.Compare(middle, sep(rb, rn, 1)) >= 0 {
		return nil, damage(childRef(b, n, right), "separators out of order with those of the page above")
	}
	s.items = appendItems(s.items[:0], lb)
	s.items = appendItems(s.items, rb)
	s.items[ln].sep = middle
	return s, nil
}

// mergePair encodes the entries of children left and right of b into cb, which is one of them.
func (e *pageEditor) mergePair(b []byte, left, right, i int, cb, sb []byte, level uint8) error {
	s, err := e.collectPair(b, left, right, i, cb, sb, level)
	if err != nil {
		return err
	}
	if level == 0 {
		writeLeaf(cb, s.cells)
	} else {
		writeBranch(cb, s.items)
	}
	return nil
}

// refill divides the entries of child i, which is cb, and child j of b evenly.
func (e *pageEditor) refill(
	b []byte, left, right, i int, cb []byte, j int, sref pager.Ref, level uint8,
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
		if m = splitCells(s.cells, payload(cb)); m > 0 {
			middle = separator(s.cells[m-1].key(), s.cells[m].key())
		}
	} else if m = splitItems(s.items, payload(cb)); m > 0 {
		middle = s.items[m].sep
	}
	if m == 0 || !sepFits(b, n, right, len(middle)) {
		return nil
	}
	if err := sepBetween(b, n, right-1, right+1, middle); err != nil {
		return err
	}
	if level == 0 {
		writeLeaf(lb, s.cells[:m])
		writeLeaf(rb, s.cells[m:])
	} else {
		writeBranch(lb, s.items[:m])
		writeBranch(rb, s.items[m:])
	}
	if err := setSummary(b, n, left, lb); err != nil {
		return err
	}
	if err := setSummary(b, n, right, rb); err != nil {
		return err
	}
	e.replaceSep(b, right, s.saveSep(middle))
	return nil
}
