package btree

import (
	"bytes"

	"github.com/ebbkv/ebb/internal/prefetch"
)

// A Cursor walks the rows of one tree in both directions. The zero Cursor walks the empty tree. It
// stands on a row, or before the first one, or behind the last one; from there Next and Prev lead
// back. A new one stands nowhere: Next is then First, and Prev is Last. Moves say whether the
// cursor stands on a row.
//
// Keys and values point into pages and are valid as long as the Reader says. If the tree is changed
// the cursor must be Reset: it holds pages that may be gone. No move allocates.
type Cursor struct {
	// The leaf, kept at hand for the step within it. The cursor stands on row i if 0 <= i < n.
	b    []byte
	i, n int
	// positioned says that the leaf was reached by a seek: nobody knows yet which way the cursor
	// will go.
	positioned bool
	prefetch   leafPrefetch // asks for the next leaf
	ahead      readAhead    // has the leaves behind it read

	r      Reader
	tree   Tree
	err    error
	lost   uint8          // level of the page that could not be read, plus one; 0: err is another error. See Gap
	lo, hi []byte         // see Bound
	path   [maxDepth]step // by level; path[0] is not used
}

// A step is a branch on the path, of n children, and the child taken.
type step struct {
	b    []byte
	i, n int
}

// set is field by field, for who has just stored much: a literal is made on the stack and copied,
// sixteen bytes at a time, and a load of what two stores have just written waits for all stores
// before them.
func (s *step) set(b []byte, i, n int) { s.b, s.i, s.n = b, i, n }

// Reset makes the cursor walk t, and stand nowhere.
func (c *Cursor) Reset(r Reader, t Tree) {
	c.b, c.i, c.n = nil, 0, 0
	c.r, c.tree = r, t
	c.err, c.lost, c.ahead.window = t.checkDepth(), 0, 0
}

// Bound tells the cursor that nobody will want to know of rows below lo, nor from hi on; nil: there
// is no bound. The cursor goes there as before, but asks for no leaf ahead that lies beyond. It
// keeps the slices.
func (c *Cursor) Bound(lo, hi []byte) { c.lo, c.hi = lo, hi }

// edge is the separator between this leaf and the one that comes next in that direction; nil: there
// is none.
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

// room compares the bound in that direction with the edge of the leaf: positive if the next leaf
// may have rows within bounds, too, zero if none but this one has, and all that come in it,
// negative if the bound may lie in this leaf, or no leaf comes next. To look at a separator spares
// the look at the last row of the leaf, which is far from the others and not here yet.
func (c *Cursor) room(forward bool) int {
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

// Valid says that the cursor stands on a row.
func (c *Cursor) Valid() bool { return uint(c.i) < uint(c.n) }

// Err is the first error met. The cursor stands nowhere from then on.
func (c *Cursor) Err() error { return c.err }

// Key is the key of the row that the cursor stands on, else nil.
func (c *Cursor) Key() []byte {
	if uint(c.i) >= uint(c.n) {
		return nil
	}
	return leafKey(c.b, c.n, c.i)
}

// Value is the value of the row that the cursor stands on, else nil. A value in an overflow extent
// is read here.
func (c *Cursor) Value() []byte {
	if uint(c.i) >= uint(c.n) {
		return nil
	}
	s := cellPosOf(c.b, c.n, c.i)
	if infoAt(c.b, s)&infoOverflow != 0 {
		return c.extent(s)
	}
	return valueAt(c.b, s)
}

func (c *Cursor) extent(s cellPos) []byte {
	v, err := c.r.Extent(overflowAt(c.b, s), int(infoAt(c.b, s)&infoSize))
	if err != nil {
		c.fail(err)
		return nil
	}
	return v
}

// Tag is the tag of the row that the cursor stands on, 0 if it has none.
func (c *Cursor) Tag() int64 {
	if !c.Valid() {
		return 0
	}
	return tagAt(c.b, cellPosOf(c.b, c.n, c.i))
}

// Size is the size in bytes of the value of the row that the cursor stands on. The value is not
// touched.
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
	return c.nextLeaf()
}

// Prev moves to the row before.
func (c *Cursor) Prev() bool {
	if i := c.i - 1; i >= 0 && c.n > 0 {
		c.i = i
		c.rowPassed(false)
		return true
	}
	return c.prevLeaf()
}

// First moves to the first row.
func (c *Cursor) First() bool {
	c.b, c.i, c.n = nil, 0, 0
	return c.err == nil && c.tree.Depth > 0 && c.descend(c.tree.Depth, false)
}

// Last moves to the last row.
func (c *Cursor) Last() bool {
	c.b, c.i, c.n = nil, 0, 0
	return c.err == nil && c.tree.Depth > 0 && c.descend(c.tree.Depth, true)
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
// behind the last. forward is which way a walk from there goes.
func (c *Cursor) seek(key []byte, forward bool) bool {
	c.b, c.i, c.n = nil, 0, 0
	if c.err != nil || c.tree.Depth == 0 {
		return false
	}
	ref := c.tree.Root
	for level := c.tree.Depth - 1; ; level-- {
		b, n, err := pageAt(c.r, ref, level)
		if err != nil {
			return c.missed(level, err)
		}
		if level < c.tree.Depth-1 {
			prefetch.Bytes(b[:nearBytes(level)])
		}
		if level == 0 {
			i, _, _ := leafSearch(b, n, key)
			c.b, c.i, c.n, c.positioned = b, i, n, true
			c.prefetch = leafPrefetch{left: setOutSteps}
			c.ahead.window = 0
			return true
		}
		i := branchSearch(b, n, key)
		c.path[level] = step{b, i, n}
		ref = childRef(b, n, i)
		if level == 1 {
			c.prefetchNext(b, n, i, forward)
		}
	}
}

// nextLeaf is Next at the end of a leaf.
func (c *Cursor) nextLeaf() bool {
	if c.n == 0 {
		return c.First()
	}
	if c.i >= c.n {
		return false
	}
	for level := uint8(1); level < c.tree.Depth; level++ {
		if s := &c.path[level]; s.i+1 < s.n {
			s.i++
			return c.descend(level, false)
		}
	}
	c.i = c.n
	return false
}

// prevLeaf is Prev at the start of a leaf.
func (c *Cursor) prevLeaf() bool {
	if c.n == 0 {
		return c.Last()
	}
	if c.i < 0 {
		return false
	}
	for level := uint8(1); level < c.tree.Depth; level++ {
		if s := &c.path[level]; s.i > 0 {
			s.i--
			return c.descend(level, true)
		}
	}
	c.i = -1
	return false
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
			return c.missed(level, err)
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
			c.ahead.next = i // of this branch, nothing was asked for
		}
	}
}

// fail keeps the error and leaves the cursor standing nowhere, for good.
func (c *Cursor) fail(err error) bool {
	c.b, c.i, c.n = nil, 0, 0
	c.err = err
	return false
}
