package btree

import (
	"bytes"
	"slices"

	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/pager"
)

// MaxWays is how many ways are looked for at a time: enough to wait for all their pages at once, and few enough that what
// they need stays in the processor's first cache until it is looked at.
const MaxWays = 16

// How many bytes of a cell are asked for: of one that is likely to be replaced, which the undo keeps, most of a small row; of others what
// a search compares.
const (
	nearCell = 128
	nearKey  = 32
)

// warm notes the ways to the leaves of these changes and asks for the memory that changing their rows will need. It goes down with all
// of them level by level: a lookup waits for page after page, some 100 ns each, and sixteen that wait at the same time take
// little longer than one. Pages that it is the first to read are proven, and an error is one that the lookups would meet. The ways are not
// known if it asked for nothing, because the keys lie together in the order in which they come, or in too deep a tree.
func warm(w Writer, t Tree, changes []Change, ways *[MaxWays]way) (known bool, err error) {
	if err := t.checkDepth(); err != nil || t.Depth == 0 {
		return false, err
	}
	inOrder := slices.IsSortedFunc(changes, func(a, b Change) int { return bytes.Compare(a.Key, b.Key) })
	if inOrder && together(w, t, changes[0].Key, changes[len(changes)-1].Key) {
		return false, nil
	}
	var refs [MaxWays]pager.Ref
	var size [MaxWays]int
	var near [MaxWays][]byte
	for i := range changes {
		refs[i], ways[i] = t.Root, way{}
	}
	for level := t.Depth - 1; level > 0; level-- {
		for i := range changes {
			b, n, err := pageAt(w, refs[i], level)
			if err != nil {
				return false, err
			}
			k := branchSearch(b, n, changes[i].Key)
			ways[i].note(level, k)
			refs[i], size[i] = childRef(b, n, k), nearChild(b, n, k, level-1)
			if level == 1 { // The leaves are as many as the rest of the store.
				w.Ask(refs[i])
			}
		}
		if level > 2 { // There are so few branches above level 1 that they are near.
			continue
		}
		// In loops of their own: what one key waits for, the next ones wait for at the same time.
		for i := range changes {
			near[i] = w.Near(refs[i], size[i])
		}
		prefetch.Each(near[:len(changes)])
	}
	for i := range changes {
		c := &changes[i]
		b, n, _, err := leafAt(w, refs[i])
		if err != nil {
			return false, err
		}
		if p := prefix(b); len(c.Key) >= p && n > 0 {
			h := head32(c.Key, p)
			k := min(lower32(b, n, h), n-1)
			off, size := slot(b, n, k), nearKey
			if !c.Delete && ld32(b, offHeads+4*k) == h {
				size = nearCell
			}
			prefetch.Bytes(b[off:min(off+size, len(b))])
		}
	}
	return t.Depth-1 <= wayLevels, nil
}

// together says that two keys belong into the same leaf, so that keys between them do not wait for each other. Errors are left to
// whoever comes there again.
func together(r Reader, t Tree, a, b []byte) bool {
	ref := t.Root
	for level := t.Depth - 1; level > 0; level-- {
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
