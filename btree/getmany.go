package btree

import (
	"github.com/ebbkv/ebb/internal/prefetch"
	"github.com/ebbkv/ebb/pager"
)

// A Lookup is the result of Get for one key of a batch.
type Lookup struct {
	Value
	Found bool
}

// GetMany looks up to MaxHints keys up together: found[i] is what Get returns for keys[i]. A single
// lookup waits for the memory of each page on its path and for its cell; the waits of a batch
// overlap, level by level.
func GetMany(r Reader, t Tree, keys [][]byte, found *[MaxHints]Lookup) error {
	clear(found[:len(keys)])
	if t.Depth == 0 {
		return nil
	}
	if err := t.checkDepth(); err != nil {
		return err
	}
	if small, err := t.isSmall(r); err != nil || small {
		if err == nil {
			err = getEach(r, t, keys, found)
		}
		return err
	}
	var d batchDescent
	copy(d.keys[:], keys)
	if err := d.descendBatch(r, t, len(keys)); err != nil {
		return err
	}
	var leaves [MaxHints]lookupLeaf
	for i, key := range keys {
		l := &leaves[i]
		if err := l.open(r, d.refs[i]); err != nil {
			return err
		}
		l.prefetchCell(key)
	}
	for i, key := range keys {
		b, s := findCell(leaves[i].b, leaves[i].changes, leaves[i].n, key)
		if !s.found() {
			continue
		}
		value, err := valueOf(r, b, s)
		if err != nil {
			return err
		}
		found[i] = Lookup{value, true}
	}
	return nil
}

// smallTreeBytes of leaves stay in the second cache of a processor: there is no wait to overlap.
const smallTreeBytes = 1 << 20

// isSmall reports whether the leaves of a tree, which has one, take smallTreeBytes at most.
func (t Tree) isSmall(r Reader) (bool, error) {
	if t.Depth != 2 {
		return t.Depth < 2, nil
	}
	b, n, err := pageAt(r, t.Root, 1)
	return n*len(b) <= smallTreeBytes, err
}

// getEach is GetMany one by one.
func getEach(r Reader, t Tree, keys [][]byte, found *[MaxHints]Lookup) (err error) {
	for i, key := range keys {
		if found[i].Value, found[i].Found, err = Get(r, t, key); err != nil {
			return err
		}
	}
	return nil
}

// A lookupLeaf is the leaf of a key, or its base and its delta.
type lookupLeaf struct {
	b, changes []byte
	n          int // cells of b
}

func (l *lookupLeaf) open(r Reader, ref pager.Ref) (err error) {
	if l.b, l.changes, err = r.Leaf(ref); err != nil {
		return err
	}
	w := ld32(l.b, offKind)
	if w&0xffff != uint32(pager.KindLeaf) {
		return misplaced(ref, l.b, 0)
	}
	l.n = int(w >> 16)
	return nil
}

// prefetchCell prefetches the cell that find compares with key, its value included if it is short.
func (l *lookupLeaf) prefetchCell(key []byte) {
	p := prefix(l.b)
	if len(key) < p || l.n == 0 {
		return
	}
	off := slot(l.b, l.n, min(lower32(l.b, l.n, keyHead32(key, p)), l.n-1))
	if off < len(l.b) {
		prefetch.Bytes(l.b[off:min(off+prefetchCellBytes, len(l.b))])
	}
}
