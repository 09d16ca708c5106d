package btree

import (
	"github.com/ebbkv/ebb/pager"
)

// A Move is the work of one step of Relocate.
type Move struct {
	Limit pager.Pgid  // pages with this number or above
	Since pager.Epoch // of those, pages born in this epoch or later that no file holds; 0: all, and extents
	Most  int         // about so many pages
	Reads int         // after so many pages were read the step ends; 0: no bound, else more than the depth
	From  []byte      // first key of the step; nil: the first key of the tree
	// Pages is the number of pages of the tree; more visits mean a page that is reachable twice,
	// which is damage. 0: unknown.
	Pages uint64
}

// Moved is the result of a step of Relocate.
type Moved struct {
	Pages int    // moved below the limit, and of extents that moved down
	Read  int    // pages read
	Kept  int    // extents at or above the limit for which there was no space further down
	Next  []byte // first key of the next step; nil: the tree is done
	Full  bool   // the writer has no space below the limit, which ended the step
}

// Relocate moves pages and extents to where the writer allocates new ones, and edits the path to
// each of them. Pages that the transaction owns stay.
func Relocate(w RelocateWriter, t *Tree, step Move) (Moved, error) {
	if err := t.checkDepth(); err != nil || t.Depth == 0 {
		return Moved{}, err
	}
	m := relocator{Move: step, pageEditor: pageEditor{w: w}, writer: w}
	ref, err := m.move(t.Root, t.Depth-1, true)
	if err != nil {
		return Moved{}, err
	}
	t.Root = ref
	return m.Moved, nil
}

// A relocator is one step of Relocate.
type relocator struct {
	Move
	Moved
	pageEditor
	writer  RelocateWriter // is pageEditor.w
	visited uint64         // pages
}

// count records that n pages at or above the limit moved to page to.
func (m *relocator) count(n int, to pager.Pgid) {
	m.Most -= n
	if to < m.Limit {
		m.Moved.Pages += n
	} else {
		m.Full = true
	}
}

// spent reports whether the step has moved all that it may.
func (m *relocator) spent() bool { return m.Full || m.Most <= 0 }

// ends reports whether the step ends before a child of a page at that level. A child is read only if
// the way from it down to a leaf is within the bound: so a page that is read is never the place
// where a step ends before it has entered the first child, whose key its page does not have.
func (m *relocator) ends(level uint8) bool {
	return m.spent() || level > 0 && m.Reads > 0 && m.Read+int(level) > m.Reads
}

// move moves the pages of the subtree at ref as far as the step goes. It returns the new reference
// of its root.
func (m *relocator) move(ref pager.Ref, level uint8, overflow bool) (pager.Ref, error) {
	if m.spent() || ref.Epoch < m.Since { // Pages below are not younger.
		return ref, nil
	}
	if m.visited++; m.visited > m.Move.Pages && m.Move.Pages > 0 {
		return ref, damage(ref, "a tree that comes to more pages than there are")
	}
	if level == 0 && (!overflow || m.Since > 0) {
		return m.moveAlone(ref, 0)
	}
	b, n, err := pageAt(m.w, ref, level)
	if err != nil {
		return ref, err
	}
	m.Read++
	first, keyOf := 0, sep
	switch {
	case level == 0:
		keyOf = leafKey
		if m.From != nil {
			first, _, _ = leafSearch(b, n, m.From)
		}
	case m.From != nil:
		first = branchSearch(b, n, m.From)
	}
	edited := false
	for i := first; i < n; i++ {
		if m.ends(level) {
			if !m.Full && m.Next == nil {
				m.Next = append([]byte{}, keyOf(b, n, i)...)
			}
			break
		}
		if level == 1 && m.Since == 0 {
			readChildren(m.w, b, n, i, m.Limit)
		}
		was, is, err := m.moveEntry(b, n, i, level)
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
			setOverflowAt(b, cellPosOf(b, n, i), is)
		} else {
			setChildRef(b, n, i, is)
		}
	}
	if !edited && m.Next == nil && !m.spent() {
		ref, err = m.moveAlone(ref, level)
	}
	return ref, err
}

// moveEntry moves child i of b, or the extent of row i if b is a leaf. Both references are zero for a
// row without an extent to move.
func (m *relocator) moveEntry(b []byte, n, i int, level uint8) (was, is pager.Ref, err error) {
	if level > 0 {
		was = childRef(b, n, i)
		is, err = m.move(was, level-1, childRows(b, n, i)&rowsOverflow != 0)
		m.From = nil
		return was, is, err
	}
	s := cellPosOf(b, n, i)
	info := infoAt(b, s)
	if info&infoOverflow == 0 || overflowAt(b, s).Pgid < m.Limit {
		return was, is, nil
	}
	was = overflowAt(b, s)
	is, err = m.moveExtent(was, int(info&infoSize), len(b))
	return was, is, err
}

// moveAlone moves a page with unchanged content.
func (m *relocator) moveAlone(ref pager.Ref, level uint8) (pager.Ref, error) {
	if ref.Pgid < m.Limit {
		return ref, nil
	}
	nref, done, err := m.writer.Reassign(ref)
	switch {
	case err != nil || !done && m.Since > 0:
		return ref, err
	case done:
		m.count(1, nref.Pgid)
	default:
		nref, _, err = m.editMoved(ref, level)
	}
	return nref, err
}

// editMoved edits a page and counts it if the edit moved it from above the limit.
func (m *relocator) editMoved(ref pager.Ref, level uint8) (pager.Ref, []byte, error) {
	nref, b, err := m.edit(ref, level)
	if err == nil && ref.Pgid >= m.Limit && nref.Pgid != ref.Pgid {
		m.count(1, nref.Pgid)
	}
	return nref, b, err
}

// moveExtent moves an extent to any place further down, also above the limit: a large value may
// have no place below it until others have left the end of the file.
func (m *relocator) moveExtent(ref pager.Ref, size, pageSize int) (pager.Ref, error) {
	fresh, done, err := m.writer.MoveExtent(ref, size)
	if !done {
		m.Kept++
		return ref, err
	}
	n := int(pager.ExtentPages(size, pageSize))
	m.Most -= n
	m.Moved.Pages += n
	return fresh, nil
}
