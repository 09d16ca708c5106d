package salvage

import (
	"bytes"
	"context"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// A view is the btree.Reader of the damaged file.
type view struct {
	*pager.RawFile
	tree.NoHints
	ctx  context.Context
	read func(bytes int)
	// seen are the pages that this view has read; nil: it does not matter. A second read of one is
	// damage: bytes made up by hand could let a walk go on for ever.
	seen *pager.UsedSet
	// visit is called with each page that was read; it may be nil.
	visit func(pager.Pgid)
}

// fresh is a view that has read nothing.
func (v *view) fresh() *view {
	return &view{RawFile: v.RawFile, ctx: v.ctx, read: v.read, seen: pager.NewUsedSet(v.Pages())}
}

// once is a view for a few pages.
func (v *view) once() *view { return &view{RawFile: v.RawFile, ctx: v.ctx, read: v.read} }

// of is a view for one walk of t.
func (v *view) of(t tree.Tree) *view {
	if t.Depth <= 1 {
		return v.once()
	}
	return v.fresh()
}

// Page implements btree.Reader.
func (v *view) Page(ref pager.Ref) ([]byte, error) {
	if err := v.ctx.Err(); err != nil {
		return nil, err
	}
	b, err := v.RawFile.Page(ref)
	if err == nil {
		err = tree.CheckPage(b, v.PageSize())
	}
	if err != nil {
		return nil, err
	}
	if v.seen != nil && !v.seen.Add(ref.Pgid) {
		return nil, badfile.Page("", uint64(ref.Pgid), -1, "two pages refer to it")
	}
	if v.visit != nil {
		v.visit(ref.Pgid)
	}
	v.read(len(b))
	return b, nil
}

// Leaf implements btree.Reader.
func (v *view) Leaf(ref pager.Ref) (b, changes []byte, err error) {
	b, err = v.Page(ref)
	return b, nil, err
}

// Extent implements btree.Reader.
func (v *view) Extent(ref pager.Ref, size int) ([]byte, error) {
	b, err := v.RawFile.Extent(ref, size)
	v.read(len(b))
	return b, err
}

// walk calls row on each row of t, in order, and gap for each part that cannot be read. An error of
// row ends it, and so does the end of the context.
func (v *view) walk(t tree.Tree, row func(c *tree.Cursor) error, gap func(tree.Gap) error) error {
	return tree.EachRow(v, t, row, func(g tree.Gap) error {
		if err := v.ctx.Err(); err != nil {
			return err
		}
		return gap(g)
	})
}

// mostHeld bounds what a row of the engine's own trees may hold.
const mostHeld = 256

// first returns the first row of t, of a size that rows of the engine's own trees have.
func (v *view) first(t tree.Tree) (key, value []byte, ok bool) {
	c := new(tree.Cursor)
	c.Reset(v.once(), t)
	if !c.First() || c.Size() > mostHeld {
		return nil, nil, false
	}
	value, err := c.ReadValue()
	return c.Key(), value, err == nil
}

// firstKey returns the first key of t, if its first leaf can be read.
func (v *view) firstKey(t tree.Tree) []byte {
	c := new(tree.Cursor)
	c.Reset(v.once(), t)
	c.First()
	return c.Key()
}

// bounds reads the first and the last key of t that can be read, and calls row on each row.
func (v *view) bounds(t tree.Tree, row func(c *tree.Cursor)) (first, last []byte, err error) {
	err = v.walk(t, func(c *tree.Cursor) error {
		if row(c); first == nil {
			first = bytes.Clone(c.Key())
		}
		last = append(last[:0], c.Key()...)
		return nil
	}, func(tree.Gap) error { return nil })
	return first, last, err
}
