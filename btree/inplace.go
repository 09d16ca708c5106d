package btree

import (
	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/pager"
)

// The fast path of puts and deletes: if no other transaction reads the page, and the change fits
// into it, the page is changed without a copy. The undo log gets the old bytes: some hundred bytes
// of a leaf and the row counts above it. A put into a delta gives the leaf another page number, and
// its reference in the branch is changed in the same way. The copying path, see pageEditor, has all
// changes of more than one leaf (splits, merges, shifts), values in extents, and damaged pages.

// A path is the path to a leaf, which is at 0. A tree that is too deep for it is never changed in
// place.
type path struct {
	undo  UndoWriter
	steps [pathDepth]pathStep // by level
	top   uint8               // level of the root

	// delta says that the leaf may have a delta, but not be changed in place: steps[0] has only its
	// reference.
	delta bool
}

// pathDepth bounds the memory that is cleared for each change. Few trees are as deep.
const pathDepth = 8

// A pathStep is a step and the reference of its page.
type pathStep struct {
	ref pager.Ref
	step
}

// set assigns field by field, see step.set.
func (s *pathStep) set(ref pager.Ref, b []byte, i, n int) {
	s.ref.Pgid, s.ref.Epoch = ref.Pgid, ref.Epoch
	s.step.set(b, i, n)
}

// begin reports whether the leaf of the path may be changed in place. Then the undo log accepts
// records until end.
func (r *path) begin() bool {
	for level := uint8(1); level <= r.top; level++ {
		if !r.undo.Reachable(r.steps[level].ref) {
			return false
		}
	}
	return r.undo.Enter()
}

func (r *path) end() { r.undo.Leave() }

// saveLeaf records the fields, heads and slots of the leaf, and that the bytes from there to the
// cells are zero.
func (r *path) saveLeaf() {
	id, b := r.steps[0].ref.Pgid, r.steps[0].b
	end := offLeafHeads + leafEntry*count(b)
	r.undo.Record(id, offCount, end)
	r.undo.RecordZeros(id, end, lo(b))
}

func (r *path) saveCell(off int) {
	r.undo.Record(r.steps[0].ref.Pgid, off, off+cellSize(r.steps[0].b, off))
}

// repoint changes the leaf's reference in the branch above it to ref.
func (r *path) repoint(ref pager.Ref) {
	s := &r.steps[1]
	at := child(s.n, s.i)
	r.undo.Record(s.ref.Pgid, at, at+childSize)
	setChildRef(s.b, s.n, s.i, ref)
}

// addRows adds more, which is 1 or -1, to the row counts of the branches.
func (r *path) addRows(more int) {
	for level := uint8(1); level <= r.top; level++ {
		s := &r.steps[level]
		at := child(s.n, s.i) + 8
		r.undo.Record(s.ref.Pgid, at, at+8)
		setChildRows(s.b, s.n, s.i, childRows(s.b, s.n, s.i)+uint64(more))
	}
}

// checkCounts reports whether every branch counts at least least rows and can count one more.
func (r *path) checkCounts(least uint64) bool {
	for level := uint8(1); level <= r.top; level++ {
		s := &r.steps[level]
		if rows := rowsBelow(s.b, s.n, s.i); rows < least || rows >= maxRows {
			return false
		}
	}
	return true
}

// descend goes to the leaf of key, if that leaf, or its reference in the branch above, may be
// changed in place.
func (r *path) descend(w Writer, t *Tree, key []byte) bool {
	if t.Depth > pathDepth {
		return false
	}
	r.top = t.Depth - 1
	ref := t.Root
	for level := r.top; ; level-- {
		if level == 0 && !r.undo.Changeable(ref) {
			r.steps[0].ref = ref
			r.delta = r.top > 0 && r.undo.Lent() && w.CanDelta(ref) > 0
			return r.delta
		}
		b, n, err := pageAt(w, ref, level)
		if err != nil || n == 0 {
			return false // the copying path returns the error
		}
		if level < r.top {
			prefetch.Bytes(b[:nearBytes(level)])
		}
		if level == 0 {
			r.steps[0].set(ref, b, 0, n)
			return true
		}
		i := branchSearch(b, n, key)
		r.steps[level].set(ref, b, i, n)
		ref = childRef(b, n, i)
	}
}

