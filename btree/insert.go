package btree

import (
	"fmt"

	"github.com/ebbkv/ebb/pager"
)

// Put sets key to value and tag, 0 for none, and tells of the row that was there. key and value must not point into
// pages that the transaction may change in place.
func Put(w Writer, t *Tree, key, value []byte, tag int64) (was Info, err error) {
	return (*Finger)(nil).Put(w, t, key, value, tag)
}

// Put is the function Put with what the finger knows of the tree, and points the finger to where the row is. A nil finger
// knows nothing.
func (f *Finger) Put(w Writer, t *Tree, key, value []byte, tag int64) (was Info, err error) {
	was, _, err = f.set(w, t, key, value, tag, way{})
	return was, err
}

// set is Put by a way, as far as that is known. It says at which level the highest branch is that ways cannot lean on any more; 0: they all
// hold.
func (f *Finger) set(w Writer, t *Tree, key, value []byte, tag int64, by way) (was Info, reshaped uint8, err error) {
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
func (f *Finger) descend(w Writer, t *Tree, c *cell, by way) (was Info, reshaped uint8, err error) {
	var p putter // field by field: a literal would be made elsewhere and copied
	p.w, p.rightmost, p.finger, p.way = w, true, f, by
	p.cell.key, p.cell.val, p.cell.ref, p.cell.tag, p.cell.info = c.key, c.val, c.ref, c.tag, c.info
	if c.info&infoOverflow == 0 && !f.Beyond(c.key) && p.inPlace(t) {
		p.done()
		return p.was, 0, nil
	}
	err = p.put(t)
	p.done()
	if f != nil && !p.left.IsZero() {
		f.filled++
	}
	switch {
	case f == nil:
	case err != nil || p.bent || t.Depth > fingerDepth:
		f.forget()
	default:
		if !p.left.IsZero() && f.last == p.left {
			f.last = p.ref // rows that come in order have gone on to the next leaf
		}
		f.point(p.ref, p.page, t.Depth, p.rightmost)
	}
	return p.was, p.reshaped, err
}

// A putter is one Put on its way down the tree and up again.
type putter struct {
	editor
	cell      cell
	rightmost bool // no key of the tree is right of the pages on the path so far
	retag     bool // the value stays as it is: its extent is the new cell's too
	was       Info // the row that is replaced
	way       way
	reshaped  uint8     // level of the highest branch that has got a child or another separator; 0: none
	patched   pager.Ref // the leaf with the cell in a patch, which the branch above it does not know yet; zero: there is none

	finger *Finger   // learns the way down, unless nil
	ref    pager.Ref // of the leaf
	page   []byte    // the leaf
	left   pager.Ref // if that was split off at the end of another one: which
	bent   bool      // the way down is not what it was any more

	// split says that the page just left was split: right is the new page right of it, sep divides them.
	split bool
	right pager.Ref
	rows  uint64 // summary of right
	sep   []byte // in right, or in the scratch

	// again says that the leaf was split without the cell, which has no room in either half yet.
	again bool
}

func (p *putter) put(t *Tree) error {
	for {
		if err := p.once(t); err != nil || !p.again {
			return err
		}
		p.again, p.split, p.rightmost, p.way = false, false, true, way{}
	}
}

// once is put, unless it has to be done again.
func (p *putter) once(t *Tree) error {
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
	if !p.was.Found && !p.again {
		t.Rows++
	}
	if !p.split {
		return nil
	}
	p.bend(t.Depth)
	return p.heighten(t, b)
}

// bend notes that a branch at level was bent.
func (p *putter) bend(level uint8) { p.bent, p.reshaped = true, max(p.reshaped, level) }

// heighten makes a root above the root b, which was split.
func (p *putter) heighten(t *Tree, b []byte) error {
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
func (p *putter) branch(b []byte, level uint8) error {
	n := count(b)
	i := p.way.child(b, n, level, p.cell.key)
	p.rightmost = p.rightmost && i == n-1
	if level == 1 {
		if done, err := p.patch(b, n, i); done || err != nil {
			return err
		}
	}
	ref, cb, err := p.edit(childRef(b, n, i), level-1)
	if err != nil {
		return err
	}
	setChildRef(b, n, i, ref)
	p.ref, p.page = ref, cb
	if p.finger != nil && level < fingerDepth {
		p.finger.way[level].set(b, i, n)
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
		p.bend(level)
		return err
	}
	if p.split {
		p.reshaped = max(p.reshaped, level)
		if err := setSummary(b, n, i, cb); err != nil {
			return err
		}
		err := p.addChild(b, i+1, item{p.sep, p.right, p.rows})
		p.bent = p.bent || level > 1 || p.split || p.left.IsZero()
		if !p.bent && p.finger != nil {
			p.finger.way[1].set(b, i+1, n+1)
		}
		return err
	}
	return p.counted(b, n, i)
}

// counted counts the row that was put below child i of b.
func (p *putter) counted(b []byte, n, i int) error {
	if p.again {
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

// leaf puts the cell into b, which is being edited. If b is full, it says where the cell belongs; a cell of the same key
// is still there then, but its extent is given back.
func (p *putter) leaf(b []byte) (full bool, i int, err error) {
	i, found, shared := leafSearch(b, count(b), p.cell.key)
	if found {
		s := spotOf(b, count(b), i)
		p.was = aboutAt(b, s)
		if p.retag && p.was.Tag != 0 && p.cell.tag != 0 {
			setTagAt(b, s, p.cell.tag)
			return false, i, nil
		}
		if !p.retag {
			if err := p.freeExtent(b, s); err != nil {
				return false, i, err
			}
		}
		return !leafReplace(b, i, &p.cell) && !p.squeeze(b, i), i, nil
	}
	if p.cell.fits(b) {
		leafInsert(b, i, &p.cell, shared)
		return false, i, nil
	}
	return !p.squeeze(b, i), i, nil
}

// squeeze puts the cell at i into b by laying b out anew: without its gap, and with a header for each cell if the new one does not match it. It says false if
// that does not make enough room.
func (p *putter) squeeze(b []byte, i int) bool {
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
	layLeaf(b, p.gather(b, i))
	return true
}

// gather returns the cells of b, from a copy of it, with the new cell at i.
func (p *putter) gather(b []byte, i int) []loose {
	s := p.pages(len(b))
	s.cells = p.gatherTo(s.cells[:0], s.copyOf(b, 0), i)
	return s.cells
}

// gatherTo appends the cells of b with the new cell at i, instead of the one there if the key existed.
func (p *putter) gatherTo(cells []loose, b []byte, i int) []loose {
	s, n := p.scratch, count(b)
	size := bodySize(len(p.cell.key), p.cell.info)
	if cap(s.cell) < size {
		s.cell = make([]byte, max(size, len(b)))
	}
	s.cell = s.cell[:size]
	p.cell.writeBody(s.cell)
	cells = append(appendCells(cells, b, 0, i), loose{s.cell, p.cell.info, uint16(len(p.cell.key))})
	if p.was.Found {
		i++
	}
	return appendCells(cells, b, i, n)
}
