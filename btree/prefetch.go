package btree

import "github.com/ebbkv/ebb/internal/prefetch"

// A lookahead asks for the leaf that comes next while the rows of this one are walked through: at
// once for what is looked at first in it, and for the rest piece by piece. Cells of neighbouring
// rows lie anywhere in a page, so a walk that does not ask waits for each of them; and a processor
// has about twenty lines on their way at a time, so one that asks for the sixty-four of a page at
// once waits for its own questions. The zero lookahead asks for nothing.
type leafPrefetch struct {
	rest  []byte // what of the next leaf has not been asked for
	every int    // rows to a piece
	left  int    // rows until the next piece
}

// prefetchPiece is the size in bytes of a piece: eight lines.
const prefetchPiece = 512

// prefetchLeaf begins to ask for page. The rest of it is here when n rows have been passed.
func prefetchLeaf(page []byte, n int) leafPrefetch {
	prefetch.Bytes(page[:nearBytes(0)])
	every := max(1, n*prefetchPiece/len(page))
	return leafPrefetch{rest: page[nearBytes(0):], every: every, left: every}
}

// advance is called for each row that is left behind.
func (a *leafPrefetch) advance() {
	if a.left--; a.left == 0 {
		a.prefetchPiece()
	}
}

func (a *leafPrefetch) prefetchPiece() {
	n := min(prefetchPiece, len(a.rest))
	prefetch.Bytes(a.rest[:n])
	if a.rest = a.rest[n:]; len(a.rest) > 0 {
		a.left = a.every
	}
}

const (
	// setOutRows is the rows behind that of a seek whose cells are asked for: they hide the wait
	// for the next leaf.
	setOutRows = 16
	// A cursor that makes one step from where a seek led may be one that seeks for each row. The
	// second step tells.
	setOutSteps = 2
)

// prefetchLeaves is how many leaves behind that of a seek are met.
const prefetchLeaves = 4

// prefetchNext asks for the first lines of the leaves that a walk within bounds goes to from child
// i of a branch, that one first, if they are several. A hint to a page that nobody looked at lately
// waits until it is known where the page is, which may take as long as a line of memory; hints that
// come one right after the other find out at the same time.
func (c *Cursor) prefetchNext(b []byte, n, i int, forward bool) {
	bound, step := c.hi, 1
	if !forward {
		bound, step = c.lo, -1
	}
	if bound == nil {
		return
	}
	behind := (branchSearch(b, n, bound) - i) * step
	if behind <= 0 {
		return
	}
	var pages [1 + prefetchLeaves][]byte
	some := pages[:min(1+behind, len(pages))]
	for k := range some {
		some[k] = c.r.Peek(childRef(b, n, i+k*step), 1)
	}
	prefetch.Each(some)
}

// startPrefetch is called when it shows which way a cursor goes from the row of a seek. Nobody has
// asked for the cells of this leaf: those that come first are asked for at once.
func (c *Cursor) startPrefetch(forward bool) {
	c.positioned = false
	c.fetchNext(forward)
	step := 1
	if !forward {
		step = -1
	}
	for i, left := c.i+step, setOutRows; left > 0 && uint(i) < uint(c.n); i, left = i+step, left-1 {
		off := slot(c.b, c.n, i)
		prefetch.Bytes(c.b[off:min(off+prefetchCellBytes, len(c.b))])
	}
}

// fetchNext begins to ask for the leaf that comes next in that direction, unless all of it is out
// of bounds.
func (c *Cursor) fetchNext(forward bool) {
	c.prefetch = leafPrefetch{}
	if c.tree.Depth < 2 {
		return
	}
	s := &c.path[1]
	i := s.i + 1
	if !forward {
		i = s.i - 1
	}
	if uint(i) < uint(s.n) && c.room(forward) > 0 {
		if page := c.r.Peek(childRef(s.b, s.n, i), len(c.b)); page != nil {
			c.prefetch = prefetchLeaf(page, c.n)
		}
	}
}

// rowPassed is called for each row that the cursor leaves behind.
func (c *Cursor) rowPassed(forward bool) {
	if c.prefetch.left--; c.prefetch.left == 0 {
		c.continuePrefetch(forward)
	}
}

func (c *Cursor) continuePrefetch(forward bool) {
	if c.positioned {
		c.startPrefetch(forward)
		return
	}
	c.prefetch.prefetchPiece()
}