// putInPlace puts the cell, which has an inline value, if its page may be changed in place.
func (p *insertOp) putInPlace(t *Tree) bool {
	undo := p.w.Undo()
	return undo != nil && t.Depth > 0 && p.tryInPlace(undo, t)
}

func (p *insertOp) tryInPlace(undo UndoWriter, t *Tree) bool {
	var r path
	r.undo = undo
	if !r.descend(p.w, t, p.cell.key) {
		return false
	}
	if r.delta {
		return p.deltaInPlace(&r, t)
	}
	if p.cursor != nil {
		if r.steps[0].ref == p.cursor.last {
			return false // clustered inserts: copied once, the leaf serves the insert cursor
		}
		p.cursor.setLeaf(r.steps[0].ref, nil, 0, false)
	}
	b, n := r.steps[0].b, r.steps[0].n
	i, found, shared := leafSearch(b, n, p.cell.key)
	if found {
		return p.replaceInPlace(&r, i)
	}
	if !p.cell.fits(b) || !r.checkCounts(0) || !r.begin() {
		return false
	}
	defer r.end()
	r.saveLeaf()
	leafInsert(b, i, &p.cell, shared)
	r.addRows(1)
	t.Rows++
	return true
}

// deltaInPlace puts the cell into the delta of the leaf. If the branch may no longer be changed in
// place, because of a new reader, the copying path stores the new reference there.
func (p *insertOp) deltaInPlace(r *path, t *Tree) bool {
	var d proposedDelta
	if ok, err := p.proposeDelta(r.steps[0].ref, &d); err != nil || !ok || d.free < 0 || !r.checkCounts(0) {
		return false
	}
	ref, err := p.storeDelta(r.steps[0].ref, &d)
	if err != nil {
		return false // the copying path returns the error
	}
	p.was = d.was
	if !r.begin() {
		p.newDelta = ref
		return false
	}
	defer r.end()
	if ref != r.steps[0].ref {
		r.repoint(ref)
	}
	if p.cursor != nil {
		p.cursor.setLeaf(ref, nil, 0, false)
	}
	if !p.was.Found {
		r.addRows(1)
		t.Rows++
	}
	return true
}

func (p *insertOp) replaceInPlace(r *path, i int) bool {
	b, n := r.steps[0].b, r.steps[0].n
	off := slot(b, n, i)
	s := cellPosAt(b, off)
	old, size := cellSize(b, off), p.cell.sizeIn(b)
	if p.retag {
		size = old
	}
	was := infoAtCell(b, s)
	switch {
	case infoAt(b, s)&infoOverflow != 0, p.retag && (was.Tag == 0 || p.cell.tag == 0), !p.cell.matches(b):
		return false
	case size > old && leafFree(b) < size, !r.begin():
		return false
	}
	defer r.end()
	p.was = was
	if p.retag {
		at := tagOffset(b, s)
		r.undo.Record(r.steps[0].ref.Pgid, at, at+tagSize)
		setTagAt(b, s, p.cell.tag)
		return true
	}
	r.saveCell(off)
	if size > old {
		r.saveLeaf()
	} else { // the new cell takes the place of the old one
		r.undo.Record(r.steps[0].ref.Pgid, offCount, offLeafHeads)
	}
	leafReplace(b, i, &p.cell)
	return true
}

// deleteInPlace deletes the cell that locate found, if its page may be changed in place and needs
// no rebalancing.
func (d *deleteOp) deleteInPlace(t *Tree) bool {
	if d.top >= pathDepth {
		return false
	}
	if d.undo = d.w.Undo(); d.undo == nil || !d.undo.Changeable(d.steps[0].ref) {
		return false
	}
	b, n := d.steps[0].b, d.steps[0].n
	off := slot(b, n, d.cell)
	left := UsedBytes(b) - cellSize(b, off) - leafEntry
	if n < 2 || left < payload(b)/mergeFraction || infoAt(b, cellPosAt(b, off))&infoOverflow != 0 ||
		t.Rows < 2 ||
		!d.checkCounts(2) ||
		!d.begin() {
		return false
	}
	defer d.end()
	if off == lo(b) {
		d.saveCell(off) // leafRemove clears it
	}
	d.saveLeaf()
	leafRemove(b, d.cell)
	d.addRows(-1)
	t.Rows--
	return true
}
