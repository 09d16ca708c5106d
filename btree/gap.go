package btree

// A Gap is a subtree that a cursor could not read: a page, and all that is below it.
type Gap struct {
	Lower, Upper []byte // its keys are in [Lower, Upper); nil: no bound. Valid as long as pages are
	Rows         uint64 // rows of the subtree, as the page above counts them, or the tree its root
	Err          error  // why the page cannot be read
}

// Gap describes the subtree at which the last move failed. ok is false if it did not fail, or
// failed for another reason than a page of the tree.
//
// All that Gap and Skip need is the path down to the page above, which was read and is verified.
func (c *Cursor) Gap() (g Gap, ok bool) {
	if c.err == nil || c.lost == 0 {
		return Gap{}, false
	}
	g = Gap{Rows: c.tree.Rows, Err: c.err}
	if c.lost < c.tree.Depth {
		s := &c.path[c.lost]
		g.Rows = rowsBelow(s.b, s.n, s.i)
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

// Skip forgets the error of a gap and moves to the first row behind it, or to the last one before
// it. If there is none the cursor stands nowhere, as a new one. It may meet the next gap.
func (c *Cursor) Skip(forward bool) bool {
	if c.err == nil || c.lost == 0 {
		return false
	}
	from := c.lost
	c.err, c.lost = nil, 0
	for level := from; level < c.tree.Depth; level++ {
		switch s := &c.path[level]; {
		case forward && s.i+1 < s.n:
			s.i++
			return c.descend(level, false)
		case !forward && s.i > 0:
			s.i--
			return c.descend(level, true)
		}
	}
	return false
}

// missed is fail for a page of the tree at that level.
func (c *Cursor) missed(level uint8, err error) bool {
	c.lost = level + 1
	return c.fail(err)
}

// ReadValue is Value, but that a value which cannot be read is only an error of the call: the
// cursor stays on its row.
func (c *Cursor) ReadValue() ([]byte, error) {
	if !c.Valid() {
		return nil, nil
	}
	s := cellPosOf(c.b, c.n, c.i)
	info := infoAt(c.b, s)
	if info&infoOverflow == 0 {
		return valueAt(c.b, s), nil
	}
	return c.r.Extent(overflowAt(c.b, s), int(info&infoSize))
}
