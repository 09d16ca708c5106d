package txn

import (
	"context"
	"encoding/binary"
	"io"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// CopyTo writes the state of a read transaction to w: a store file with an id of its own, closed
// cleanly, all pages full and no page free. It reads the rows twice, see pager.CopyWriter, and seeks
// in w never. It returns the bytes written.
func (tx *Tx) CopyTo(ctx context.Context, w io.Writer) (int64, error) {
	if err := tx.check(); err != nil {
		return 0, err
	}
	s := tx.s
	m := s.pg.LastMeta()
	m = pager.Meta{
		PageSize: m.PageSize, SegmentSize: m.SegmentSize, NextTree: uint64(tx.v.nextID),
		NextTrash: tx.v.trash,
		Seq:       tx.v.seq, ClockMark: tx.v.mark, LogStart: uint64(wal.First(m.SegmentSize, 1)),
	}
	m.LogDurable = m.LogStart
	if mark := s.checkpointer.closingMark; mark != nil {
		m.ClockMark, _ = mark(m.ClockMark)
	}
	binary.LittleEndian.PutUint64(m.StoreID[:], s.o.Rand())
	binary.LittleEndian.PutUint64(m.StoreID[8:], s.o.Rand())
	o := pager.Options{SmallGroups: s.o.SmallGroups}
	if err := tx.copyTrees(ctx, pager.NewCopyWriter(o, &m), &m); err != nil {
		return 0, err
	}
	c := pager.NewCopyWriter(o, &m)
	if err := c.Begin(w, m); err != nil {
		return c.Bytes(), err
	}
	counted := m
	err := tx.copyTrees(ctx, c, &m)
	if err == nil && (m.Root != counted.Root || m.Pages != counted.Pages) {
		panic("txn: copy: two reads of a snapshot differ")
	}
	return c.Bytes(), err
}

// copyTrees builds all trees, and the tree table above them.
func (tx *Tx) copyTrees(ctx context.Context, c *pager.CopyWriter, m *pager.Meta) error {
	var rows []byte // of the table
	err := error(nil)
	tx.v.trees.from(0, func(id TreeID, _ tree.Tree) bool {
		if id >= trashBit {
			return false
		}
		var t tree.Tree
		if t, err = tx.copyTree(ctx, c, id); err == nil {
			rows = appendTree(append(rows, treeKey(id)...), t)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	b := tree.NewBuilder(c)
	for ; len(rows) > 0; rows = rows[8+treeRow:] {
		if err := b.Add(rows[:8], rows[8:8+treeRow], 0); err != nil {
			return err
		}
	}
	table, err := b.Finish()
	if err != nil {
		return err
	}
	m.Root, m.RootDepth, m.RootRows = table.Root, table.Depth, table.Rows
	return c.End(m)
}

func (tx *Tx) copyTree(ctx context.Context, c *pager.CopyWriter, id TreeID) (tree.Tree, error) {
	b := tree.NewBuilder(c)
	from := tx.Cursor(id)
	n := 0
	for ok := from.First(); ok; ok = from.Next() {
		if n++; n%1024 == 0 {
			if err := contextErr(ctx); err != nil {
				return tree.Tree{}, err
			}
		}
		if err := b.Add(from.Key(), from.Value(), from.Tag()); err != nil {
			return tree.Tree{}, err
		}
	}
	if err := from.Err(); err != nil {
		return tree.Tree{}, err
	}
	return b.Finish()
}
