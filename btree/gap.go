package btree

import "github.com/ebbkv/ebb/pager"

// A Gap is a subtree that a cursor could not read: a page and all pages below it.
type Gap struct {
	Lower, Upper []byte // its keys are in [Lower, Upper); nil: no bound. Valid as long as pages are
	Rows         uint64 // rows of the subtree, as the page above counts them, or the tree its root
	Ref          pager.Ref
	Level        uint8 // of the page: 0 is a leaf
	Err          error // why the page cannot be read
}

// Gap describes the subtree at which the last move failed. ok is false if the move succeeded, or
// failed for another reason than a page of the tree.
//
// Gap and Skip use only the path down to the page above, which is verified.
func (c *Cursor) Gap() (g Gap, ok bool) {
	if c.err == nil || c.lost == 0 {
		return Gap{}, false
	}
	g = Gap{Rows: c.tree.Rows, Ref: c.tree.Root, Level: c.lost - 1, Err: c.err}
	if c.lost < c.tree.Depth {
		s := &c.path[c.lost]
		g.Rows, g.Ref = rowsBelow(s.b, s.n, s.i), childRef(s.b, s.n, s.i)
	}
	for level := c.lost; level < c.tree.Depth; level++ {
		s := &c.path[level]
		if g.Lower == nil && s.i > 0 {
			g.Lower = sep(s.b, s.n, s.i)
		}
		if g.Upper == nil && s.i+1 < s.n {
			g.Upper = sep(s.b, s.n, s.i+1)
		}
	}
	return g, true
}

// Skip clears the error of a gap and moves to the first row after it, or to the last one before
// it. Without such a row the cursor has no position. Skip may fail at the next gap.
func (c *Cursor) Skip(forward bool) bool {
	if c.err == nil || c.lost == 0 {
		return false
	}
	from := c.lost
	c.err, c.lost = nil, 0
	ok, _ := c.toSibling(from, forward)
	return ok
}

// failAt is fail for a page of the tree at that level.
func (c *Cursor) failAt(level uint8, err error) bool {
	c.lost = level + 1
	return c.fail(err)
}

// ReadValue is Value, but returns a read error of the value without failing the cursor.
func (c *Cursor) ReadValue() ([]byte, error) {
	if !c.Valid() {
		return nil, nil
	}
	v, err := valueOf(c.r, c.b, cellPosOf(c.b, c.n, c.i))
	return v.Bytes, err
}

// EachChild calls fn for each child of a branch that CheckPage accepts, with the rows below it and the
// separator before it; that of the first child is empty.
func EachChild(b []byte, fn func(sep []byte, ref pager.Ref, rows uint64)) {
	n := count(b)
	for i := range n {
		fn(sep(b, n, i), childRef(b, n, i), rowsBelow(b, n, i))
	}
}

// EachRow calls row on each row of t, in order, and gap for each part that cannot be read. An error of
// one of them ends it.
func EachRow(r Reader, t Tree, row func(c *Cursor) error, gap func(Gap) error) error {
	c := new(Cursor)
	c.Reset(r, t)
	for ok := c.First(); ; ok = c.Next() {
		for !ok {
			g, lost := c.Gap()
			if !lost && c.Err() != nil {
				return gap(Gap{Rows: t.Rows, Ref: t.Root, Level: max(t.Depth, 1) - 1, Err: c.Err()})
			}
			if !lost {
				return nil
			}
			if err := gap(g); err != nil {
				return err
			}
			ok = c.Skip(true)
		}
		if err := row(c); err != nil {
			return err
		}
	}
}
