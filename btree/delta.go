package btree

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// A leaf that is changed for the first time since a checkpoint need not be copied: its changes may
// be kept as a delta against the older page, its base. Puts go into deltas, and a split makes two
// deltas of one base. Any other change of such a leaf makes it a page again.
//
// The encoding of a delta, in memory only:
//
//	0      2      4      6       8
//	+------+------+------+-------+------+------+--- ...
//	| free | from | to   | split | cell | cell |
//	| u16  | u16  | u16  | u16   |      |      |
//	+------+------+------+-------+------+------+--- ...
//
// The leaf has cells [from, to) of the base, and the cells that were put since, in no order: these
// replace base cells of the same key. The put cells have a header each, match the base, have no
// overflow extents, and no two of them have the same key. free is the free space in bytes that is
// left in the page that ApplyDelta makes; that page is uniform if the base is. split is 1 if [from,
// to) is part of a split leaf.
const (
	deltaFree   = 0
	deltaFrom   = 2
	deltaTo     = 4
	deltaSplit  = 6
	deltaHeader = 8
)

// deltaFind returns the offset of the cell of key in changes, 0 if there is none.
func deltaFind(changes, key []byte) int {
	for off := deltaHeader; off < len(changes); {
		s := withHeader(off)
		if bytes.Equal(keyAt(changes, s), key) {
			return off
		}
		off += deltaCell(changes, off)
	}
	return 0
}

func deltaCell(changes []byte, off int) int {
	return cellHeader + len(bodyAt(changes, withHeader(off)))
}

// inBase reports whether the leaf has cell i of the base. Cells outside [from, to) may lie between
// the separators of the leaf again, after the leaf that got them is freed.
func inBase(changes []byte, i int) bool {
	return ld16(changes, deltaFrom) <= i && i < ld16(changes, deltaTo)
}

// baseCell returns the position of key among cells [from, to) of leaf, the base of a delta, and
// whether the key is there.
func baseCell(leaf []byte, from, to int, key []byte) (i int, found bool) {
	i, found, _ = leafSearch(leaf, count(leaf), key)
	if i < from || i >= to {
		return min(max(i, from), to), false
	}
	return i, found
}

