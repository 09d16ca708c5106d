package btree

import "github.com/ebbkv/ebb/pager"

// Newer calls visit for each page and extent of the tree whose epoch is above since, parents before
// children, and does not read the others: no page is newer than the page that refers to it. since 0
// visits all of them. Newer reads branches, and leaves that may refer to extents. page returns a
// verified page, which stays valid until the next call with the same level.
func Newer(
	page func(ref pager.Ref, level uint8) ([]byte, error),
	t Tree,
	since pager.Epoch,
	visit func(ref pager.Ref, pages uint64) error,
) error {
	if err := t.checkDepth(); err != nil || t.Depth == 0 || t.Root.Epoch <= since {
		return err
	}
	n := newer{page, since, visit}
	return n.walk(t.Root, t.Depth-1, true)
}

type newer struct {
	page  func(ref pager.Ref, level uint8) ([]byte, error)
	since pager.Epoch
	visit func(ref pager.Ref, pages uint64) error
}

// walk visits the newer subtree at ref. overflow says that its leaves may refer to extents.
func (n *newer) walk(ref pager.Ref, level uint8, overflow bool) error {
	if err := n.visit(ref, 1); err != nil || level == 0 && !overflow {
		return err
	}
	b, err := n.page(ref, level)
	if err != nil {
		return err
	}
	w := ld32(b, offKind)
	if w&0xffff != kindWord(level) {
		return misplaced(ref, b, level)
	}
	rows := int(w >> 16)
	if level == 0 {
		return n.extents(b, rows)
	}
	for i := range rows {
		child := childRef(b, rows, i)
		if child.Epoch <= n.since {
			continue
		}
		if child.Epoch > ref.Epoch {
			return damage(ref, "child %d, page %d, is of epoch %d, newer than its parent's %d",
				i, child.Pgid, child.Epoch, ref.Epoch)
		}
		if err := n.walk(child, level-1, childRows(b, rows, i)&rowsOverflow != 0); err != nil {
			return err
		}
	}
	return nil
}

func (n *newer) extents(b []byte, rows int) error {
	if !leafHasOverflow(b, rows) {
		return nil
	}
	return overflowCells(b, rows, func(_ int, ref pager.Ref, size int) error {
		if ref.Epoch <= n.since {
			return nil
		}
		return n.visit(ref, pager.ExtentPages(size, len(b)))
	})
}
