package salvage

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
)

// A hole is the place of a branch that cannot be read, with all pages below it. Its leaves may all be
// there: pages in use that no other page refers to.
type hole struct {
	tree.Gap
	pieces []*piece // in the order of keys
	found  uint64   // rows of them
}

// A piece is a subtree of pages in use that no readable page refers to.
type piece struct {
	tree   tree.Tree
	first  []byte // key, cut to keyStart bytes
	hole   *hole  // one that it fits
	fits   int    // holes that it fits
	placed bool
}

// keyStart bounds the memory of a piece: longer keys are read again to be compared.
const keyStart = 64

// survey walks the tree table and all trees: it marks their pages, and collects holes.
func (r *rescue) survey() error {
	all := func(*tree.Cursor) error { return nil }
	if r.table != nil {
		if err := r.view.walk(r.table.tree, all, func(tree.Gap) error { return nil }); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.trees)) {
		t := r.trees[id]
		err := r.view.walk(t.tree, all, func(g tree.Gap) error {
			r.view.seen.Add(g.Ref.Pgid) // whatever is in its place is not what is lost
			if g.Level > 0 {
				g.Lower, g.Upper = bytes.Clone(g.Lower), bytes.Clone(g.Upper)
				r.holes = append(r.holes, &hole{Gap: g})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// findPieces finds the pages in use that no walk has read, and the holes that they belong to. With
// an intact free map and tree table they are the lost subtrees, no page more and none less.
func (r *rescue) findPieces() error {
	if len(r.holes) == 0 && r.table != nil && len(r.table.gaps) == 0 {
		return nil
	}
	if err := r.findFreeMap(); err != nil {
		return err
	}
	roots, err := r.orphans()
	if err != nil {
		return err
	}
	for _, root := range roots {
		p, err := r.newPiece(root)
		if err != nil {
			return err
		}
		r.pieces = append(r.pieces, p)
	}
	if r.table != nil && len(r.table.gaps) == 0 {
		r.fillHoles()
	}
	r.pieces = slices.DeleteFunc(r.pieces, func(p *piece) bool { return p.placed })
	for _, p := range r.pieces {
		r.report.UnknownRows += int64(p.tree.Rows)
	}
	return nil
}

// findFreeMap reads the free map of the state that is saved: by its meta page, or by the newest
// directory that a scan finds, if that is of the table's checkpoint.
func (r *rescue) findFreeMap() error {
	var dir pager.Ref
	if r.meta != nil {
		dir = r.meta.FreeDir
	} else if r.table != nil {
		level := uint8(0)
		err := r.src.Scan(func(h pager.Header, _ []byte) bool {
			if h.Kind == pager.KindFreeDir && h.Epoch == r.table.tree.Root.Epoch && (dir.IsZero() || h.Level > level) {
				dir, level = pager.Ref{Pgid: h.Pgid, Epoch: h.Epoch}, h.Level
			}
			return r.ctx.Err() == nil
		})
		if err != nil {
			return err
		}
	}
	r.used, r.known = pager.NewUsedSet(r.src.Pages()), pager.NewUsedSet(r.src.Pages())
	if !dir.IsZero() {
		r.used, r.known = r.src.FreeMap(dir)
	}
	return r.ctx.Err()
}

// orphans finds the roots of the subtrees that no walk has read. It counts the rows of pages of which
// nothing says whether they are in use.
func (r *rescue) orphans() (roots []tree.Tree, err error) {
	pages, below := r.used.Empty(), r.used.Empty()
	err = r.src.Scan(func(h pager.Header, b []byte) bool {
		inTree := h.Kind == pager.KindLeaf || h.Kind == pager.KindBranch
		if !inTree || r.view.seen.Has(h.Pgid) || tree.CheckPage(b, r.src.PageSize()) != nil {
			return r.ctx.Err() == nil
		}
		switch {
		case !r.known.Has(h.Pgid) && h.Kind == pager.KindLeaf:
			r.report.StaleRows += int64(h.Count)
			r.stale = append(r.stale, pager.Ref{Pgid: h.Pgid, Epoch: h.Epoch})
		case r.used.Has(h.Pgid):
			pages.Add(h.Pgid)
			if h.Kind == pager.KindBranch {
				tree.EachChild(b, func(ref pager.Ref, _ uint64) { below.Add(ref.Pgid) })
			}
		}
		return r.ctx.Err() == nil
	})
	if err != nil {
		return nil, err
	}
	err = r.src.Scan(func(h pager.Header, b []byte) bool {
		if pages.Has(h.Pgid) && !below.Has(h.Pgid) {
			t := tree.Tree{Root: pager.Ref{Pgid: h.Pgid, Epoch: h.Epoch}, Depth: h.Level + 1, Rows: uint64(h.Count)}
			if h.Kind == pager.KindBranch {
				t.Rows = 0
				tree.EachChild(b, func(_ pager.Ref, rows uint64) { t.Rows += rows })
			}
			roots = append(roots, t)
		}
		return r.ctx.Err() == nil
	})
	return roots, cmp.Or(err, r.ctx.Err())
}

// newPiece reads the keys of a subtree that can be read, and finds the hole that they fit: all keys
// within its bounds, on a lower level, and no newer than the lost branch. A piece that fits two holes
// belongs to none.
func (r *rescue) newPiece(t tree.Tree) (*piece, error) {
	first, last, err := r.bounds(t)
	p := &piece{tree: t, first: cut(first)}
	for _, h := range r.holes {
		if t.Depth <= h.Level && t.Root.Epoch <= h.Ref.Epoch &&
			bytes.Compare(h.Lower, first) <= 0 && (h.Upper == nil || bytes.Compare(last, h.Upper) < 0) {
			p.hole = h
			p.fits++
		}
	}
	return p, err
}

func cut(key []byte) []byte { return bytes.Clone(key[:min(len(key), keyStart)]) }

// compare compares the first keys of two pieces.
func (r *rescue) compare(p, q *piece) int {
	if c := bytes.Compare(p.first, q.first); c != 0 || len(p.first) < keyStart {
		return c
	}
	return bytes.Compare(r.view.firstKey(p.tree), r.view.firstKey(q.tree))
}

// fillHoles gives each hole the pieces that fit it, if they do not have more rows than are lost.
func (r *rescue) fillHoles() {
	for _, p := range r.pieces {
		if p.fits == 1 {
			p.hole.pieces = append(p.hole.pieces, p)
			p.hole.found += p.tree.Rows
		}
	}
	for _, h := range r.holes {
		if h.found > h.Rows {
			h.pieces = nil
		}
		slices.SortFunc(h.pieces, r.compare)
		for _, p := range h.pieces {
			p.placed = true
		}
	}
}
