package btree

import "github.com/ebbkv/ebb/pager"

// Relocate copies pages and extents whose page number is limit or above to where the Writer puts new ones, about max
// pages in one step. The path to each of them is edited with it; pages that the transaction owns stay. It returns the
// number of pages that left the range: 0 means that none is left that could, or that the Writer has no room below limit.
func Relocate(w Writer, t *Tree, limit pager.Pgid, max int) (moved int, err error) {
	if err := t.checkDepth(); err != nil || t.Depth == 0 {
		return 0, err
	}
	m := mover{editor: editor{w: w}, limit: limit, left: max}
	ref, err := m.move(t.Root, t.Depth-1, true)
	if err != nil {
		return 0, err
	}
	t.Root = ref
	return m.moved, nil
}

// A mover is one step of Relocate.
type mover struct {
	editor
	limit pager.Pgid
	left  int // pages that may still be copied
	moved int // pages that are below limit now
}

// count notes that n pages at or above limit were copied to where to names.
func (m *mover) count(n int, to pager.Pgid) {
	m.left -= n
	if to < m.limit {
		m.moved += n
	}
}

// move moves what it may of the subtree at ref and returns the new reference of its root.
func (m *mover) move(ref pager.Ref, level uint8, overflow bool) (pager.Ref, error) {
	if m.left <= 0 {
		return ref, nil
	}
	if level == 0 && !overflow {
		if ref.Pgid < m.limit {
			return ref, nil
		}
		nref, _, err := m.editMoved(ref, 0)
		return nref, err
	}
	b, n, err := pageAt(m.w, ref, level)
	if err != nil {
		return ref, err
	}
	edited := false
	for i := 0; i < n && m.left > 0; i++ {
		var was, is pager.Ref
		if level == 0 {
			off := slot(b, n, i)
			info := infoAt(b, off)
			if info&infoOverflow == 0 || overflowAt(b, off).Pgid < m.limit {
				continue
			}
			was = overflowAt(b, off)
			is, err = m.moveExtent(was, int(info&infoSize), len(b))
		} else {
			was = childRef(b, n, i)
			is, err = m.move(was, level-1, childRows(b, n, i)&rowsOverflow != 0)
		}
		if err != nil {
			return ref, err
		}
		if is == was {
			continue
		}
		if !edited {
			if ref, b, err = m.editMoved(ref, level); err != nil {
				return ref, err
			}
			edited = true
		}
		if level == 0 {
			setOverflowAt(b, slot(b, n, i), is)
		} else {
			setChildRef(b, n, i, is)
		}
	}
	if !edited && ref.Pgid >= m.limit && m.left > 0 {
		ref, _, err = m.editMoved(ref, level)
	}
	return ref, err
}

// editMoved edits a page and counts it if that took it out of the range.
func (m *mover) editMoved(ref pager.Ref, level uint8) (pager.Ref, []byte, error) {
	nref, b, err := m.edit(ref, level)
	if err == nil && ref.Pgid >= m.limit && nref.Pgid != ref.Pgid {
		m.count(1, nref.Pgid)
	}
	return nref, b, err
}

func (m *mover) moveExtent(ref pager.Ref, size, pageSize int) (pager.Ref, error) {
	value, err := m.w.Extent(ref, size)
	if err != nil {
		return ref, err
	}
	nref, err := m.w.NewExtent(value)
	if err != nil {
		return ref, err
	}
	m.count(ExtentPages(size, pageSize), nref.Pgid)
	return nref, m.w.FreeExtent(ref, size)
}
