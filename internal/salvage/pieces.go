package salvage

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/txn"
)

// A lostBranch is the place of a branch that cannot be read, with all pages below it. Its leaves may
// all be there: pages in use that no other page refers to.
type lostBranch struct {
	tree.Gap
	of     *treeState
	pieces []*piece // in the order of keys
	found  uint64   // rows of them
}

// A piece is a subtree of pages in use that no readable page refers to.
type piece struct {
	tree  tree.Tree
	first []byte        // key, cut to keyStart bytes
	fits  []*lostBranch // that it fits, and mostFits at most
	// user says that a row has a size, or a tag, that rows of the engine's own trees do not have
	user bool
	// id is the tree of older tables that has some of its pages; 0: none, or several
	id     txn.TreeID
	placed bool
}

// keyStart bounds the memory of a piece: longer keys are read again to be compared. mostFits does,
// too: a piece that fits many belongs to none.
const (
	keyStart = 64
	mostFits = 8
)

// survey walks the tree table and all trees: it marks their pages, and collects lost branches.
func (r *rescue) survey() error {
	all := func(*tree.Cursor) error { return nil }
	if r.table != nil {
		if err := r.view.walk(r.table.tree, all, func(tree.Gap) error { return nil }); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(r.trees)) {
		t := r.trees[id]
		if r.view.visit = nil; t.older != 0 {
			r.view.visit = func(page pager.Pgid) { r.shared[page] = id }
		}
		err := r.view.walk(t.tree, all, func(g tree.Gap) error {
			r.view.seen.Add(g.Ref.Pgid) // whatever is in its place is not what is lost
			if g.Level > 0 {
				g.Lower, g.Upper = bytes.Clone(g.Lower), bytes.Clone(g.Upper)
				r.lostBranches = append(r.lostBranches, &lostBranch{Gap: g, of: t})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	r.view.visit = nil
	return nil
}

// findPieces finds the pages in use that no walk has read. With an intact free map and tree table they
// are the lost subtrees, no page more and none less.
func (r *rescue) findPieces() error {
	if len(r.lostBranches) == 0 && r.table != nil && len(r.table.gaps) == 0 {
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
	if r.table == nil || len(r.table.gaps) > 0 {
		r.nameRoots()
	}
	return nil
}

// nameRoots finds the newest roots of trees that the table has lost. A page belongs to one tree for
// its life: a root of the newest state with a page of an older tree is that tree's. The catalog is
// told by its rows.
func (r *rescue) nameRoots() {
	for _, p := range r.pieces {
		id := p.id
		if key, value, ok := r.view.first(p.tree); ok && isEntry(key, value) {
			id = txn.CatalogTree
		}
		if id == 0 {
			continue
		}
		if t := r.trees[id]; t == nil || t.older != 0 {
			r.trees[id] = &treeState{tree: p.tree}
			p.placed = true
		}
	}
}

func isEntry(key, value []byte) bool {
	_, err := cf.DecodeEntry(key, value)
	return err == nil
}

// placePieces fills the lost branches, and counts the pieces that belong to none.
func (r *rescue) placePieces() error {
	if r.table != nil && len(r.table.gaps) == 0 {
		r.fillBranches()
	}
	r.pieces = slices.DeleteFunc(r.pieces, func(p *piece) bool { return p.placed })
	for _, p := range r.pieces {
		if !p.user {
			r.report.UnknownRows += int64(p.tree.Rows)
		}
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
			if h.Kind == pager.KindFreeDir && h.Epoch == r.table.tree.Root.Epoch &&
				(dir.IsZero() || h.Level > level) {
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
				tree.EachChild(b, func(_ []byte, ref pager.Ref, _ uint64) { below.Add(ref.Pgid) })
			}
		}
		return r.ctx.Err() == nil
	})
	if err != nil {
		return nil, err
	}
	err = r.src.Scan(func(h pager.Header, b []byte) bool {
		if pages.Has(h.Pgid) && !below.Has(h.Pgid) {
			t := tree.Tree{Root: pager.Ref{Pgid: h.Pgid, Epoch: h.Epoch}, Depth: h.Level + 1,
				Rows: uint64(h.Count)}
			if h.Kind == pager.KindBranch {
				t.Rows = 0
				tree.EachChild(b, func(_ []byte, _ pager.Ref, rows uint64) { t.Rows += rows })
			}
			roots = append(roots, t)
		}
		return r.ctx.Err() == nil
	})
	return roots, cmp.Or(err, r.ctx.Err())
}

// newPiece reads the keys of a subtree that can be read, and finds the lost branches that they fit: all keys
// within the bounds, on a lower level, and no newer than the lost branch.
func (r *rescue) newPiece(t tree.Tree) (*piece, error) {
	p := &piece{tree: t}
	v, several := r.view.of(t), false
	v.visit = func(page pager.Pgid) {
		if id, ok := r.shared[page]; ok {
			several = several || p.id != 0 && p.id != id
			p.id = id
		}
	}
	first, last, err := v.bounds(t, func(c *tree.Cursor) { p.user = p.user || !ownRow(c) })
	if p.first = cut(first); several {
		p.id = 0
	}
	for _, h := range r.lostBranches {
		if t.Depth <= h.Level && t.Root.Epoch <= h.Ref.Epoch && len(p.fits) < mostFits &&
			bytes.Compare(h.Lower, first) <= 0 && (h.Upper == nil || bytes.Compare(last, h.Upper) < 0) {
			p.fits = append(p.fits, h)
		}
	}
	return p, err
}

// ownRow reports whether a row may be one of the engine's own trees: tree table, catalog, metadata,
// indexes.
func ownRow(c *tree.Cursor) bool {
	return c.Tag() == 0 && slices.Contains([]int{0, 8, 16, 24, 40}, c.Size())
}

func cut(key []byte) []byte { return bytes.Clone(key[:min(len(key), keyStart)]) }

// compare compares the first keys of two pieces.
func (r *rescue) compare(p, q *piece) int {
	if c := bytes.Compare(p.first, q.first); c != 0 || len(p.first) < keyStart {
		return c
	}
	return bytes.Compare(r.view.firstKey(p.tree), r.view.firstKey(q.tree))
}

// fillBranches gives each lost branch the pieces that fit it and no other one, if they do not have more rows
// than are lost.
func (r *rescue) fillBranches() {
	for _, p := range r.pieces {
		if p.user {
			p.fits = slices.DeleteFunc(p.fits, func(h *lostBranch) bool { return h.of.role != roleData })
		}
		if len(p.fits) == 1 {
			h := p.fits[0]
			h.pieces = append(h.pieces, p)
			h.found += p.tree.Rows
		}
	}
	for _, h := range r.lostBranches {
		if h.found > h.Rows {
			h.pieces = nil
		}
		slices.SortFunc(h.pieces, r.compare)
		for _, p := range h.pieces {
			p.placed = true
		}
	}
}
