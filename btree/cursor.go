package btree

import (
	"bytes"

	"github.com/ebbkv/ebb/internal/prefetch"
)

// A Cursor walks the rows of one tree in both directions. The zero Cursor walks the empty tree. A
// Cursor is on a row, or before the first one, or after the last one, from where Next and Prev
// return to the rows. A new Cursor has no position: Next is then First, and Prev is Last. Moves
// report whether the cursor is on a row.
//
// Keys and values point into pages and are valid as long as the Reader says. After a change of the
// tree the caller must Reset the cursor: it holds pages that may be freed. No move allocates.
type Cursor struct {
	// The current leaf. The cursor is on row i if 0 <= i < n.
	b    []byte
	i, n int
	// positioned says that a seek led to the leaf, so the direction of the walk is not known yet.
	positioned bool
	prefetch   leafPrefetch // of the next leaf
	ahead      readAhead    // of the leaves after it
	scan       rowScan

	r      Reader
	tree   Tree
	err    error
	lost   uint8          // level of the page that failed to read, plus one; 0: another error. See Gap
	lo, hi []byte         // see Bound
	path   [maxDepth]step // by level; path[0] is not used
}

// A step is a branch on the path, of n children, and the child taken.
type step struct {
	b    []byte
	i, n int
}

// set assigns field by field. The compiler builds a literal on the stack and copies it sixteen
// bytes at a time, and such a load of two recent stores waits for all stores before them.
func (s *step) set(b []byte, i, n int) { s.b, s.i, s.n = b, i, n }

// Reset makes the cursor walk t, without a position.
func (c *Cursor) Reset(r Reader, t Tree) {
	c.b, c.i, c.n = nil, 0, 0
	c.r, c.tree = r, t
	c.err, c.lost, c.ahead.window = t.checkDepth(), 0, 0
}

// Bound says that the caller needs no rows below lo, nor from hi on; nil is no bound. The cursor
// still moves there, but does not prefetch leaves out of bounds. It keeps the slices.
func (c *Cursor) Bound(lo, hi []byte) { c.lo, c.hi = lo, hi }

// edge returns the separator between the current leaf and the next one in that direction, nil if
// there is no next one.
func (c *Cursor) edge(forward bool) []byte {
	for level := uint8(1); level < c.tree.Depth; level++ {
		switch s := &c.path[level]; {
		case forward && s.i+1 < s.n:
			return sep(s.b, s.n, s.i+1)
		case !forward && s.i > 0:
			return sep(s.b, s.n, s.i)
		}
	}
	return nil
}

// compareEdge compares the bound in that direction with the edge of the leaf. It is positive if the
// next leaf may have rows within bounds. It is zero if the next leaf has none, and all further rows
// of this one are within. It is negative if the bound may lie in this leaf, or there is no next
// leaf. The separator is cached; the last row of the leaf, which it stands for, would be a cache
// miss.
func (c *Cursor) compareEdge(forward bool) int {
	bound := c.lo
	if forward {
		bound = c.hi
	}
	if bound == nil {
		return 1
	}
	switch edge := c.edge(forward); {
	case edge == nil:
		return -1
	case forward:
		return bytes.Compare(bound, edge)
	default:
		return bytes.Compare(edge, bound)
	}
}

// Valid reports whether the cursor is on a row.
func (c *Cursor) Valid() bool { return uint(c.i) < uint(c.n) }

// Err is the first error. After an error the cursor has no position.
func (c *Cursor) Err() error { return c.err }

// Key returns the key of the current row, nil without one.
func (c *Cursor) Key() []byte {
	if uint(c.i) >= uint(c.n) {
		return nil
	}
	return leafKey(c.b, c.n, c.i)
}

// Value returns the value of the current row, nil without one. It reads a value in an overflow
// extent.
func (c *Cursor) Value() []byte {
	v, err := c.ReadValue()
	if err != nil {
		c.fail(err)
	}
	return v
}

// Tag returns the tag of the current row, 0 if it has none.
func (c *Cursor) Tag() int64 {
	if !c.Valid() {
		return 0
	}
	return tagAt(c.b, cellPosOf(c.b, c.n, c.i))
}

// Size is the size in bytes of the value of the current row. It does not read the value.
func (c *Cursor) Size() int {
	if !c.Valid() {
		return 0
	}
	return int(infoAt(c.b, cellPosOf(c.b, c.n, c.i)) & infoSize)
}

