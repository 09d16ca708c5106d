package btree

import (
	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/pager"
)

// Rows that fit into their page as it is are put there, and taken out, without a copy of the page, if nobody else reads it: what
// is overwritten is kept, some hundred bytes of a leaf and the row counts above it. Rows that go into a patch give their leaf another number, which is
// changed in the branch above it in the same way. Whatever changes more than one leaf
// (splits, merges, shifts) or values in extents, and whatever is damaged, is for the way that copies: see editor.

// A trail is the way down to a leaf, which is at 0. In a tree that is too deep for it nothing is changed in place.
type trail struct {
	undo *pager.Keeper
	path [trailDepth]stop // by level; path[0] is the leaf
	top  uint8            // level of the root

	// patch says that the leaf may not be changed, but may get a patch: only its reference is in path[0].
	patch bool
}

// trailDepth bounds what is cleared for each change: few trees are as deep.
const trailDepth = 8

// A stop is a step and which page it is.
type stop struct {
	ref pager.Ref
	step
}

// set is that of a step.
func (s *stop) set(ref pager.Ref, b []byte, i, n int) {
	s.ref.Pgid, s.ref.Epoch = ref.Pgid, ref.Epoch
	s.step.set(b, i, n)
}

// open says that the leaf that the trail leads to may be changed: then keeping begins, and close ends it.
func (r *trail) open() bool {
	for level := uint8(1); level <= r.top; level++ {
		if !r.undo.Reachable(r.path[level].ref) {
			return false
		}
	}
	return r.undo.Enter()
}

func (r *trail) close() { r.undo.Leave() }

// keepLeaf keeps the fields, heads and slots of the leaf, and that there is nothing between these and the cells.
func (r *trail) keepLeaf() {
	id, b := r.path[0].ref.Pgid, r.path[0].b
	end := offLeafHeads + leafEntry*count(b)
	r.undo.Keep(id, offCount, end)
	r.undo.KeepZeros(id, end, lo(b))
}

// keepCell keeps the bytes of the cell at off.
func (r *trail) keepCell(off int) {
	r.undo.Keep(r.path[0].ref.Pgid, off, off+cellSize(r.path[0].b, off))
}

// turn makes the branch above the leaf point to ref instead.
func (r *trail) turn(ref pager.Ref) {
	s := &r.path[1]
	at := child(s.n, s.i)
	r.undo.Keep(s.ref.Pgid, at, at+childSize)
	setChildRef(s.b, s.n, s.i, ref)
}

// count adds more, which is 1 or -1, to the rows that the branches count.
func (r *trail) count(more int) {
	for level := uint8(1); level <= r.top; level++ {
		s := &r.path[level]
		at := child(s.n, s.i) + 8
		r.undo.Keep(s.ref.Pgid, at, at+8)
		setChildRows(s.b, s.n, s.i, childRows(s.b, s.n, s.i)+uint64(more))
	}
}

// counted says that every branch counts so many rows at least, and one more may be added.
func (r *trail) counted(least uint64) bool {
	for level := uint8(1); level <= r.top; level++ {
		s := &r.path[level]
		if rows := rowsBelow(s.b, s.n, s.i); rows < least || rows >= maxRows {
			return false
		}
	}
	return true
}

// descend goes to the leaf where key is or belongs, if that, or what the branch above it points to, may be changed in place.
func (r *trail) descend(w Writer, t *Tree, key []byte, by way) bool {
	if t.Depth > trailDepth {
		return false
	}
	r.top = t.Depth - 1
	ref := t.Root
	for level := r.top; ; level-- {
		if level == 0 && !r.undo.Changeable(ref) {
			r.path[0].ref = ref
			r.patch = r.top > 0 && r.undo.Lent() && w.Patchable(ref) > 0
			return r.patch
		}
		b, n, err := pageAt(w, ref, level)
		if err != nil || n == 0 {
			return false // for the other way to tell
		}
		if level < r.top && !by.known() {
			prefetch.Bytes(b[:nearBytes(level)])
		}
		if level == 0 {
			r.path[0].set(ref, b, 0, n)
			return true
		}
		i := by.child(b, n, level, key)
		r.path[level].set(ref, b, i, n)
		ref = childRef(b, n, i)
	}
}

