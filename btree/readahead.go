package btree

import "github.com/ebbkv/ebb/pager"

// A readAhead notes which leaves a walk has had read before it gets there: see Reader.ReadAhead.
// The first ones that it asks for are few, and with each further step from leaf to leaf twice as
// many: a walk that has come far goes on, as a rule. Until a seek it is over if the reader wants
// none.
type readAhead struct {
	window int         // leaves that were asked for last; 0: the fields below are void; over: no more
	next   int         // the first child of the branch, in the direction of the walk, that was not asked for
	again  int         // the child at which more are asked for
	refs   []pager.Ref // the last window; on the heap, so that the cursor need not be
}

const over = -1

const (
	firstWindow = 4
	mostWindow  = 64
)

// readAhead is called when a walk comes to a leaf that no seek led to.
func (c *Cursor) readAhead(forward bool) {
	if c.tree.Depth < 2 || c.ahead.window == over {
		return
	}
	s, a, step := &c.path[1], &c.ahead, 1
	if !forward {
		step = -1
	}
	if (a.next-s.i)*step <= 0 || a.window == 0 { // another branch, another direction, or a seek
		a.next, a.again = s.i+step, s.i
	}
	if (s.i-a.again)*step < 0 {
		return
	}
	if a.window == 0 && !c.r.ReadsAhead() {
		a.window = over
		return
	}
	a.window = min(max(2*a.window, firstWindow), mostWindow)
	refs := a.refs[:0]
	i, end := a.next, c.lastWithin(forward)
	for ; len(refs) < a.window && (end-i)*step >= 0; i += step {
		refs = append(refs, childRef(s.b, s.n, i))
	}
	a.again, a.next = s.i+max(len(refs)/2, 1)*step, i
	if len(refs) == 0 {
		return
	}
	if c.tree.Depth > 2 && (i < 0 || i >= s.n) { // The branch that comes next is read like the leaves.
		if up := &c.path[2]; uint(up.i+step) < uint(up.n) {
			refs = append(refs, childRef(up.b, up.n, up.i+step))
		}
	}
	c.r.ReadAhead(refs)
	a.refs = refs
}

// lastWithin is the last child of the branch above the leaf, in that direction, that may have rows
// within the cursor's bounds.
func (c *Cursor) lastWithin(forward bool) int {
	s := &c.path[1]
	switch {
	case forward && c.hi != nil:
		return branchSearch(s.b, s.n, c.hi)
	case forward:
		return s.n - 1
	case c.lo != nil:
		return branchSearch(s.b, s.n, c.lo)
	}
	return 0
}

// readChildren has pages below a branch of n children read, from child i on, if i is the first of a
// window: for a walk that goes to all of them with a number of at least limit.
func readChildren(r Reader, b []byte, n, i int, limit pager.Pgid) {
	if i%mostWindow != 0 || !r.ReadsAhead() {
		return
	}
	refs := make([]pager.Ref, 0, mostWindow)
	for k := i; k < min(i+mostWindow, n); k++ {
		if ref := childRef(b, n, k); ref.Pgid >= limit {
			refs = append(refs, ref)
		}
	}
	r.ReadAhead(refs)
}
