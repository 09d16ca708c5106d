package btree

// A Lookup is the result of Get for one key of a batch.
type Lookup struct {
	Value
	Found bool
}

// GetMany looks up to MaxDescent keys up together: found[i] is what Get returns for keys[i]. A single
// lookup waits for the memory of each page on its path and for its cell; the waits of a batch
// overlap, level by level.
func GetMany(r Reader, t Tree, keys [][]byte, found *[MaxDescent]Lookup) error {
	clear(found[:len(keys)])
	if t.Depth == 0 {
		return nil
	}
	if err := t.checkDepth(); err != nil {
		return err
	}
	if small, err := t.isSmall(r); err != nil || small {
		for i := 0; err == nil && i < len(keys); i++ {
			found[i].Value, found[i].Found, err = Get(r, t, keys[i])
		}
		return err
	}
	var d batchDescent
	copy(d.keys[:], keys)
	if err := d.descendBatch(r, t, len(keys)); err != nil {
		return err
	}
	var leaves [MaxDescent]struct {
		b, changes []byte
		n          int // cells of b
	}
	for i, key := range keys {
		l := &leaves[i]
		var err error
		if l.b, l.n, l.changes, err = leafAt(r, d.refs[i]); err != nil {
			return err
		}
		prefetchCell(l.b, l.n, key, prefetchCellBytes)
	}
	for i, key := range keys {
		l := &leaves[i]
		b, s := findCell(l.b, l.changes, l.n, key)
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
