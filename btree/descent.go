package btree

import (
	"bytes"
	"slices"

	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/pager"
)

// MaxHints is how many ways are looked for at a time: enough to wait for all their pages at once,
// and few enough that what they need stays in the processor's first cache until it is looked at.
const MaxHints = 16

// How many bytes of a cell are asked for: of one that is likely to be replaced, which the undo
// keeps, most of a small row; of others what a search compares.
const (
	prefetchCellBytes = 128
	prefetchKeyBytes  = 32
)

// prefetchPaths notes the ways to the leaves of these changes and asks for the memory that changing
// their rows will need. The ways are not known if it asked for nothing, because the keys lie
// together in the order in which they come, or in too deep a tree.
func prefetchPaths(w Writer, t Tree, changes []Change, ways *[MaxHints]pathHint) (known bool, err error) {
	if err := t.checkDepth(); err != nil || t.Depth == 0 {
		return false, err
	}
	inOrder := slices.IsSortedFunc(changes, func(a, b Change) int { return bytes.Compare(a.Key, b.Key) })
	if inOrder && sameLeaf(w, t, changes[0].Key, changes[len(changes)-1].Key, 0) {
		return false, nil
	}
	var d batchDescent
	for i := range changes {
		d.keys[i] = changes[i].Key
	}
	if err := d.descendBatch(w, t, len(changes)); err != nil {
		return false, err
	}
	for i := range changes {
		if w.Cold(d.refs[i]) {
			continue // It would be looked at only to be read once more.
		}
		b, n, _, err := leafAt(w, d.refs[i])
		if err != nil {
			return false, err
		}
		prefetchCell(b, n, &changes[i])
	}
	*ways = d.hints
	return t.Depth-1 <= pathHintLevels, nil
}

// A descent goes from the root of a tree to the leaves of up to MaxHints keys.
type batchDescent struct {
	keys  [MaxHints][]byte
	hints [MaxHints]pathHint
	refs  [MaxHints]pager.Ref // of the pages that it has come to: in the end, leaves
}

// descendBatch goes down with n keys level by level, notes their ways and asks for what a search
// looks at first in each page, leaves among them. A lookup waits for page after page, some 100 ns
// each, and sixteen that wait at the same time take little longer than one. Branches that it is the
// first to read are proven, and an error is one that the lookups would meet.
func (d *batchDescent) descendBatch(in Writer, t Tree, n int) error {
	var size [MaxHints]int
	var near [MaxHints][]byte
	for i := range n {
		d.refs[i] = t.Root
	}
	for level := t.Depth - 1; level > 0; level-- {
		for i := range n {
			b, err := in.Page(d.refs[i])
			if err != nil {
				return err
			}
			w := ld32(b, offKind)
			if w&0xffff != place(level) {
				return misplaced(d.refs[i], b, level)
			}
			children := int(w >> 16)
			k := branchSearch(b, children, d.keys[i])
			d.hints[i].record(level, k)
			d.refs[i], size[i] = childRef(b, children, k), nearChild(b, children, k, level-1)
			if level == 1 { // The leaves are as many as the rest of the store.
				in.PrefetchSlot(d.refs[i])
			}
		}
		if level > 2 { // There are so few branches above level 1 that they are near.
			continue
		}
		// In loops of their own: what one key waits for, the next ones wait for at the same time.
		for i := range n {
			near[i] = in.Peek(d.refs[i], size[i])
		}
		prefetch.Each(near[:n])
	}
	for i := range n {
		in.ReadSoon(d.refs[i])
	}
	return nil
}

// prefetchCell asks for the cell of c's key in leaf b of n cells, or the one that is looked at in
// its place.
func prefetchCell(b []byte, n int, c *Change) {
	p := prefix(b)
	if len(c.Key) < p || n == 0 {
		return
	}
	h := keyHead32(c.Key, p)
	k := min(lower32(b, n, h), n-1)
	off, size := slot(b, n, k), prefetchKeyBytes
	if !c.Delete && ld32(b, offLeafHeads+4*k) == h {
		size = prefetchCellBytes
	}
	if off < len(b) {
		prefetch.Bytes(b[off:min(off+size, len(b))])
	}
}

// sameLeaf says that two keys, and those between them, belong into the same page at a level, or
// below it: in a leaf (0) they do not wait for each other. Errors are left to whoever comes there
// again.
func sameLeaf(r Reader, t Tree, a, b []byte, at uint8) bool {
	ref := t.Root
	for level := t.Depth - 1; level > at; level-- {
		p, n, err := pageAt(r, ref, level)
		if err != nil {
			return false
		}
		i := branchSearch(p, n, a)
		if branchSearch(p, n, b) != i {
			return false
		}
		ref = childRef(p, n, i)
	}
	return true
}
