package btree

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// A leaf that is changed for the first time since a checkpoint need not be copied: what changes in
// it may be kept as a patch beside the page that it was, its base. Rows are put into patches, and
// leaves are split into patches of one base; whatever else is to happen to a patched leaf makes it
// a page again.
//
// The changes of a patch, in memory only:
//
//	0      2      4      6       8
//	+------+------+------+-------+------+------+--- ...
//	| room | from | to   | split | cell | cell |
//	| u16  | u16  | u16  | u16   |      |      |
//	+------+------+------+-------+------+------+--- ...
//
// Of the cells of the base [from, to) are there, and those that were put since, in no order: a key
// of the base that is among them is replaced. Those that were put are cells with a header each,
// match the base, have no overflow extents, and no two of them have the same key. room is what
// cells may still take of the free space of the page that Merge makes, which is uniform if the base
// is. split is 1 if [from, to) was cut out of a leaf.
const (
	patchRoom  = 0
	patchFrom  = 2
	patchTo    = 4
	patchSplit = 6
	patchHead  = 8
)

// deltaFind returns the offset of the cell of key among changes, 0 if there is none.
func deltaFind(changes, key []byte) int {
	for off := patchHead; off < len(changes); {
		s := withHeader(off)
		if bytes.Equal(keyAt(changes, s), key) {
			return off
		}
		off += deltaCell(changes, off)
	}
	return 0
}

// deltaCell is the size of the cell at off of changes.
func deltaCell(changes []byte, off int) int {
	return cellHeader + len(bodyAt(changes, withHeader(off)))
}

// inBase says that cell i of the base is there. Those that are not may come to lie between the
// separators of the leaf again, when the leaf that got them has gone.
func inBase(changes []byte, i int) bool {
	return ld16(changes, patchFrom) <= i && i < ld16(changes, patchTo)
}

// baseCell returns the place of key among cells [from, to) of leaf, the base of a patch, and
// whether it is there.
func baseCell(leaf []byte, from, to int, key []byte) (i int, found bool) {
	i, found, _ = leafSearch(leaf, count(leaf), key)
	if i < from || i >= to {
		return min(max(i, from), to), false
	}
	return i, found
}

// ApplyDelta makes the changes in leaf b, which holds what their base does.
func ApplyDelta(b, changes []byte) error {
	if ld16(changes, patchSplit) != 0 {
		e := pageEditor{}
		s := e.scratchPages(len(b))
		s.cells = appendCells(s.cells[:0], s.copyOf(b, 0), ld16(changes, patchFrom), ld16(changes, patchTo))
		layCells(b, s.cells)
		e.releaseScratch()
	}
	for off := patchHead; off < len(changes); off += deltaCell(changes, off) {
		c := cellAt(changes, withHeader(off))
		i, found, shared := leafSearch(b, count(b), c.key)
		switch {
		case found:
			if !leafReplace(b, i, &c) {
				return deltaMismatch(b)
			}
		case !c.fits(b):
			return deltaMismatch(b)
		default:
			leafInsert(b, i, &c, shared)
		}
	}
	return nil
}

// deltaMismatch tells of a patch that does not fit its leaf: not of damage in the file, nor of
// anything that should ever be.
func deltaMismatch(b []byte) error {
	h := pager.ReadHeader(b)
	return badfile.Page("", uint64(h.Pgid), -1, "no room for what has changed in it")
}

// cellAt is the cell at s, which has its value with it.
func cellAt(b []byte, s cellPos) cell {
	return cell{key: keyAt(b, s), val: valueAt(b, s), tag: tagAt(b, s), info: infoAt(b, s)}
}

// proposedDelta is what the patch of a leaf would be with the cell of a putter in it.
type proposedDelta struct {
	base    pager.Ref
	leaf    []byte // the base
	changes []byte // in the scratch
	room    int    // that is left in the leaf; below 0: it has to be split
	was     Info   // the row that is replaced
}

// proposeDelta makes d that of leaf ref, if that is Patchable and has room for the cell in a patch,
// or does when it is split.
func (p *insertOp) proposeDelta(ref pager.Ref, d *proposedDelta) (ok bool, err error) {
	if p.retag || p.cell.info&infoOverflow != 0 || p.cursor != nil && p.cursor.last == ref {
		return false, nil // rows that come close together are put into a page
	}
	most := p.w.CanDelta(ref)
	if most == 0 {
		return false, nil
	}
	base, leaf, changes, err := p.w.DeltaBase(ref)
	if err != nil {
		return false, err
	}
	if ld32(leaf, offKind)&0xffff != place(0) {
		return false, misplaced(ref, leaf, 0)
	}
	if !p.cell.matches(leaf) {
		return false, nil
	}
	k := count(leaf)
	fresh := p.scratchPages(p.w.PageSize()).page[0]
	if changes == nil {
		clear(fresh[:patchHead])
		binary.LittleEndian.PutUint16(fresh[patchRoom:], uint16(leafFree(leaf)))
		binary.LittleEndian.PutUint16(fresh[patchTo:], uint16(k))
		changes = fresh[:patchHead]
	}
	room, end, was := ld16(changes, patchRoom), len(changes), Info{}
	size, at := p.cell.size(), deltaFind(changes, p.cell.key)
	if at > 0 { // it has changed before
		if was = infoAtCell(changes, withHeader(at)); deltaCell(changes, at) != size {
			return false, nil
		}
	} else {
		at, end = end, end+size
		more := p.cell.sizeIn(leaf)
		if j, found := baseCell(leaf, ld16(changes, patchFrom), ld16(changes, patchTo), p.cell.key); !found {
			room -= more + leafEntry
		} else if s := cellPosOf(leaf, k, j); infoAt(leaf, s)&infoOverflow != 0 {
			return false, nil // its extent is to be given back
		} else if was = infoAtCell(leaf, s); more > cellSize(leaf, slot(leaf, k, j)) {
			room -= more
		}
	}
	if end > most {
		return false, nil
	}
	fresh = fresh[:end]
	copy(fresh, changes)
	p.cell.writeHeaded(fresh[at:])
	d.base, d.leaf, d.changes, d.room, d.was = base, leaf, fresh, room, was
	return true, nil
}

