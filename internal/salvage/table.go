package salvage

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/txn"
)

// A table is one state of the tree table: the one of a meta page, or one that a scan has found.
// Checkpoints alone write tables, of committed rows: so every page that proves by an exact reference
// from a table was part of a committed state.
type table struct {
	tree  tree.Tree
	trees map[txn.TreeID]tree.Tree // dropped ones too
	gaps  []tree.Gap
	lost  uint64 // rows of the trees, without dropped ones, that cannot be read
}

// treeState is a tree of the store.
type treeState struct {
	tree tree.Tree
	// older is the checkpoint of the table that the tree is from, if the newest one has lost it
	older pager.Epoch
	role  role
}

type role uint8

const (
	roleData role = iota
	roleIndex
	roleMetadata
	roleCatalog
	roleDropped
)

// readTable reads the rows of a table.
func (r *rescue) readTable(t *table) error {
	t.trees = map[txn.TreeID]tree.Tree{}
	return r.view.fresh().walk(t.tree, func(c *tree.Cursor) error {
		value, err := c.ReadValue()
		if err == nil {
			var id txn.TreeID
			var root tree.Tree
			if id, root, err = txn.DecodeTreeRow(c.Key(), value); err == nil {
				t.trees[id] = root
				return nil
			}
		}
		key := bytes.Clone(c.Key())
		t.gaps = append(t.gaps, tree.Gap{Lower: key, Upper: append(bytes.Clone(key), 0), Err: err})
		return nil
	}, func(g tree.Gap) error {
		g.Lower, g.Upper = bytes.Clone(g.Lower), bytes.Clone(g.Upper)
		t.gaps = append(t.gaps, g)
		return nil
	})
}

// mostTables is how many states of the table are compared if no meta page says which counts. A
// crash in the middle of a checkpoint leaves pages of one that is not complete.
const mostTables = 3

// mostOlder is how many older states of the table are searched for trees that the newest has lost.
const mostOlder = 16

// findTrees finds the trees of the newest state.
func (r *rescue) findTrees() error {
	meta, certain := r.src.Meta()
	var found []*table
	if meta != nil {
		r.report.Checkpoint = uint32(meta.Epoch)
		found = []*table{{tree: tree.Tree{Root: meta.Root, Depth: meta.RootDepth, Rows: meta.RootRows}}}
	}
	if !certain && meta != nil {
		// A log that is complete from the intact page on says that no newer state has superseded it: a
		// newer table is that of a checkpoint that did not end, and has less than the log, or commits
		// whose records were never durable. Recovery would start here, too.
		r.meta = meta
		if err := r.readLog(); err != nil {
			return err
		}
		certain = r.report.Log.Why == "" && (!meta.Clean || r.report.Log.Commits > 0)
	}
	if !certain {
		newer, err := r.scanTables(pager.MaxEpoch)
		if err != nil {
			return err
		}
		found = mergeTables(found, newer)
	}
	if len(found) == 0 {
		r.note("the roots of all trees: no tree table can be read")
		return nil
	}
	best := found[0]
	for i, t := range found[:min(len(found), mostTables)] {
		if err := r.readTable(t); err != nil {
			return err
		}
		if len(found) == 1 {
			break
		}
		if err := r.count(t); err != nil {
			return err
		}
		if i > 0 && t.lost < best.lost && len(t.gaps) <= len(best.gaps) {
			best = t
		}
	}
	r.meta = meta
	if meta == nil || best.tree.Root != meta.Root {
		r.meta, r.report.Checkpoint = nil, uint32(best.tree.Root.Epoch)
	}
	r.table = best
	for id, t := range best.trees {
		r.addTree(id, t, 0)
	}
	return r.fillTable()
}

func (r *rescue) addTree(id txn.TreeID, t tree.Tree, older pager.Epoch) {
	r.trees[id] = &treeState{tree: t, older: older}
	if id.Dropped() {
		r.trees[id].role = roleDropped
	}
}

// count counts the rows of a table's trees that cannot be read.
func (r *rescue) count(t *table) error {
	v := r.view.fresh()
	for _, id := range slices.Sorted(maps.Keys(t.trees)) {
		if id.Dropped() {
			continue
		}
		err := v.walk(t.trees[id], func(*tree.Cursor) error { return nil }, func(g tree.Gap) error {
			t.lost += g.Rows
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fillTable takes trees that the table has lost from older tables.
func (r *rescue) fillTable() error {
	if len(r.table.gaps) == 0 {
		return nil
	}
	older, err := r.scanTables(r.table.tree.Root.Epoch)
	if err != nil {
		return err
	}
	for _, t := range older[:min(len(older), mostOlder)] {
		if err := r.readTable(t); err != nil {
			return err
		}
		for id, root := range t.trees {
			if _, there := r.trees[id]; !there &&
				inGap(r.table.gaps, binary.BigEndian.AppendUint64(nil, uint64(id))) {
				r.addTree(id, root, t.tree.Root.Epoch)
			}
		}
	}
	for _, g := range r.table.gaps {
		r.note(fmt.Sprintf("the newest roots of trees: %v", g.Err))
	}
	return nil
}

func inGap(gaps []tree.Gap, key []byte) bool {
	return slices.ContainsFunc(gaps, func(g tree.Gap) bool {
		return bytes.Compare(g.Lower, key) <= 0 && (g.Upper == nil || bytes.Compare(key, g.Upper) < 0)
	})
}

// scanTables finds the tables of all epochs below limit that are still in the file, the newest
// first: pages whose leftmost leaf is the first leaf of a table, and whose catalog proves.
func (r *rescue) scanTables(limit pager.Epoch) (found []*table, err error) {
	err = r.src.Scan(func(h pager.Header, b []byte) bool {
		if h.Kind != pager.KindLeaf && h.Kind != pager.KindBranch || h.Epoch >= limit {
			return r.ctx.Err() == nil
		}
		ref := pager.Ref{Pgid: h.Pgid, Epoch: h.Epoch}
		t := tree.Tree{Root: ref, Depth: h.Level + 1, Rows: uint64(h.Count)}
		if tree.CheckPage(b, r.src.PageSize()) == nil && r.isTable(t) {
			found = append(found, &table{tree: t})
		}
		return r.ctx.Err() == nil
	})
	if err == nil {
		err = r.ctx.Err()
	}
	return mergeTables(nil, found), err
}

// mergeTables sorts tables, and drops those that are the first leaf of another one.
func mergeTables(a, b []*table) []*table {
	for _, t := range b {
		if !slices.ContainsFunc(a, func(u *table) bool { return u.tree.Root == t.tree.Root }) {
			a = append(a, t)
		}
	}
	slices.SortFunc(a, func(t, u *table) int {
		return cmp.Or(
			cmp.Compare(u.tree.Root.Epoch, t.tree.Root.Epoch),
			cmp.Compare(u.tree.Depth, t.tree.Depth),
			cmp.Compare(t.tree.Root.Pgid, u.tree.Root.Pgid),
		)
	})
	return a
}

// isTable reports whether t is a tree table: it begins with the row of the catalog, which is a tree
// of families.
func (r *rescue) isTable(t tree.Tree) bool {
	key, value, ok := r.view.first(t)
	if !ok {
		return false
	}
	id, catalog, err := txn.DecodeTreeRow(key, value)
	if err != nil || id != txn.CatalogTree {
		return false
	}
	if catalog.Root.IsZero() {
		return true
	}
	key, value, ok = r.view.first(catalog)
	if !ok {
		return false
	}
	_, err = cf.DecodeEntry(key, value)
	return err == nil
}
