package btree

import (
	"bytes"
	"math"

	"github.com/ebbkv/ebb/pager"
)

// DeleteRange removes all keys of [lo, hi) and returns their number. A nil bound is no bound. It
// frees whole subtrees from their branches, and reads their leaves only to find overflow extents.
func DeleteRange(w Writer, t *Tree, lo, hi []byte) (rows uint64, err error) {
	if err := t.checkDepth(); err != nil || t.Depth == 0 {
		return 0, err
	}
	if lo != nil && hi != nil && bytes.Compare(lo, hi) >= 0 {
		return 0, nil
	}
	c := rangeDeleter{pageEditor{w: w}, math.MaxInt}
	rows, err = c.root(t, lo, hi)
	c.releaseScratch()
	return rows, err
}

type rangeDeleter struct {
	pageEditor
	left int // pages that free may still free
}

func (c *rangeDeleter) root(t *Tree, lo, hi []byte) (uint64, error) {
	if lo == nil && hi == nil {
		rows := t.Rows
		_, _, err := c.free(t.Root, t.Depth-1, true)
		*t = Tree{}
		return rows, err
	}
	ref, rows, err := c.deleteRange(t.Root, t.Depth-1, lo, hi)
	if err != nil || rows == 0 {
		return 0, err
	}
	if ref.IsZero() {
		*t = Tree{}
		return rows, nil
	}
	if t.Rows <= rows {
		return 0, damage(t.Root, "more rows below than the %d that the tree counts", t.Rows)
	}
	t.Root = ref
	t.Rows -= rows
	return rows, c.collapse(t)
}

// deleteRange removes [lo, hi) from the subtree at ref, whose root is at level. It returns the new
// reference of that root: zero if no row is left. It copies no page if it removes no row.
func (c *rangeDeleter) deleteRange(
	ref pager.Ref, level uint8, lo, hi []byte,
) (nref pager.Ref, rows uint64, err error) {
	b, n, err := pageAt(c.w, ref, level)
	if err != nil {
		return ref, 0, err
	}
	if level == 0 {
		return c.deleteInLeaf(ref, b, n, lo, hi)
	}
	i, j, loWhole, hiWhole := boundChildren(b, n, lo, hi)
	if i > j {
		return ref, 0, damage(ref, "separators out of order")
	}
	if i == j && !(loWhole && hiWhole) {
		if loWhole {
			lo = nil
		}
		if hiWhole {
			hi = nil
		}
		return c.deleteInChild(ref, b, n, level, i, lo, hi)
	}
	from, to := i, j+1 // children to remove whole
	left, right := edgeChild{i: i}, edgeChild{i: j}
	if !loWhole {
		if left.ref, left.rows, err = c.deleteRange(childRef(b, n, i), level-1, lo, nil); err != nil {
			return ref, 0, err
		}
		if !left.ref.IsZero() {
			from++
		}
	}
	if !hiWhole {
		if right.ref, right.rows, err = c.deleteRange(childRef(b, n, j), level-1, nil, hi); err != nil {
			return ref, 0, err
		}
		if !right.ref.IsZero() {
			to--
		}
	}
	rows = left.rows + right.rows
	for k := i; k <= j; k++ {
		if k == i && !loWhole || k == j && !hiWhole {
			continue
		}
		r := childRows(b, n, k)
		rows += r &^ rowsOverflow
		if _, _, err := c.free(childRef(b, n, k), level-1, r&rowsOverflow != 0); err != nil {
			return ref, 0, err
		}
	}
	if from == to && rows == 0 {
		return ref, 0, nil
	}
	if from == 0 && to == n {
		return pager.Ref{}, rows, c.w.Free(ref)
	}
	ref, err = c.removeChildren(ref, level, from, to, left, right)
	return ref, rows, err
}

// boundChildren returns the children i and j that hold the bounds. A child whose edge is the bound,
// or without a bound on that side, is removed whole.
func boundChildren(b []byte, n int, lo, hi []byte) (i, j int, loWhole, hiWhole bool) {
	i, j, loWhole, hiWhole = 0, n-1, lo == nil, hi == nil
	if !loWhole {
		i = branchSearch(b, n, lo)
		loWhole = i > 0 && bytes.Equal(sep(b, n, i), lo)
	}
	if !hiWhole {
		j = branchSearch(b, n, hi)
		if j > 0 && bytes.Equal(sep(b, n, j), hi) {
			j, hiWhole = j-1, true
		}
	}
	return i, j, loWhole, hiWhole
}

// An edgeChild is a child at a bound: its new reference, zero if it is empty, and its deleted rows.
type edgeChild struct {
	i    int
	ref  pager.Ref
	rows uint64
}

func (e *edgeChild) changed() bool { return e.rows > 0 && !e.ref.IsZero() }

// removeChildren removes children [from, to) of the branch at ref, and updates and rebalances those
// at the edges.
func (c *rangeDeleter) removeChildren(
	ref pager.Ref, level uint8, from, to int, left, right edgeChild,
) (pager.Ref, error) {
	ref, b, err := c.edit(ref, level)
	if err != nil {
		return ref, err
	}
	n := count(b)
	for _, e := range [2]edgeChild{left, right} {
		if !e.changed() {
			continue
		}
		setChildRef(b, n, e.i, e.ref)
		if err := subRows(b, n, e.i, e.rows); err != nil {
			return ref, err
		}
	}
	branchRemove(b, from, to)
	// The right edge first, so that the index of the left one stays.
	if right.changed() {
		if err := c.rebalanceEdge(b, from, level-1); err != nil {
			return ref, err
		}
	}
	if left.changed() {
		return ref, c.rebalanceEdge(b, from-1, level-1)
	}
	return ref, nil
}

