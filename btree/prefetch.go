package btree

import "github.com/ebbkv/ebb/internal/prefetch"

// A leafPrefetch prefetches the next leaf during a walk through the current one: at once the lines
// that a search or a walk reads first, then the rest in pieces. The cells of neighbouring rows may
// lie anywhere in a page, so without a prefetch each is a cache miss. A processor has about twenty
// outstanding misses, so a prefetch of all sixty-four lines of a page at once would stall. The zero
// leafPrefetch does nothing.
type leafPrefetch struct {
	rest  []byte // part of the next leaf without a prefetch yet
	every int    // rows per piece
	left  int    // rows until the next piece
}

// prefetchPiece is the size in bytes of a piece: eight lines.
const prefetchPiece = 512

// prefetchLeaf begins to prefetch page. The last piece follows after at most n rows.
func prefetchLeaf(page []byte, n int) leafPrefetch {
	prefetch.Bytes(page[:nearBytes(0)])
	every := max(1, n*prefetchPiece/len(page))
	return leafPrefetch{rest: page[nearBytes(0):], every: every, left: every}
}

// advance is called for each passed row.
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
	// seekPrefetchRows is the number of rows after a seek whose cells are prefetched: they hide the
	// wait for the next leaf.
	seekPrefetchRows = 16
	// A cursor that makes one step after a seek may be one that seeks for each row. The second step
	// means a walk.
	seekPrefetchSteps = 2
)

// prefetchLeaves is the number of leaves after that of a seek whose first lines are prefetched.
const prefetchLeaves = 4

// prefetchNext prefetches the first lines of the leaves of a walk within bounds from child i of a
// branch on, if they are several. A prefetch of a page that is not in the TLB waits for its
// translation, about as long as a cache miss; the translations of consecutive prefetches overlap.
func (c *Cursor) prefetchNext(b []byte, n, i int, forward bool) {
	bound, step := c.hi, direction(forward)
	if !forward {
		bound = c.lo
	}
	if bound == nil || c.likelyCached(len(b), rowsBelow(b, n, i)) {
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

// cachedBytes is the size of a tree whose leaves are likely in the second-level cache: a prefetch of
// them costs more than it saves.
const cachedBytes = 2 << 20

// likelyCached reports whether the whole tree is so small, if its leaves have as many rows as one of
// n rows.
func (c *Cursor) likelyCached(pageSize int, n uint64) bool {
	return c.tree.Rows*uint64(pageSize) < n*cachedBytes
}

// startPrefetch is called once the direction of a walk from a seek is known. The cells of this leaf
// have no prefetch yet: the next ones get theirs at once.
func (c *Cursor) startPrefetch(forward bool) {
	c.positioned, c.prefetch = false, leafPrefetch{}
	if c.likelyCached(len(c.b), uint64(c.n)) {
		return
	}
	c.fetchNext(forward)
	step := direction(forward)
	for i, left := c.i+step, seekPrefetchRows; left > 0 && uint(i) < uint(c.n); i, left = i+step, left-1 {
		off := slot(c.b, c.n, i)
		prefetch.Bytes(c.b[off:min(off+prefetchCellBytes, len(c.b))])
	}
}

// fetchNext begins to prefetch the next leaf in that direction, if it may have rows within bounds.
func (c *Cursor) fetchNext(forward bool) {
	c.prefetch = leafPrefetch{}
	if c.tree.Depth < 2 || c.likelyCached(len(c.b), uint64(c.n)) {
		return
	}
	s := &c.path[1]
	i := s.i + direction(forward)
	if uint(i) < uint(s.n) && c.compareEdge(forward) > 0 {
		if page := c.r.Peek(childRef(s.b, s.n, i), len(c.b)); page != nil {
			c.prefetch = prefetchLeaf(page, c.n)
		}
	}
}

// rowPassed is called for each row that the cursor leaves.
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
