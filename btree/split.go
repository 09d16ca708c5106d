package btree

import (
	"bytes"
	"sync"

	"github.com/ebbkv/ebb/pager"
)

// A scratch is memory for operations that rewrite pages. One operation holds it at a time, and one
// function fills it and writes a page from it: nothing in it but sep survives from one page to the
// next.
type scratch struct {
	page  [2][]byte      // copies of pages that are overwritten while their cells are still needed
	cell  []byte         // the body of the cell to put
	val   []byte         // the value of a cell whose tag changes
	sep   []byte         // the separator of a split
	cells []detachedCell // point into the other buffers, or into pages
	items []item         // likewise
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// scratchPages returns the scratch of the operation, for pages of pageSize.
func (e *pageEditor) scratchPages(pageSize int) *scratch {
	if e.scratch == nil {
		e.scratch = scratches.Get().(*scratch)
		for i := range e.scratch.page {
			if cap(e.scratch.page[i]) < pageSize {
				e.scratch.page[i] = make([]byte, pageSize)
			}
		}
	}
	return e.scratch
}

// releaseScratch returns the scratch to the pool. It first clears pointers into pages, whose memory
// may be unmapped later.
func (e *pageEditor) releaseScratch() {
	if s := e.scratch; s != nil {
		clear(s.cells[:cap(s.cells)])
		clear(s.items[:cap(s.items)])
		scratches.Put(s)
		e.scratch = nil
	}
}

// copyOf copies a page into one of the two page buffers.
func (s *scratch) copyOf(b []byte, i int) []byte {
	s.page[i] = s.page[i][:len(b)]
	copy(s.page[i], b)
	return s.page[i]
}

// saveSep copies a separator to memory that only the next separator overwrites.
func (s *scratch) saveSep(b []byte) []byte {
	s.sep = append(s.sep[:0], b...)
	return s.sep
}

// ascending reports whether the last two inserts into leaf b, or the last one if i is the end, were
// the cells just before i: keys arrive in ascending order there, and more are likely. New cells get
// ever lower offsets, so the newest cell is the one at lo. With random keys this is seldom true,
// and costs one uneven split at most.
func ascending(b []byte, i int) bool {
	n := count(b)
	if i < 2 || slot(b, n, i-1) != lo(b) {
		return false
	}
	return i == n || slot(b, n, i-2) == lo(b)+cellSize(b, lo(b))
}

// splitLeaf splits b, which is full, in two, with the cell of the insertOp at i.
func (p *insertOp) splitLeaf(b []byte, i int) error {
	ref, rb, err := p.w.New(pager.KindLeaf, 0)
	if err != nil {
		return err
	}
	n := count(b)
	p.split, p.right = true, ref
	if i == n && (p.rightmost || ascending(b, i)) {
		// Ascending inserts fill their pages.
		setLo(rb, len(rb))
		last := detach(b, cellPosOf(b, n, n-1))
		if int(last.klen) == len(p.cell.key) && last.info == p.cell.info {
			initLeaf(rb, &p.cell) // more cells of their shape are likely
		}
		leafInsert(rb, 0, &p.cell, true)
		p.left, p.ref, p.page = p.ref, ref, rb
	} else {
		up := !p.was.Found && ascending(b, i)
		cells := p.collectCells(b, i)
		m := splitCells(cells, payload(b))
		if up {
			if k := i + 1; cellsSize(cells[:k]) <= payload(b) {
				m = k // the next key goes to the end of the left page
			}
		}
		if m == 0 {
			// A large cell of another header makes the others larger by their headers: without it
			// they are split in half.
			cells = appendCells(p.scratch.cells[:0], p.scratch.page[0], 0, n)
			if m, p.retry = n/2, true; m == 0 || !uniform(b) {
				return damage(ref, "cells of a full leaf do not fit into two")
			}
		}
		writeLeaf(b, cells[:m])
		writeLeaf(rb, cells[m:])
	}
	p.rows = summary(rb)
	p.sep = separator(leafKey(b, count(b), count(b)-1), leafKey(rb, count(rb), 0))
	return nil
}

// shiftFraction: a neighbour takes cells instead of a split when at least a sixth of it is free.
// Under inserts in random order leaves are then 80 % full on average (78 % at a quarter, 68 % with
// splits alone), and inserts cost the same.
const shiftFraction = 6

// shift makes space in leaf cb, which is full and child i of branch b, by moving cells to the leaf
// left or right of it. With random inserts this keeps pages fuller than splits alone. The cell of
// the insertOp goes to k of cb.
func (p *insertOp) shift(b []byte, i int, cb []byte, k int) (moved bool, err error) {
	if p.rightmost || ascending(cb, k) {
		return false, nil
	}
	n := count(b)
	for _, j := range [2]int{i + 1, i - 1} {
		if j < 0 || j >= n {
			continue
		}
		if rows := int(rowsBelow(b, n, j)); rows*shiftFraction > count(cb)*(shiftFraction-1)+shiftFraction {
			continue // as many rows usually mean as full: spare the cache miss of the page
		}
		ref := childRef(b, n, j)
		if p.w.CanDelta(ref) > 0 {
			continue
		}
		sb, _, err := pageAt(p.w, ref, 0)
		if err != nil {
			return false, err
		}
		if payload(sb)-UsedBytes(sb) < payload(sb)/shiftFraction {
			continue
		}
		left, right, edge := i, j, count(cb)
		if !p.was.Found {
			edge++
		}
		s := p.scratchPages(len(b))
		if j < i {
			left, right, edge = j, i, count(sb)
			s.cells = appendCells(s.cells[:0], s.copyOf(sb, 1), 0, count(sb))
			s.cells = p.collectCellsTo(s.cells, s.copyOf(cb, 0), k)
		} else {
			s.cells = p.collectCellsTo(s.cells[:0], s.copyOf(cb, 0), k)
			s.cells = appendCells(s.cells, s.copyOf(sb, 1), 0, count(sb))
		}
		m := splitCells(s.cells, payload(cb))
		if m == 0 {
			continue
		}
		if bytes.Compare(s.cells[edge-1].key(), s.cells[edge].key()) >= 0 {
			return false, damage(ref, "keys out of order with those of the page beside it")
		}
		sp := separator(s.cells[m-1].key(), s.cells[m].key())
		if !sepFits(b, n, right, len(sp)) {
			continue
		}
		if err := sepBetween(b, n, right-1, right+1, sp); err != nil {
			return false, err
		}
		ref, sb, err = p.edit(ref, 0)
		if err != nil {
			return false, err
		}
		setChildRef(b, n, j, ref)
		if j < i {
			cb, sb = sb, cb
		}
		writeLeaf(cb, s.cells[:m])
		writeLeaf(sb, s.cells[m:])
		setChildRows(b, n, left, summary(cb))
		setChildRows(b, n, right, summary(sb))
		p.replaceSep(b, right, s.saveSep(sp))
		return true, nil
	}
	return false, nil
}

// addChild adds entry i to branch b, and splits b if it is full.
func (p *insertOp) addChild(b []byte, i int, it item) error {
	p.split = false
	if err := sepBetween(b, count(b), i-1, i, it.sep); err != nil {
		return err
	}
	if branchInsert(b, i, it) {
		return nil
	}
	s := p.scratchPages(len(b))
	src := s.copyOf(b, 0)
	items := appendItems(s.items[:0], src)
	items = append(items, item{})
	copy(items[i+1:], items[i:])
	items[i] = it
	s.items = items
	if UsedBytes(b)+branchEntry+len(it.sep) <= payload(b) {
		writeBranch(b, items)
		return nil
	}
	n := len(items)
	m := n - 2
	if !p.rightmost || i < n-1 {
		m = splitItems(items, payload(b))
	}
	if m < 2 {
		return damage(it.ref, "entries of a full branch do not fit into two")
	}
	ref, rb, err := p.w.New(pager.KindBranch, b[offKind+1])
	if err != nil {
		return err
	}
	writeBranch(b, items[:m])
	writeBranch(rb, items[m:])
	if p.rows, err = checkedSummary(ref, rb); err != nil {
		return err
	}
	p.split, p.right = true, ref
	p.sep = s.saveSep(items[m].sep)
	return nil
}

// sepFits reports whether a separator of size bytes fits in place of separator i of branch b.
func sepFits(b []byte, n, i, size int) bool {
	return UsedBytes(b)-sepLen(b, n, i)+size <= payload(b)
}

// sepBetween verifies that s is above separator i and below separator j of branch b, where these
// exist. It fails if keys below lie outside the separators above them, which CheckPage cannot see.
func sepBetween(b []byte, n, i, j int, s []byte) error {
	if i > 0 && bytes.Compare(sep(b, n, i), s) >= 0 || j < n && bytes.Compare(s, sep(b, n, j)) >= 0 {
		return damage(childRef(b, n, i), "keys out of order with the separators in the page above")
	}
	return nil
}

// replaceSep replaces separator i of branch b by s, which fits, and lies outside b and page 0 of
// the scratch.
func (e *pageEditor) replaceSep(b []byte, i int, s []byte) {
	n := count(b)
	free := branchFree(b)
	if c := child(n, i); ld16(b, c+20) == lo(b) {
		free += sepLen(b, n, i)
	}
	if free >= len(s) {
		dropSep(b, n, i)
		setSep(b, n, i, 0, 0)
		putSep(b, n, i, s, n == 2)
		return
	}
	sc := e.scratchPages(len(b))
	sc.items = appendItems(sc.items[:0], sc.copyOf(b, 0))
	sc.items[i].sep = s
	writeBranch(b, sc.items)
}

// splitItems is splitCells for branch entries: each side gets at least two. The separator of the
// first entry on the right goes to the level above.
func splitItems(items []item, limit int) int {
	total := 0
	for _, it := range items {
		total += branchEntry + len(it.sep)
	}
	m, left := 0, 0
	for m < len(items)-2 && (m < 2 || 2*left < total) {
		left += branchEntry + len(items[m].sep)
		m++
	}
	for ; m >= 2; m-- {
		if left <= limit {
			if total-left-len(items[m].sep) > limit {
				break
			}
			return m
		}
		left -= branchEntry + len(items[m-1].sep)
	}
	return 0
}