// inPlace puts the cell, which has its value with it, if its page need not be copied for it.
func (p *putter) inPlace(t *Tree) bool {
	undo := p.w.InPlace()
	return undo != nil && t.Depth > 0 && p.putInPlace(undo, t)
}

func (p *putter) putInPlace(undo *pager.Keeper, t *Tree) bool {
	var r trail
	r.undo = undo
	if !r.descend(p.w, t, p.cell.key, p.way) {
		return false
	}
	if r.patch {
		return p.patchInPlace(&r, t)
	}
	if p.finger != nil {
		if r.path[0].ref == p.finger.last {
			return false // rows come close together: once copied, a finger points to the page
		}
		p.finger.point(r.path[0].ref, nil, 0, false)
	}
	b, n := r.path[0].b, r.path[0].n
	i, found, shared := leafSearch(b, n, p.cell.key)
	if found {
		return p.replaceInPlace(&r, i)
	}
	if !p.cell.fits(b) || !r.counted(0) || !r.open() {
		return false
	}
	defer r.close()
	r.keepLeaf()
	leafInsert(b, i, &p.cell, shared)
	r.count(1)
	t.Rows++
	return true
}

// patchInPlace puts the cell into the patch of the leaf. Where that cannot be told to the branch any more, since a reader has come meanwhile, the way that copies
// tells it.
func (p *putter) patchInPlace(r *trail, t *Tree) bool {
	var d draft
	if ok, err := p.draft(r.path[0].ref, &d); err != nil || !ok || d.room < 0 || !r.counted(0) {
		return false
	}
	ref, err := p.carry(r.path[0].ref, &d)
	if err != nil {
		return false // it will be met again
	}
	p.was = d.was
	if !r.open() {
		p.patched = ref
		return false
	}
	defer r.close()
	if ref != r.path[0].ref {
		r.turn(ref)
	}
	if p.finger != nil {
		p.finger.point(ref, nil, 0, false)
	}
	if !p.was.Found {
		r.count(1)
		t.Rows++
	}
	return true
}

func (p *putter) replaceInPlace(r *trail, i int) bool {
	b, n := r.path[0].b, r.path[0].n
	off := slot(b, n, i)
	s := spotAt(b, off)
	old, size := cellSize(b, off), p.cell.sizeIn(b)
	if p.retag {
		size = old
	}
	was := aboutAt(b, s)
	switch {
	case infoAt(b, s)&infoOverflow != 0, p.retag && (was.Tag == 0 || p.cell.tag == 0), !p.cell.matches(b):
		return false
	case size > old && leafFree(b) < size, !r.open():
		return false
	}
	defer r.close()
	p.was = was
	if p.retag {
		at := tagPlace(b, s)
		r.undo.Keep(r.path[0].ref.Pgid, at, at+tagSize)
		setTagAt(b, s, p.cell.tag)
		return true
	}
	r.keepCell(off)
	if size > old {
		r.keepLeaf()
	} else { // the new cell takes the place of the old one
		r.undo.Keep(r.path[0].ref.Pgid, offCount, offLeafHeads)
	}
	leafReplace(b, i, &p.cell)
	return true
}

// inPlace deletes the cell that look has found if its page need not be copied for it, nor mended afterwards.
func (d *deleter) inPlace(t *Tree) bool {
	if d.top >= trailDepth {
		return false
	}
	if d.undo = d.w.InPlace(); d.undo == nil || !d.undo.Changeable(d.path[0].ref) {
		return false
	}
	b, n := d.path[0].b, d.path[0].n
	off := slot(b, n, d.cell)
	left := used(b) - cellSize(b, off) - leafEntry
	if n < 2 || left < payload(b)/mergeFraction || infoAt(b, spotAt(b, off))&infoOverflow != 0 || t.Rows < 2 || !d.counted(2) || !d.open() {
		return false
	}
	defer d.close()
	if off == lo(b) {
		d.keepCell(off) // it is cleared
	}
	d.keepLeaf()
	leafRemove(b, d.cell)
	d.count(-1)
	t.Rows--
	return true
}
