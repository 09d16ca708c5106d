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

// cellLines is how much of a cell is asked for: its head and key, and as a rule the start of the value.
const cellLines = 128

// warm notes the ways to the leaves of these keys and asks for the memory that changing their rows will need. It goes down with all
// of them level by level: a lookup waits for page after page, some 100 ns each, and sixteen that wait at the same time take
// little longer than one. Pages that it is the first to read are proven, and an error is one that the lookups would meet. The ways are not
// known if it asked for nothing, because the keys lie together in the order in which they come, or in too deep a tree.
func warm(w Writer, t Tree, keys [][]byte, ways *[MaxWays]way) (known bool, err error) {
	if err := t.checkDepth(); err != nil || t.Depth == 0 {
		return false, err
	}
	if slices.IsSortedFunc(keys, bytes.Compare) && together(w, t, keys[0], keys[len(keys)-1]) {
		return false, nil
	}
	var refs [MaxWays]pager.Ref
	var size [MaxWays]int
	var near [MaxWays][]byte
	for i := range keys {
		refs[i], ways[i] = t.Root, way{}
	}
	for level := t.Depth - 1; level > 0; level-- {
		for i, key := range keys {
			b, n, err := pageAt(w, refs[i], level)
			if err != nil {
				return false, err
			}
			k := branchSearch(b, n, key)
			ways[i].note(level, k)
			refs[i], size[i] = childRef(b, n, k), nearChild(b, n, k, level-1)
			if level == 1 { // The leaves are as many as the rest of the store.
				w.Ask(refs[i])
			}
		}
		// In loops of their own: what one key waits for, the next ones wait for at the same time.
		if level > 2 { // There are so few branches above level 1 that they are near.
			continue
		}
		for i := range keys {
			near[i] = w.Near(refs[i], size[i])
		}
		prefetch.Each(near[:len(keys)])
	}
	for i, key := range keys {
		b, n, _, err := leafAt(w, refs[i])
		if err != nil {
			return false, err
		}
		if p := prefix(b); len(key) >= p && n > 0 {
			off := slot(b, n, min(lower32(b, n, head32(key, p)), n-1))
			prefetch.Bytes(b[off:min(off+cellLines, len(b))])
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
