package btree

import "github.com/ebbkv/ebb/pager"

// A readAhead records which leaves a walk has requested from Reader.ReadAhead. The first window is
// small, and each further one twice as large, since a long walk usually continues. If the reader
// wants no requests, the read-ahead stays off until the next seek.
type readAhead struct {
	window  int         // leaves of the last request; 0: the fields below are invalid; readAheadOff
	next    int         // first child, in the walk's direction, without a request
	trigger int         // child that triggers the next request
	refs    []pager.Ref // last request; on the heap, so that the cursor need not be
}

const readAheadOff = -1

const (
	firstWindow = 4
	maxWindow   = 64
)

// readAhead is called when a walk, not a seek, reaches a leaf.
func (c *Cursor) readAhead(forward bool) {
	if c.tree.Depth < 2 || c.ahead.window == readAheadOff {
		return
	}
	s, a, step := &c.path[1], &c.ahead, direction(forward)
	if (a.next-s.i)*step <= 0 || a.window == 0 { // new branch, new direction, or after a seek
		a.next, a.trigger = s.i+step, s.i
	}
	if (s.i-a.trigger)*step < 0 {
		return
	}
	if a.window == 0 && !c.r.ReadsAhead() {
		a.window = readAheadOff
		return
	}
	a.window = min(max(2*a.window, firstWindow), maxWindow)
	refs := a.refs[:0]
	i, end := a.next, c.lastWithin(forward)
	for ; len(refs) < a.window && (end-i)*step >= 0; i += step {
		refs = append(refs, childRef(s.b, s.n, i))
	}
	a.trigger, a.next = s.i+max(len(refs)/2, 1)*step, i
	if len(refs) == 0 {
		return
	}
	if c.tree.Depth > 2 && (i < 0 || i >= s.n) { // The next branch is requested, too.
		if up := &c.path[2]; uint(up.i+step) < uint(up.n) {
			refs = append(refs, childRef(up.b, up.n, up.i+step))
		}
	}
	c.r.ReadAhead(refs)
	a.refs = refs
}

// lastWithin returns the last child of the branch above the leaf, in that direction, that may have
// rows within the cursor's bounds.
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

// readChildren requests the pages below a branch of n children, from child i on, if i is the first
// of a window: for a walk through all children with a page number of at least limit.
func readChildren(r Reader, b []byte, n, i int, limit pager.Pgid) {
	if i%maxWindow != 0 || !r.ReadsAhead() {
		return
	}
	refs := make([]pager.Ref, 0, maxWindow)
	for k := i; k < min(i+maxWindow, n); k++ {
		if ref := childRef(b, n, k); ref.Pgid >= limit {
			refs = append(refs, ref)
		}
	}
	r.ReadAhead(refs)
}
