package btree

import (
	"fmt"

	"github.com/ebbkv/ebb/pager"
)

// Put sets key to value and tag, 0 for none, and tells of the row that was there. key and value
// must not point into pages that the transaction may change in place.
func Put(w Writer, t *Tree, key, value []byte, tag int64) (was Info, err error) {
	return (*InsertCursor)(nil).Put(w, t, key, value, tag)
}

// Put is the function Put with what the finger knows of the tree, and points the finger to where
// the row is. A nil finger knows nothing.
func (f *InsertCursor) Put(w Writer, t *Tree, key, value []byte, tag int64) (was Info, err error) {
	was, _, err = f.set(w, t, key, value, tag, pathHint{})
	return was, err
}

// set is Put by a way, as far as that is known. It says at which level the highest branch is that
// ways cannot lean on any more; 0: they all hold.
func (f *InsertCursor) set(
	w Writer,
	t *Tree,
	key, value []byte,
	tag int64,
	by pathHint,
) (was Info, reshaped uint8, err error) {
	pageSize := w.PageSize()
	if len(key) > MaxKey(pageSize) {
		return Info{}, 0, fmt.Errorf("%w: %d bytes, the limit is %d", ErrKeyTooLarge, len(key), MaxKey(pageSize))
	}
	if len(value) > MaxValue {
		return Info{}, 0, fmt.Errorf("%w: %d bytes, the limit is %d", ErrValueTooLarge, len(value), MaxValue)
	}
	if err := t.checkDepth(); err != nil {
		return Info{}, 0, err
	}
	var c cell
	c.set(key, value, tag)
	if len(value) > MaxInline(pageSize) {
		// The extent comes first: when there is no space for it, nothing is changed yet.
		if c.ref, err = w.NewExtent(value); err != nil {
			return Info{}, 0, err
		}
		c.info |= infoOverflow
	} else if was, done := f.put(t, &c); done {
		return was, 0, nil
	}
	return f.descend(w, t, &c, by)
}

// descend is Put of a cell that is not put where the finger points.
func (f *InsertCursor) descend(
	w Writer,
	t *Tree,
	c *cell,
	by pathHint,
) (was Info, reshaped uint8, err error) {
	var p insertOp // field by field: a literal would be made elsewhere and copied
	p.w, p.rightmost, p.cursor, p.hint = w, true, f, by
	p.cell.key, p.cell.val, p.cell.ref, p.cell.tag, p.cell.info = c.key, c.val, c.ref, c.tag, c.info
	if c.info&infoOverflow == 0 && !f.Beyond(c.key) && p.putInPlace(t) {
		p.releaseScratch()
		return p.was, 0, nil
	}
	err = p.put(t)
	p.releaseScratch()
	if f != nil && !p.left.IsZero() {
		f.filled++
	}
	switch {
	case f == nil:
	case err != nil || p.hintInvalid || t.Depth > insertCursorDepth:
		f.reset()
	default:
		if !p.left.IsZero() && f.last == p.left {
			f.last = p.ref // rows that come in order have gone on to the next leaf
		}
		f.setLeaf(p.ref, p.page, t.Depth, p.rightmost)
	}
	return p.was, p.highestChanged, err
}

// A putter is one Put on its way down the tree and up again.
type insertOp struct {
	pageEditor
	cell           cell
	rightmost      bool // no key of the tree is right of the pages on the path so far
	retag          bool // the value stays as it is: its extent is the new cell's too
	was            Info // the row that is replaced
	hint           pathHint
	highestChanged uint8 // level of the highest branch that has got a child or another separator; 0: none
	// the leaf with the cell in a patch, which the branch above it does not know yet; zero: there
	// is none
	newDelta pager.Ref

	cursor      *InsertCursor // learns the way down, unless nil
	ref         pager.Ref     // of the leaf
	page        []byte        // the leaf
	left        pager.Ref     // if that was split off at the end of another one: which
	hintInvalid bool          // the way down is not what it was any more

	// split says that the page just left was split: right is the new page right of it, sep divides
	// them.
	split bool
	right pager.Ref
	rows  uint64 // summary of right
	sep   []byte // in right, or in the scratch

	// retry says that the leaf was split without the cell, which has no room in either half yet.
	retry bool
}

func (p *insertOp) put(t *Tree) error {
	for {
		if err := p.insert(t); err != nil || !p.retry {
			return err
		}
		p.retry, p.split, p.rightmost, p.hint = false, false, true, pathHint{}
	}
}

// insert is put, unless it has to be done again.
func (p *insertOp) insert(t *Tree) error {
	if t.Depth == 0 {
		ref, b, err := p.w.New(pager.KindLeaf, 0)
		if err != nil {
			return err
		}
		initLeaf(b, &p.cell)
		leafInsert(b, 0, &p.cell, true)
		*t = Tree{Root: ref, Depth: 1, Rows: 1}
		return nil
	}
	ref, b, err := p.edit(t.Root, t.Depth-1)
	if err != nil {
		return err
	}
	t.Root, p.ref, p.page = ref, ref, b
	if t.Depth > 1 {
		err = p.branch(b, t.Depth-1)
	} else if full, i, err2 := p.leaf(b); err2 != nil || full {
		err = err2
		if err == nil {
			err = p.splitLeaf(b, i)
		}
	}
	if err != nil {
		return err
	}
	if !p.was.Found && !p.retry {
		t.Rows++
	}
	if !p.split {
		return nil
	}
	p.invalidateHint(t.Depth)
	return p.growRoot(t, b)
}

