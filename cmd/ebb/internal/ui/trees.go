package ui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/txn"
)

// treeInfo is a tree of the checkpoint.
type treeInfo struct {
	ID     uint64  `json:"id"`
	Family string  `json:"family"` // "": none
	Role   string  `json:"role"`
	Rows   uint64  `json:"rows"`
	Depth  uint8   `json:"depth"`
	Root   uint64  `json:"root"`
	Levels []level `json:"levels"` // of the pages that were read; 0 are the leaves

	Extents     int64 `json:"extents"` // large values
	ExtentPages int64 `json:"extent_pages"`
	ExtentBytes int64 `json:"extent_bytes"`

	tree tree.Tree
}

// level is what is known of the pages of one level of a tree.
type level struct {
	Pages int64 `json:"pages"`
	Rows  int64 `json:"entries"`
	Used  int64 `json:"used_bytes"`
}

// A reader is the btree.Reader of the raw file.
type reader struct {
	*pager.RawFile
	tree.NoHints
	ctx    context.Context
	onPage func(b []byte) // may be nil
	// extent, unless nil, is called instead of reading an extent.
	extent func(size int)
}

// Page implements btree.Reader.
func (r *reader) Page(ref pager.Ref) ([]byte, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	b, err := r.RawFile.Page(ref)
	if err == nil {
		err = tree.CheckPage(b, r.PageSize())
	}
	if errors.Is(err, pager.ErrRead) { // of the disk: the walk goes on behind it, as behind damage
		err = badfile.Page("", uint64(ref.Pgid), -1, "%v", err)
	}
	if err == nil && r.onPage != nil {
		r.onPage(b)
	}
	return b, err
}

// Leaf implements btree.Reader.
func (r *reader) Leaf(ref pager.Ref) (b, changes []byte, err error) {
	b, err = r.Page(ref)
	return b, nil, err
}

// Extent implements btree.Reader.
func (r *reader) Extent(ref pager.Ref, size int) ([]byte, error) {
	if r.extent != nil {
		r.extent(size)
		return nil, nil
	}
	return r.RawFile.Extent(ref, size)
}

// mostTrees bounds the memory for trees: their numbers fit into 16 bits.
const mostTrees = 1<<16 - 2

// listTrees reads the tree table and the catalog of a checkpoint. What cannot be read is left out:
// the walk finds it again. Trees of lost families have no family.
func listTrees(r *reader, m *pager.Meta) (list []*treeInfo) {
	table := tree.Tree{Root: m.Root, Depth: m.RootDepth, Rows: m.RootRows}
	list = append(list, &treeInfo{Role: "tree table", tree: table})
	byID := map[txn.TreeID]*treeInfo{}
	eachValue(r, table, func(key, value []byte) {
		id, root, err := txn.DecodeTreeRow(key, value)
		if err != nil || len(list) == mostTrees {
			return
		}
		t := &treeInfo{ID: uint64(id), Role: "unknown", tree: root}
		switch {
		case id == txn.CatalogTree:
			t.Role = "catalog"
		case id.Dropped():
			t.Role = "dropped"
		}
		byID[id], list = t, append(list, t)
	})
	if catalog := byID[txn.CatalogTree]; catalog != nil {
		eachValue(r, catalog.tree, func(key, value []byte) {
			if f, err := cf.DecodeEntry(key, value); err == nil {
				nameTrees(r, f, byID)
			}
		})
	}
	for _, t := range list {
		t.Rows, t.Depth, t.Root = t.tree.Rows, t.tree.Depth, uint64(t.tree.Root.Pgid)
		t.Levels = make([]level, min(int(t.Depth), 64))
	}
	slices.SortStableFunc(list, func(a, b *treeInfo) int { return compareTrees(a, b) })
	return list
}

// nameTrees gives the trees of a family its name and their roles.
func nameTrees(r *reader, f *cf.Family, byID map[txn.TreeID]*treeInfo) {
	for _, id := range []txn.TreeID{f.Data(), f.KeyIndex(), f.ExpiryIndex(), f.Metadata()} {
		if t := byID[id]; t != nil {
			t.Family, t.Role = f.Name, f.Role(id)
		}
	}
	metadata := byID[f.Metadata()]
	if metadata == nil {
		return
	}
	eachValue(r, metadata.tree, func(key, value []byte) {
		p, err := cf.DecodeMetadata(key, value)
		if err != nil || p == nil || byID[p.Tree] == nil {
			return
		}
		t := byID[p.Tree]
		t.Family, t.Role = f.Name, "partition from "+time.UnixMilli(p.Start).UTC().Format(time.RFC3339)
	})
}

// compareTrees puts the trees of families first, by name.
func compareTrees(a, b *treeInfo) int {
	switch {
	case (a.Family == "") != (b.Family == ""):
		if a.Family == "" {
			return 1
		}
		return -1
	case a.Family != b.Family:
		if a.Family < b.Family {
			return -1
		}
		return 1
	}
	return 0
}

// eachValue calls fn on the rows of a tree that can be read.
func eachValue(r *reader, t tree.Tree, fn func(key, value []byte)) {
	_ = tree.EachRow(r, t, func(c *tree.Cursor) error { // the functions return the end of the context alone
		if value, err := c.ReadValue(); err == nil {
			fn(c.Key(), value)
		}
		return r.ctx.Err()
	}, func(tree.Gap) error { return r.ctx.Err() })
}

// name is how a finding names the tree.
func (t *treeInfo) name() string {
	switch {
	case t.Family != "":
		return fmt.Sprintf("family %q, %s", t.Family, t.Role)
	case t.ID == 0 || t.Role == "catalog":
		return t.Role
	}
	return fmt.Sprintf("tree %d, %s", t.ID, t.Role)
}