// Next moves to the next row.
func (c *Cursor) Next() bool {
	if i := c.i + 1; i < c.n {
		c.i = i
		c.rowPassed(true)
		return true
	}
	return c.leaveLeaf(true)
}

// Prev moves to the row before.
func (c *Cursor) Prev() bool {
	if i := c.i - 1; i >= 0 && c.n > 0 {
		c.i = i
		c.rowPassed(false)
		return true
	}
	return c.leaveLeaf(false)
}

// First moves to the first row.
func (c *Cursor) First() bool { return c.toEnd(false) }

// Last moves to the last row.
func (c *Cursor) Last() bool { return c.toEnd(true) }

func (c *Cursor) toEnd(last bool) bool {
	c.b, c.i, c.n = nil, 0, 0
	return c.err == nil && c.tree.Depth > 0 && c.descend(c.tree.Depth, last)
}

// Seek moves to the first row whose key is at least key.
func (c *Cursor) Seek(key []byte) bool {
	if !c.seek(key, true) {
		return false
	}
	if c.i < c.n {
		return true
	}
	c.i--
	return c.Next()
}

// SeekBefore moves to the last row whose key is below key.
func (c *Cursor) SeekBefore(key []byte) bool { return c.seek(key, false) && c.Prev() }

// seek moves to the leaf that may hold key, and there to the first row that is at least key, maybe
// after the last row. forward is the expected direction of the walk.
func (c *Cursor) seek(key []byte, forward bool) bool {
	c.b, c.i, c.n = nil, 0, 0
	if c.err != nil || c.tree.Depth == 0 {
		return false
	}
	ref := c.tree.Root
	for level := c.tree.Depth - 1; ; level-- {
		b, n, err := pageAt(c.r, ref, level)
		if err != nil {
			return c.failAt(level, err)
		}
		if level < c.tree.Depth-1 {
			prefetch.Bytes(b[:nearBytes(level)])
		}
		if level == 0 {
			i, _, _ := leafSearch(b, n, key)
			c.b, c.i, c.n, c.positioned = b, i, n, true
			c.prefetch = leafPrefetch{left: seekPrefetchSteps}
			c.ahead.window = 0
			return true
		}
		i := branchSearch(b, n, key)
		c.path[level].set(b, i, n)
		ref = childRef(b, n, i)
		if level == 1 {
			c.prefetchNext(b, n, i, forward)
		}
	}
}

// leaveLeaf is Next, or if not forward Prev, at the end of a leaf.
func (c *Cursor) leaveLeaf(forward bool) bool {
	if c.n == 0 {
		return c.toEnd(!forward)
	}
	if !c.Valid() {
		return false
	}
	ok, found := c.toSibling(1, forward)
	if !found {
		c.i += direction(forward)
	}
	return ok
}

// direction is the step of an index in a walk.
func direction(forward bool) int {
	if forward {
		return 1
	}
	return -1
}

// toSibling descends to the first row behind the children taken, or to the last one before them, from
// the lowest branch at or above a level that has such a child; found is false if none has.
func (c *Cursor) toSibling(from uint8, forward bool) (ok, found bool) {
	for level := from; level < c.tree.Depth; level++ {
		switch s := &c.path[level]; {
		case forward && s.i+1 < s.n:
			s.i++
			return c.descend(level, false), true
		case !forward && s.i > 0:
			s.i--
			return c.descend(level, true), true
		}
	}
	return false, false
}

// descend goes from the child taken at level, or from the root if level is the depth, to the first
// row below, or the last one.
func (c *Cursor) descend(level uint8, last bool) bool {
	ref := c.tree.Root
	for {
		if level < c.tree.Depth {
			s := &c.path[level]
			ref = childRef(s.b, s.n, s.i)
		}
		level--
		b, n, err := pageAt(c.r, ref, level)
		if err != nil {
			return c.failAt(level, err)
		}
		i := 0
		if last {
			i = n - 1
		}
		if level == 0 {
			c.b, c.i, c.n, c.positioned = b, i, n, false
			c.fetchNext(!last)
			c.readAhead(!last)
			return n > 0
		}
		c.path[level] = step{b, i, n}
		if level == 1 {
			c.ahead.next = i // no leaf of this branch has been requested
		}
	}
}

// fail keeps the error and leaves the cursor without a position.
func (c *Cursor) fail(err error) bool {
	c.b, c.i, c.n = nil, 0, 0
	c.err = err
	return false
}