// storeDelta makes the draft, which has room, the patch of leaf ref, and returns what that is then.
func (p *insertOp) storeDelta(ref pager.Ref, d *proposedDelta) (pager.Ref, error) {
	binary.LittleEndian.PutUint16(d.changes[patchRoom:], uint16(d.room))
	return p.w.StoreDelta(ref, d.base, d.changes)
}

// putDelta puts the cell into the patch of child i of b, a leaf, if that can be.
func (p *insertOp) putDelta(b []byte, n, i int) (done bool, err error) {
	fresh := p.newDelta // in which the cell is already
	if fresh.IsZero() {
		var d proposedDelta
		ref := childRef(b, n, i)
		if ok, err := p.proposeDelta(ref, &d); !ok || err != nil {
			return false, err
		}
		if d.room < 0 {
			if p.rightmost {
				return false, nil
			}
			return p.splitDelta(b, i, ref, d.base, d.leaf, d.changes, d.was)
		}
		if fresh, err = p.storeDelta(ref, &d); err != nil {
			return false, err
		}
		p.was = d.was
	}
	setChildRef(b, n, i, fresh)
	p.ref, p.page = fresh, nil
	return true, p.checkCounts(b, n, i)
}

// splitDelta splits what ref names, which is leaf, its base, but for changes that do not fit, into
// two patches. was is the row that the cell of the putter, among the changes, replaces.
func (p *insertOp) splitDelta(
	b []byte,
	i int,
	ref, base pager.Ref,
	leaf, changes []byte,
	was Info,
) (done bool, err error) {
	s := p.scratch
	from, to := ld16(changes, patchFrom), ld16(changes, patchTo)
	put := putCells(changes)
	s.cells = mergeCells(s.cells[:0], leaf, from, to, put)
	m := cutCells(s.cells, payload(leaf))
	if m == 0 {
		return false, nil
	}
	sp := s.keepSep(separator(s.cells[m-1].key(), s.cells[m].key()))
	cut, _ := baseCell(leaf, from, to, sp)
	j := 0
	for j < len(put) && bytes.Compare(put[j].key(), sp) < 0 {
		j++
	}
	left, lok := layDelta(s.page[1][:0], leaf, from, cut, put[:j])
	right, rok := layDelta(left[len(left):], leaf, cut, to, put[j:])
	if !lok || !rok {
		return false, nil
	}
	if ref, err = p.w.StoreDelta(ref, base, left); err != nil {
		return false, err
	}
	rref, err := p.w.NewDelta(base, right)
	if err != nil {
		return false, err
	}
	n := count(b)
	setChildRef(b, n, i, ref)
	setChildRows(b, n, i, cellsSummary(s.cells[:m]))
	p.ref, p.page, p.was = ref, nil, was
	p.split, p.highestChanged, p.hintInvalid = true, 1, true
	return true, p.addChild(b, i+1, item{sp, rref, cellsSummary(s.cells[m:])})
}

// putCells lists the cells of changes in the order of their keys.
func putCells(changes []byte) []detachedCell {
	var put []detachedCell
	for off := patchHead; off < len(changes); off += deltaCell(changes, off) {
		put = append(put, detach(changes, withHeader(off)))
	}
	slices.SortFunc(put, func(a, b detachedCell) int { return bytes.Compare(a.key(), b.key()) })
	return put
}

// mergeCells appends cells [from, to) of leaf and those that were put, in order, to cells.
func mergeCells(cells []detachedCell, leaf []byte, from, to int, put []detachedCell) []detachedCell {
	for _, c := range put {
		j, found := baseCell(leaf, from, to, c.key())
		cells = append(appendCells(cells, leaf, from, j), c)
		if from = j; found {
			from++
		}
	}
	return appendCells(cells, leaf, from, to)
}

// layDelta appends the changes to b that make cells [from, to) of leaf and those that were put a
// leaf of their own, and says false if that may be too small for them.
func layDelta(b, leaf []byte, from, to int, put []detachedCell) ([]byte, bool) {
	room, n := payload(leaf), count(leaf)
	for j := from; j < to; j++ {
		room -= cellSize(leaf, slot(leaf, n, j)) + leafEntry
	}
	b = append(b, make([]byte, patchHead)...)
	for i := range put {
		c := &put[i]
		size := headerIn(leaf) + len(c.body)
		j, found := baseCell(leaf, from, to, c.key())
		if !found {
			room -= size + leafEntry
		} else if size > cellSize(leaf, slot(leaf, n, j)) {
			room -= size
		}
		b = c.appendHeaded(b)
	}
	if room < 0 {
		return nil, false
	}
	binary.LittleEndian.PutUint16(b[patchRoom:], uint16(room))
	binary.LittleEndian.PutUint16(b[patchFrom:], uint16(from))
	binary.LittleEndian.PutUint16(b[patchTo:], uint16(to))
	binary.LittleEndian.PutUint16(b[patchSplit:], 1)
	return b, true
}
