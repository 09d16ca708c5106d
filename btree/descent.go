package btree

import (
	"bytes"
	"slices"

	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/pager"
)

// MaxDescent is the number of keys of one batch descent: enough to overlap the cache misses of their
// pages, and few enough that their state stays in the first-level cache.
const MaxDescent = 16

// How many bytes of a cell are prefetched. The undo log copies a cell that is replaced, so it needs
// most of a small row; a search compares the key only.
const (
	prefetchCellBytes = 128
	prefetchKeyBytes  = 32
)

// Prefetch prefetches the memory that these changes, MaxDescent at most, will access. It does nothing
// if they are beyond the insert cursor's leaf, or in order and in one leaf.
func Prefetch(w Writer, t Tree, f *InsertCursor, changes []Change) error {
	if len(changes) < 2 || f.Beyond(changes[0].Key) {
		return nil
	}
	if err := t.checkDepth(); err != nil || t.Depth == 0 {
		return err
	}
	inOrder := slices.IsSortedFunc(changes, func(a, b Change) int { return bytes.Compare(a.Key, b.Key) })
	if inOrder && sameLeaf(w, t, changes[0].Key, changes[len(changes)-1].Key, 0) {
		return nil
	}
	var d batchDescent
	for i := range changes {
		d.keys[i] = changes[i].Key
	}
	if err := d.descendBatch(w, t, len(changes)); err != nil {
		return err
	}
	for i := range changes {
		if w.Cold(d.refs[i]) {
			continue // Edit reads the page straight to its copy.
		}
		b, n, _, err := leafAt(w, d.refs[i])
		if err != nil {
			return err
		}
		size := prefetchCellBytes
		if changes[i].Delete {
			size = prefetchKeyBytes
		}
		prefetchCell(b, n, changes[i].Key, size)
	}
	return nil
}

// A batchDescent goes from the root of a tree to the leaves of up to MaxDescent keys.
type batchDescent struct {
	keys [MaxDescent][]byte
	refs [MaxDescent]pager.Ref // pages that the descent has reached: leaves in the end
}

// descendBatch descends with n keys level by level, and prefetches the lines of
// each page that a search reads first, leaves included. A single lookup waits about 100 ns for each
// page; sixteen overlapping waits take little longer than one. Keys that follow each other on one page
// share it, and the child if its heads prove that. An unverified branch is verified here. An error is
// one that the lookups would return.
func (d *batchDescent) descendBatch(in Reader, t Tree, n int) error {
	var size [MaxDescent]int
	var near [MaxDescent][]byte
	for i := range n {
		d.refs[i] = t.Root
	}
	for level := t.Depth - 1; level > 0; level-- {
		var b []byte
		var children, k int
		var at pager.Ref
		for i := range n {
			if ref := d.refs[i]; b == nil || ref != at {
				var err error
				if b, err = in.Page(ref); err != nil {
					return err
				}
				w := ld32(b, offKind)
				if w&0xffff != kindWord(level) {
					return misplaced(ref, b, level)
				}
				at, children, k = ref, int(w>>16), -1
			}
			if k < 0 || !sameChild(b, children, k, d.keys[i]) {
				k = branchSearch(b, children, d.keys[i])
			}
			d.refs[i], size[i] = childRef(b, children, k), nearChild(b, children, k, level-1)
			if level == 1 { // Leaves are most of the store: their slots are not cached.
				in.PrefetchSlot(d.refs[i])
			}
		}
		if level > 2 { // The few branches above level 1 are cached.
			continue
		}
		// Separate loops, so that the cache misses of all keys overlap.
		for i := range n {
			near[i] = nil
			if i == 0 || d.refs[i] != d.refs[i-1] {
				near[i] = in.Peek(d.refs[i], size[i])
			}
		}
		prefetch.Each(near[:n])
	}
	for i := range n {
		in.ReadSoon(d.refs[i])
	}
	return nil
}

// sameChild reports whether the heads beside child k of branch b prove that it is the child of key.
func sameChild(b []byte, n, k int, key []byte) bool {
	p := prefix(b)
	if p > 0 && (n < 2 || len(key) < p || !bytes.HasPrefix(sep(b, n, 1), key[:p])) {
		return false
	}
	h := keyHead64(key, p)
	return (k == 0 || ld64(b, offHeads+8*k) < h) && (k+1 == n || h < ld64(b, offHeads+8*(k+1)))
}

// prefetchCell prefetches size bytes of the cell of key in leaf b of n cells, or the key of the one
// that a search compares instead.
func prefetchCell(b []byte, n int, key []byte, size int) {
	p := prefix(b)
	if len(key) < p || n == 0 {
		return
	}
	h := keyHead32(key, p)
	k := min(lower32(b, n, h), n-1)
	off := slot(b, n, k)
	if ld32(b, offLeafHeads+4*k) != h {
		size = prefetchKeyBytes
	}
	if off < len(b) {
		prefetch.Bytes(b[off:min(off+size, len(b))])
	}
}

// sameLeaf reports whether keys a and b, and those between them, share a page at a level: at level
// 0, a leaf. It returns false on errors; the later descent returns them.
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
