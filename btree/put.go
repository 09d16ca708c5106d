package btree

import (
	"fmt"

	"github.com/ebbkv/ebb/pager"
)

// Put sets key to value and tag, 0 for none, and returns the Info of the old row. key and value
// must not point into pages that the transaction may change in place.
func Put(w Writer, t *Tree, key, value []byte, tag int64) (was Info, err error) {
	return (*InsertCursor)(nil).Put(w, t, key, value, tag)
}

// Put is the function Put with an insert cursor, and moves the cursor to the row's leaf. A nil
// cursor is never used.
func (f *InsertCursor) Put(w Writer, t *Tree, key, value []byte, tag int64) (was Info, err error) {
	pageSize := w.PageSize()
	if len(key) > MaxKey(pageSize) {
		return Info{}, fmt.Errorf("%w: %d bytes, the limit is %d", ErrKeyTooLarge, len(key), MaxKey(pageSize))
	}
	if len(value) > MaxValue {
		return Info{}, fmt.Errorf("%w: %d bytes, the limit is %d", ErrValueTooLarge, len(value), MaxValue)
	}
	if err := t.checkDepth(); err != nil {
		return Info{}, err
	}
	var c cell
	c.set(key, value, tag)
	if len(value) > MaxInline(pageSize, len(key)) {
		// First allocate the extent: without space for it nothing is changed.
		if c.ref, err = w.NewExtent(value); err != nil {
			return Info{}, err
		}
		c.info |= infoOverflow
	} else if was, done := f.put(t, &c); done {
		return was, nil
	}
	return f.descend(w, t, &c)
}

// descend is Put of a cell that f.put did not put.
func (f *InsertCursor) descend(w Writer, t *Tree, c *cell) (was Info, err error) {
	var p insertOp // field by field: the compiler would build a literal elsewhere and copy it
	p.w, p.rightmost, p.cursor = w, true, f
	p.cell.key, p.cell.val, p.cell.ref, p.cell.tag, p.cell.info = c.key, c.val, c.ref, c.tag, c.info
	if c.info&infoOverflow == 0 && !f.Beyond(c.key) && p.putInPlace(t) {
		p.releaseScratch()
		return p.was, nil
	}
	err = p.put(t)
	p.releaseScratch()
	if f != nil && !p.left.IsZero() {
		f.filled++
	}
	switch {
	case f == nil:
	case err != nil || p.pathChanged || t.Depth > insertCursorDepth:
		f.reset()
	default:
		if !p.left.IsZero() && f.last == p.left {
			f.last = p.ref // an ascending insert continues in the next leaf
		}
		f.setLeaf(p.ref, p.page, t.Depth, p.rightmost)
	}
	return p.was, err
}

// An insertOp is one Put: the descent, the insert and the splits.
type insertOp struct {
	pageEditor
	cell      cell
	rightmost bool // the tree has no key right of the path so far
	retag     bool // the value stays: the new cell has the extent of the old one
	was       Info // the replaced row
	// newDelta is the leaf with the cell in its delta, whose reference is not in the branch yet;
	// zero: none.
	newDelta pager.Ref

	cursor      *InsertCursor // records the path, unless nil
	ref         pager.Ref     // of the leaf
	page        []byte        // the leaf
	left        pager.Ref     // the leaf from whose end page was split off, if any
	pathChanged bool          // a branch on the path has another child or separator

	// split says that the page below was split: right is the new page right of it, sep is the
	// separator of the two.
	split bool
	right pager.Ref
	rows  uint64 // summary of right
	sep   []byte // in right, or in the scratch

	// retry says that the leaf was split without the cell, which does not fit into either half.
	retry bool
}

func (p *insertOp) put(t *Tree) error {
	for {
		if err := p.insert(t); err != nil || !p.retry {
			return err
		}
		p.retry, p.split, p.rightmost = false, false, true
	}
}

// insert is one try of put.
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
	p.pathChanged = true
	return p.growRoot(t, b)
}

// growRoot makes a root above the root b, which was split.
func (p *insertOp) growRoot(t *Tree, b []byte) error {
	if t.Depth == maxDepth {
		return damage(t.Root, "the tree would grow deeper than %d levels", maxDepth)
	}
	rows, err := checkedSummary(t.Root, b)
	if err != nil {
		return err
	}
	root, rb, err := p.w.New(pager.KindBranch, t.Depth)
	if err != nil {
		return err
	}
	items := [2]item{{nil, t.Root, rows}, {p.sep, p.right, p.rows}}
	writeBranch(rb, items[:])
	t.Root = root
	t.Depth++
	return nil
}

// branch puts the cell below branch b at level, which is editable.
func (p *insertOp) branch(b []byte, level uint8) error {
	n := count(b)
	i := branchSearch(b, n, p.cell.key)
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
		p.pathChanged = true
		return err
	}
	if p.split {
		if err := setSummary(b, n, i, cb); err != nil {
			return err
		}
		err := p.addChild(b, i+1, item{p.sep, p.right, p.rows})
		p.pathChanged = p.pathChanged || level > 1 || p.split || p.left.IsZero()
		if !p.pathChanged && p.cursor != nil {
			p.cursor.path[1].set(b, i+1, n+1)
		}
		return err
	}
	return p.countRow(b, n, i)
}

// countRow adds the new row to the count of child i of b.
func (p *insertOp) countRow(b []byte, n, i int) error {
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

// leaf puts the cell into b, which is editable. If b is full, it returns the cell's index; an old
// cell of the same key is still there then, but its extent is freed.
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

// compactLeaf puts the cell at i into b by rewriting b: without its gap, and with a header for each
// cell if the new cell does not match b. It returns false if the cells still do not fit.
func (p *insertOp) compactLeaf(b []byte, i int) bool {
	n, need := count(b), UsedBytes(b)
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
	writeLeaf(b, p.collectCells(b, i))
	return true
}

// collectCells returns the cells of b, from a copy of it, with the new cell at i.
func (p *insertOp) collectCells(b []byte, i int) []detachedCell {
	s := p.scratchPages(len(b))
	s.cells = p.collectCellsTo(s.cells[:0], s.copyOf(b, 0), i)
	return s.cells
}

// collectCellsTo appends the cells of b with the new cell at i, instead of an old cell of the same
// key.
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