// ApplyDelta applies the changes to leaf b, a copy of their base.
func ApplyDelta(b, changes []byte) error {
	if ld16(changes, deltaSplit) != 0 {
		e := pageEditor{}
		s := e.scratchPages(len(b))
		s.cells = appendCells(s.cells[:0], s.copyOf(b, 0), ld16(changes, deltaFrom), ld16(changes, deltaTo))
		writeCells(b, s.cells)
		e.releaseScratch()
	}
	for off := deltaHeader; off < len(changes); off += deltaCell(changes, off) {
		s := withHeader(off) // of a cell with an inline value
		c := cell{
			key: keyAt(changes, s), val: valueAt(changes, s),
			tag: tagAt(changes, s), info: infoAt(changes, s),
		}
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

// deltaMismatch is the error for a delta that does not fit its leaf. It means a bug, not damage in
// the file.
func deltaMismatch(b []byte) error {
	h := pager.ReadHeader(b)
	return badfile.Page("", uint64(h.Pgid), -1, "no space for the delta of this page")
}

// proposedDelta is the delta that a leaf would have after the insertOp.
type proposedDelta struct {
	base    pager.Ref
	leaf    []byte // the base page
	changes []byte // in the scratch
	free    int    // free space left in the leaf; below 0: the leaf must split
	was     Info   // the replaced row
}

// proposeDelta fills d for leaf ref. It returns false if the leaf can have no delta, or the delta
// has no space for the cell even after a split.
func (p *insertOp) proposeDelta(ref pager.Ref, d *proposedDelta) (ok bool, err error) {
	if p.retag || p.cell.info&infoOverflow != 0 || p.cursor != nil && p.cursor.last == ref {
		return false, nil // a leaf with clustered inserts becomes a page
	}
	most := p.w.CanDelta(ref)
	if most == 0 {
		return false, nil
	}
	base, leaf, changes, err := p.w.DeltaBase(ref)
	if err != nil {
		return false, err
	}
	if ld32(leaf, offKind)&0xffff != kindWord(0) {
		return false, misplaced(ref, leaf, 0)
	}
	if !p.cell.matches(leaf) {
		return false, nil
	}
	k := count(leaf)
	fresh := p.scratchPages(p.w.PageSize()).page[0]
	if changes == nil {
		clear(fresh[:deltaHeader])
		binary.LittleEndian.PutUint16(fresh[deltaFree:], uint16(leafFree(leaf)))
		binary.LittleEndian.PutUint16(fresh[deltaTo:], uint16(k))
		changes = fresh[:deltaHeader]
	}
	free, end, was := ld16(changes, deltaFree), len(changes), Info{}
	size, at := p.cell.size(), deltaFind(changes, p.cell.key)
	if at > 0 { // the row was changed before
		if was = infoAtCell(changes, withHeader(at)); deltaCell(changes, at) != size {
			return false, nil
		}
	} else {
		at, end = end, end+size
		more := p.cell.sizeIn(leaf)
		if j, found := baseCell(leaf, ld16(changes, deltaFrom), ld16(changes, deltaTo), p.cell.key); !found {
			free -= more + leafEntry
		} else if s := cellPosOf(leaf, k, j); infoAt(leaf, s)&infoOverflow != 0 {
			return false, nil // its extent must be freed
		} else if was = infoAtCell(leaf, s); more > cellSize(leaf, slot(leaf, k, j)) {
			free -= more
		}
	}
	if end > most {
		return false, nil
	}
	fresh = fresh[:end]
	copy(fresh, changes)
	p.cell.writeHeaded(fresh[at:])
	d.base, d.leaf, d.changes, d.free, d.was = base, leaf, fresh, free, was
	return true, nil
}

// storeDelta stores the proposed delta, which fits, for leaf ref, and returns its new reference.
func (p *insertOp) storeDelta(ref pager.Ref, d *proposedDelta) (pager.Ref, error) {
	binary.LittleEndian.PutUint16(d.changes[deltaFree:], uint16(d.free))
	return p.w.StoreDelta(ref, d.base, d.changes)
}

// putDelta puts the cell into the delta of child i of b, a leaf, if it can have one.
func (p *insertOp) putDelta(b []byte, n, i int) (done bool, err error) {
	fresh := p.newDelta // already has the cell
	if fresh.IsZero() {
		var d proposedDelta
		ref := childRef(b, n, i)
		if ok, err := p.proposeDelta(ref, &d); !ok || err != nil {
			return false, err
		}
		if d.free < 0 {
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
	return true, p.countRow(b, n, i)
}

// splitDelta splits leaf ref into two deltas of its base. changes, which do not fit into one page,
// have the cell of the insertOp already; was is the row that it replaces.
func (p *insertOp) splitDelta(
	b []byte, i int, ref, base pager.Ref, leaf, changes []byte, was Info,
) (done bool, err error) {
	s := p.scratch
	from, to := ld16(changes, deltaFrom), ld16(changes, deltaTo)
	put := putCells(changes)
	s.cells = mergeCells(s.cells[:0], leaf, from, to, put)
	m := splitCells(s.cells, payload(leaf))
	if m == 0 {
		return false, nil
	}
	sp := s.saveSep(separator(s.cells[m-1].key(), s.cells[m].key()))
	cut, _ := baseCell(leaf, from, to, sp)
	j := 0
	for j < len(put) && bytes.Compare(put[j].key(), sp) < 0 {
		j++
	}
	left, lok := buildDelta(s.page[1][:0], leaf, from, cut, put[:j])
	right, rok := buildDelta(left[len(left):], leaf, cut, to, put[j:])
	if !lok || !rok {
		return false, nil
	}
	if ref, err = p.w.StoreDelta(ref, base, left); err != nil {
		return false, err
	}
	rref, err := p.w.StoreDelta(pager.Ref{}, base, right)
	if err != nil {
		return false, err
	}
	n := count(b)
	setChildRef(b, n, i, ref)
	setChildRows(b, n, i, summaryOfCells(s.cells[:m]))
	p.ref, p.page, p.was = ref, nil, was
	p.split, p.pathChanged = true, true
	return true, p.addChild(b, i+1, item{sp, rref, summaryOfCells(s.cells[m:])})
}

// putCells returns the cells of changes in key order.
func putCells(changes []byte) []detachedCell {
	var put []detachedCell
	for off := deltaHeader; off < len(changes); off += deltaCell(changes, off) {
		put = append(put, detach(changes, withHeader(off)))
	}
	slices.SortFunc(put, func(a, b detachedCell) int { return bytes.Compare(a.key(), b.key()) })
	return put
}

// mergeCells appends cells [from, to) of leaf and the put cells, in key order, to cells.
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

// buildDelta appends a delta of cells [from, to) of leaf and the put cells to b. It returns false
// if they may not fit into one leaf.
func buildDelta(b, leaf []byte, from, to int, put []detachedCell) ([]byte, bool) {
	free, n := payload(leaf), count(leaf)
	for j := from; j < to; j++ {
		free -= cellSize(leaf, slot(leaf, n, j)) + leafEntry
	}
	b = append(b, make([]byte, deltaHeader)...)
	for i := range put {
		c := &put[i]
		size := headerIn(leaf) + len(c.body)
		j, found := baseCell(leaf, from, to, c.key())
		if !found {
			free -= size + leafEntry
		} else if size > cellSize(leaf, slot(leaf, n, j)) {
			free -= size
		}
		b = c.appendHeaded(b)
	}
	if free < 0 {
		return nil, false
	}
	binary.LittleEndian.PutUint16(b[deltaFree:], uint16(free))
	binary.LittleEndian.PutUint16(b[deltaFrom:], uint16(from))
	binary.LittleEndian.PutUint16(b[deltaTo:], uint16(to))
	binary.LittleEndian.PutUint16(b[deltaSplit:], 1)
	return b, true
}