// deleteInChild is deleteRange for bounds in the same child i.
func (c *rangeDeleter) deleteInChild(
	ref pager.Ref, b []byte, n int, level uint8, i int, lo, hi []byte,
) (pager.Ref, uint64, error) {
	cref, rows, err := c.deleteRange(childRef(b, n, i), level-1, lo, hi)
	if err != nil || rows == 0 {
		return ref, 0, err
	}
	if cref.IsZero() && n == 1 {
		return pager.Ref{}, rows, c.w.Free(ref)
	}
	ref, b, err = c.edit(ref, level)
	if err != nil {
		return ref, 0, err
	}
	if cref.IsZero() {
		branchRemove(b, i, i+1)
		return ref, rows, nil
	}
	setChildRef(b, n, i, cref)
	if err := subRows(b, n, i, rows); err != nil {
		return ref, 0, err
	}
	return ref, rows, c.rebalanceEdge(b, i, level-1)
}

// rebalanceEdge rebalances child i of b, which lost entries, until it is full enough or nothing
// changes.
func (c *rangeDeleter) rebalanceEdge(b []byte, i int, level uint8) error {
	for try := 0; try < 2 && i < count(b); try++ {
		cb, _, err := pageAt(c.w, childRef(b, count(b), i), level)
		if err != nil || !underfull(cb) {
			return err
		}
		before := count(b)
		if err := c.rebalance(b, i, level); err != nil {
			return err
		}
		if count(b) == before {
			return nil
		}
		if i == before-1 {
			i-- // it was merged with the child on its left
		}
	}
	return nil
}

func (c *rangeDeleter) deleteInLeaf(
	ref pager.Ref, b []byte, n int, lo, hi []byte,
) (pager.Ref, uint64, error) {
	from, to := 0, n
	if lo != nil {
		from, _, _ = leafSearch(b, n, lo)
	}
	if hi != nil {
		to, _, _ = leafSearch(b, n, hi)
	}
	if from >= to {
		return ref, 0, nil
	}
	rows := uint64(to - from)
	for i := from; i < to; i++ {
		if err := c.freeExtent(b, cellPosOf(b, n, i)); err != nil {
			return ref, 0, err
		}
	}
	if from == 0 && to == n {
		return pager.Ref{}, rows, c.w.Free(ref)
	}
	ref, b, err := c.edit(ref, 0)
	if err != nil {
		return ref, 0, err
	}
	s := c.scratchPages(len(b))
	src := s.copyOf(b, 0)
	s.cells = appendCells(appendCells(s.cells[:0], src, 0, from), src, to, n)
	writeLeaf(b, s.cells)
	return ref, rows, nil
}

// FreeTree frees about maxPages pages of an obsolete tree, from the right, and leaves a smaller
// tree with the right row counts. done means that the tree is empty. FreeTree reads leaves only to
// find extents, whose pages count.
func FreeTree(w Writer, t *Tree, maxPages int) (done bool, err error) {
	if err := t.checkDepth(); err != nil || t.Depth == 0 {
		return err == nil, err
	}
	c := rangeDeleter{pageEditor{w: w}, max(maxPages, 1)}
	ref, rows, err := c.free(t.Root, t.Depth-1, true)
	c.releaseScratch()
	if err != nil {
		return false, err
	}
	if ref.IsZero() {
		*t = Tree{}
		return true, nil
	}
	if t.Rows <= rows {
		return false, damage(ref, "more rows below than the %d that the tree counts", t.Rows)
	}
	t.Root = ref
	t.Rows -= rows
	return false, nil
}

// free frees the subtree at ref, whose root is at level, from the right, until no pages are left. It
// returns the number of deleted rows and the new reference of the subtree's root, zero when all of
// it is freed. overflow says that its leaves may have extents: others are not read.
func (c *rangeDeleter) free(
	ref pager.Ref, level uint8, overflow bool,
) (nref pager.Ref, rows uint64, err error) {
	if level == 0 && !overflow {
		c.left--
		return pager.Ref{}, 0, c.w.Free(ref)
	}
	b, n, err := pageAt(c.w, ref, level)
	if err != nil {
		return ref, 0, err
	}
	if level == 0 {
		for i := range n {
			s := cellPosOf(b, n, i)
			if info := infoAt(b, s); info&infoOverflow != 0 {
				c.left -= int(pager.ExtentPages(int(info&infoSize), len(b)))
				if err := c.freeExtent(b, s); err != nil {
					return ref, 0, err
				}
			}
		}
		c.left--
		return pager.Ref{}, uint64(n), c.w.Free(ref)
	}
	keep := n
	var last pager.Ref // child keep-1, if only part of it is freed
	var lastRows uint64
	for keep > 0 && c.left > 0 {
		r := childRows(b, n, keep-1)
		cref, crows, err := c.free(childRef(b, n, keep-1), level-1, r&rowsOverflow != 0)
		if err != nil {
			return ref, 0, err
		}
		if !cref.IsZero() {
			last, lastRows = cref, crows
			break
		}
		rows += r &^ rowsOverflow
		keep--
	}
	rows += lastRows
	if keep == 0 {
		c.left--
		return pager.Ref{}, rows, c.w.Free(ref)
	}
	ref, b, err = c.edit(ref, level)
	if err != nil {
		return ref, 0, err
	}
	if !last.IsZero() {
		setChildRef(b, n, keep-1, last)
		if err := subRows(b, n, keep-1, lastRows); err != nil {
			return ref, 0, err
		}
	}
	branchRemove(b, keep, n)
	return ref, rows, nil
}
