package salvage

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/txn"
)

// mostLostFound bounds the number of families for rows of unknown trees.
const mostLostFound = 64

// lostFound saves the rows of unknown trees: those in use that can only be a user's, and with
// Options.Stale all others. Each piece is a family of its own, as long as they are few: a root that
// the tree table has lost is one. Else pieces whose keys do not overlap share one.
func (w *output) lostFound(r *rescue) error {
	pieces := slices.DeleteFunc(slices.Clone(r.pieces), func(p *piece) bool { return !p.user && !r.o.Stale })
	if r.o.Stale {
		r.report.UnknownRows, r.report.StaleRows = 0, 0
		for _, ref := range r.stale {
			t := tree.Tree{Root: ref, Depth: 1}
			pieces = append(pieces, &piece{tree: t, first: cut(r.view.firstKey(t))})
		}
	}
	slices.SortFunc(pieces, func(p, q *piece) int {
		return cmp.Or(r.compare(p, q), cmp.Compare(q.tree.Root.Epoch, p.tree.Root.Epoch))
	})
	few := len(pieces) <= mostLostFound && len(r.stale) == 0
	var groups [][]*piece
	var ends [][]byte // last key of each group
	for _, p := range pieces {
		first, last, err := r.view.of(p.tree).bounds(p.tree, func(*tree.Cursor) {})
		if err != nil {
			return err
		}
		at := slices.IndexFunc(ends, func(end []byte) bool { return !few && bytes.Compare(end, first) < 0 })
		if at < 0 && len(groups) < mostLostFound {
			groups, ends, at = append(groups, nil), append(ends, nil), len(groups)
		}
		if at < 0 {
			r.report.UnknownRows += int64(p.tree.Rows)
			continue
		}
		groups[at], ends[at] = append(groups[at], p), last
	}
	for i, group := range groups {
		if err := w.saveGroup(r, fmt.Sprintf("lost+found-%d", i+1), group); err != nil {
			return err
		}
	}
	return nil
}

func (w *output) saveGroup(r *rescue, name string, pieces []*piece) error {
	for slices.ContainsFunc(r.families, func(f *family) bool { return f.entry.Name == name }) {
		name += "+"
	}
	f := r.addFamily(&cf.Family{Name: name, Base: r.nextBase})
	r.nextBase += 4
	if err := w.write(func(tx *txn.Tx) error { return cf.Adopt(tx, f.entry) }); err != nil {
		return err
	}
	if err := w.create(f.entry.Data()); err != nil {
		return err
	}
	err := w.load(f.entry.Data(), 0, func(add addRow) error {
		e := &emitter{r: r, report: f.report, view: r.view.fresh(), add: add}
		for _, p := range pieces {
			if err := e.tree(p.tree); err != nil {
				return err
			}
		}
		return nil
	})
	r.report.LostFound += f.report.Saved
	r.report.Families = append(r.report.Families, *f.report)
	return err
}
