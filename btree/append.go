package btree

import (
	"bytes"

	"github.com/ebbkv/ebb/pager"
)

// Rows that are appended in key order do not go through Put: FillLeaf builds whole leaves of them,
// and AppendLeaf links these into the tree unchanged.

// FillLeaf encodes a leaf into b, a page whose content after the header is undefined. The leaf
// gets the longest prefix of changes that is in ascending order, has only inline values, and fits.
// FillLeaf returns the number of these rows, and whether the free space ended the prefix.
func FillLeaf(b []byte, changes []Change) (n int, full bool) {
	var c cell
	var s leafSize
	size := len(b)
	for n < len(changes) {
		row := &changes[n]
		if !row.inline(size) || n > 0 && bytes.Compare(changes[n-1].Key, row.Key) >= 0 {
			break
		}
		c.set(row.Key, row.Value, row.Tag)
		if full = !s.add(len(c.key), c.info, size); full {
			break
		}
		n++
	}
	if n == 0 {
		return 0, false
	}
	s.shape(b)
	p := shared(changes[0].Key, changes[n-1].Key)
	setLeafFields(b, n, size-s.bytes(), p)
	writeRows(b, 0, changes[:n], size, p) // descending offsets, as inserts leave them: see ascending
	return n, full
}

// AppendLeaf links a leaf of rows rows, none of them with an overflow value, as the last leaf of
// the tree. last is the last key of the tree, first the first key of the leaf.
func AppendLeaf(w Writer, t *Tree, ref pager.Ref, rows uint64, last, first []byte) error {
	if t.Depth == 0 {
		*t = Tree{Root: ref, Depth: 1, Rows: rows}
		return nil
	}
	if err := t.checkDepth(); err != nil {
		return err
	}
	var p insertOp
	p.w, p.rightmost = w, true
	it := item{separator(last, first), ref, rows}
	err := p.appendItem(t, it)
	p.releaseScratch()
	return err
}

// CopyLeafRun is AppendLeaf for copies of n leaves on consecutive pages from ref on. These pages
// are in the file, but free: CopyLeafRun verifies their content.
func CopyLeafRun(w Writer, t *Tree, ref pager.Ref, n uint64) error {
	last, err := lastKey(w, *t)
	if err != nil {
		return err
	}
	for ; n > 0; ref.Pgid, n = ref.Pgid+1, n-1 {
		b, rows, err := pageAt(w, ref, 0)
		switch {
		case err != nil:
			return err
		case rows == 0 || leafHasOverflow(b, rows):
			return damage(ref, "leaf of %d rows that the log names has none, or large values", rows)
		case t.Depth > 0 && bytes.Compare(last, leafKey(b, rows, 0)) >= 0:
			return damage(ref, "the log names a leaf that is not above all keys")
		}
		copied, b, err := w.Edit(ref, nil)
		if err != nil {
			return err
		}
		if err := AppendLeaf(w, t, copied, uint64(rows), last, leafKey(b, rows, 0)); err != nil {
			return err
		}
		last = leafKey(b, rows, rows-1)
	}
	return nil
}

// IsPastEnd reports whether key is above all keys of the tree.
func IsPastEnd(r Reader, t Tree, key []byte) (bool, error) {
	last, err := lastKey(r, t)
	return err == nil && (t.Depth == 0 || bytes.Compare(last, key) < 0), err
}

// lastKey returns a copy of the last key of the tree, nil if the tree is empty.
func lastKey(r Reader, t Tree) ([]byte, error) {
	var c Cursor
	c.Reset(r, t)
	if !c.Last() {
		return nil, c.Err()
	}
	return bytes.Clone(c.Key()), nil
}

func (p *insertOp) appendItem(t *Tree, it item) error {
	ref, b, err := p.edit(t.Root, t.Depth-1)
	if err != nil {
		return err
	}
	t.Root = ref
	if t.Depth == 1 {
		p.split, p.right, p.rows, p.sep = true, it.ref, it.rows, it.sep
	} else if err := p.appendItemAt(b, t.Depth-1, it); err != nil {
		return err
	}
	t.Rows += it.rows
	if !p.split {
		return nil
	}
	return p.growRoot(t, b)
}

// appendItemAt appends a leaf below branch b, which is editable.
func (p *insertOp) appendItemAt(b []byte, level uint8, it item) error {
	n := count(b)
	if level == 1 {
		return p.addChild(b, n, it)
	}
	i := n - 1
	ref, cb, err := p.edit(childRef(b, n, i), level-1)
	if err != nil {
		return err
	}
	setChildRef(b, n, i, ref)
	if err := p.appendItemAt(cb, level-1, it); err != nil {
		return err
	}
	if p.split {
		if err := setSummary(b, n, i, cb); err != nil {
			return err
		}
		return p.addChild(b, n, item{p.sep, p.right, p.rows})
	}
	if rowsBelow(b, n, i) > maxRows-it.rows {
		return damage(ref, "more rows than a branch can count")
	}
	setChildRows(b, n, i, childRows(b, n, i)+it.rows)
	return nil
}