// invalidateHint notes that a branch at level was bent.
func (p *insertOp) invalidateHint(level uint8) {
	p.hintInvalid, p.highestChanged = true, max(p.highestChanged, level)
}

// growRoot makes a root above the root b, which was split.
func (p *insertOp) growRoot(t *Tree, b []byte) error {
	if t.Depth == maxDepth {
		return damage(t.Root, "the tree would grow deeper than %d levels", maxDepth)
	}
	rows, err := summed(t.Root, b)
	if err != nil {
		return err
	}
	root, rb, err := p.w.New(pager.KindBranch, t.Depth)
	if err != nil {
		return err
	}
	items := [2]item{{nil, t.Root, rows}, {p.sep, p.right, p.rows}}
	layBranch(rb, items[:])
	t.Root = root
	t.Depth++
	return nil
}

// branch puts the cell below the branch b at level, which is being edited.
func (p *insertOp) branch(b []byte, level uint8) error {
	n := count(b)
	i := p.hint.child(b, n, level, p.cell.key)
	p.rightmost = p.rightmost && i == n-1
	if level == 1 {
		if done, err := p.putDelta(b, n, i); done || err != nil {
			return err
		}
	}
	ref, cb, err := p.edit(childRef(b, n, i), level-1)
	if err != nil {
		return err
	}
	setChildRef(b, n, i, ref)
	p.ref, p.page = ref, cb
	if p.cursor != nil && level < insertCursorDepth {
		p.cursor.path[level].set(b, i, n)
	}
	moved := false
	if level > 1 {
		err = p.branch(cb, level-1)
	} else {
		var full bool
		var k int
		full, k, err = p.leaf(cb)
		if err == nil && full {
			if moved, err = p.shift(b, i, cb, k); err == nil && !moved {
				err = p.splitLeaf(cb, k)
			}
		}
	}
	if err != nil || moved {
		p.invalidateHint(level)
		return err
	}
	if p.split {
		p.highestChanged = max(p.highestChanged, level)
		if err := setSummary(b, n, i, cb); err != nil {
			return err
		}
		err := p.addChild(b, i+1, item{p.sep, p.right, p.rows})
		p.hintInvalid = p.hintInvalid || level > 1 || p.split || p.left.IsZero()
		if !p.hintInvalid && p.cursor != nil {
			p.cursor.path[1].set(b, i+1, n+1)
		}
		return err
	}
	return p.checkCounts(b, n, i)
}

// checkCounts counts the row that was put below child i of b.
func (p *insertOp) checkCounts(b []byte, n, i int) error {
	if p.retry {
		return nil
	}
	if p.cell.info&infoOverflow != 0 {
		setChildRows(b, n, i, childRows(b, n, i)|rowsOverflow)
	}
	if p.was.Found {
		return nil
	}
	return addRow(b, n, i)
}

// leaf puts the cell into b, which is being edited. If b is full, it says where the cell belongs; a
// cell of the same key is still there then, but its extent is given back.
func (p *insertOp) leaf(b []byte) (full bool, i int, err error) {
	i, found, shared := leafSearch(b, count(b), p.cell.key)
	if found {
		s := cellPosOf(b, count(b), i)
		p.was = infoAtCell(b, s)
		if p.retag && p.was.Tag != 0 && p.cell.tag != 0 {
			setTagAt(b, s, p.cell.tag)
			return false, i, nil
		}
		if !p.retag {
			if err := p.freeExtent(b, s); err != nil {
				return false, i, err
			}
		}
		return !leafReplace(b, i, &p.cell) && !p.compactLeaf(b, i), i, nil
	}
	if p.cell.fits(b) {
		leafInsert(b, i, &p.cell, shared)
		return false, i, nil
	}
	return !p.compactLeaf(b, i), i, nil
}

// compactLeaf puts the cell at i into b by laying b out anew: without its gap, and with a header
// for each cell if the new one does not match it. It says false if that does not make enough room.
func (p *insertOp) compactLeaf(b []byte, i int) bool {
	n, need := count(b), used(b)
	if p.was.Found {
		need -= cellSize(b, slot(b, n, i)) + leafEntry
		n--
	}
	if p.cell.matches(b) {
		need += p.cell.sizeIn(b) + leafEntry
	} else {
		need += cellHeader*n + p.cell.size() + leafEntry
	}
	if need > payload(b) {
		return false
	}
	layLeaf(b, p.collectCells(b, i))
	return true
}

// collectCells returns the cells of b, from a copy of it, with the new cell at i.
func (p *insertOp) collectCells(b []byte, i int) []detachedCell {
	s := p.scratchPages(len(b))
	s.cells = p.collectCellsTo(s.cells[:0], s.copyOf(b, 0), i)
	return s.cells
}

// collectCellsTo appends the cells of b with the new cell at i, instead of the one there if the key
// existed.
func (p *insertOp) collectCellsTo(cells []detachedCell, b []byte, i int) []detachedCell {
	s, n := p.scratch, count(b)
	size := bodySize(len(p.cell.key), p.cell.info)
	if cap(s.cell) < size {
		s.cell = make([]byte, max(size, len(b)))
	}
	s.cell = s.cell[:size]
	p.cell.writeBody(s.cell)
	cells = append(appendCells(cells, b, 0, i), detachedCell{s.cell, p.cell.info, uint16(len(p.cell.key))})
	if p.was.Found {
		i++
	}
	return appendCells(cells, b, i, n)
}
