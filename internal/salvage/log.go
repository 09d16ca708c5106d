package salvage

import (
	"errors"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/txn"
	"github.com/ebbkv/ebb/wal"
)

// readLog reads the log behind the checkpoint, and finds its end: damage, the torn tail of a crash,
// or a commit whose leaves are not all there. It changes nothing.
func (r *rescue) readLog() error {
	l := &r.report.Log
	*l = Log{Taken: r.o.Log}
	if r.meta == nil {
		if files, _ := wal.Files(r.o.FS, r.path); len(files) > 0 {
			l.Why, l.Taken = "no meta page says where the log begins", false
		}
		return nil
	}
	ops := txn.LogOpReader{}
	err := r.replay(func(p wal.Part) error {
		err := ops.Take(p.Payload, p.First, p.Last, func(op txn.LogOp) error {
			return op.Leaves(func(ref pager.Ref, sum uint64) error {
				if _, err := r.src.LeafOf(ref, sum); err != nil {
					return errors.Join(wal.ErrRefLost, err)
				}
				return nil
			})
		})
		if err == nil && p.Last {
			l.Commits++
		}
		return err
	})
	if err != nil && r.ctx.Err() == nil {
		l.Why = err.Error()
	}
	return r.ctx.Err()
}

// replay calls fn for each part of each commit behind the checkpoint. A clean meta page needs no log.
func (r *rescue) replay(fn func(wal.Part) error) error {
	found, err := wal.Scan(wal.Options{
		FS: r.o.FS, Path: r.path, StoreID: r.meta.StoreID, SegmentSize: r.meta.SegmentSize,
	})
	if err != nil {
		return err
	}
	if r.meta.Clean && len(found.Segments()) == 0 {
		return nil
	}
	start := wal.LSN(r.meta.LogStart)
	if r.meta.Clean && found.Absent(start) {
		return nil
	}
	_, err = found.Replay(start, wal.LSN(r.meta.LogDurable), func(p wal.Part) error {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		return fn(p)
	})
	return err
}

// errLogEnd ends the second reading where the first one has ended.
var errLogEnd = errors.New("the commits that prove end here")

// applyLog applies the commits that readLog has counted.
func (w *output) applyLog(r *rescue) error {
	if !r.report.Log.Taken || r.report.Log.Commits == 0 {
		return nil
	}
	ops, left := txn.LogOpReader{}, r.report.Log.Commits
	var failed error // of the new store
	err := r.replay(func(p wal.Part) error {
		if left == 0 {
			return errLogEnd
		}
		if p.Last {
			left--
		}
		failed = ops.Take(p.Payload, p.First, p.Last, func(op txn.LogOp) error { return w.applyOp(r, op) })
		return failed
	})
	if failed != nil {
		return failed
	}
	if left > 0 && err != nil {
		return err
	}
	if err := w.write(func(tx *txn.Tx) error {
		tx.SetMark(ops.Mark)
		return nil
	}); err != nil {
		return err
	}
	return w.settle()
}

// applyEntry is called before a catalog entry changes. The family may have had another name: one of
// ours, if its entry was lost.
func (w *output) applyEntry(r *rescue, key, value []byte) error {
	entry, err := cf.DecodeEntry(key, value)
	if err != nil {
		return nil
	}
	was := r.owner[entry.Base]
	for id := entry.Base; id < entry.Base+4; id++ {
		r.owner[id] = &family{entry: entry}
	}
	if was == nil || was.entry.Name == entry.Name || was.entry.Base != entry.Base {
		return nil
	}
	return w.write(func(tx *txn.Tx) error {
		_, err := tx.Delete(txn.CatalogTree, []byte(was.entry.Name))
		return err
	})
}

// settle makes families and trees agree after a log was applied to less than it was made for. Each
// family gets its data tree, partitions without a tree and trees without a family go.
func (w *output) settle() error {
	return w.write(func(tx *txn.Tx) error {
		var families []*cf.Family
		if err := cf.Each(tx, func(f *cf.Family) bool {
			families = append(families, f)
			return true
		}); err != nil {
			return err
		}
		claimed := map[txn.TreeID]bool{txn.CatalogTree: true}
		for _, f := range families {
			if !tx.Exists(f.Data()) {
				if err := tx.Create(f.Data()); err != nil {
					return err
				}
			}
			if err := cf.DropLostPartitions(tx, f); err != nil {
				return err
			}
			if err := cf.EachTree(tx, f, func(id txn.TreeID) { claimed[id] = true }); err != nil {
				return err
			}
		}
		for _, id := range tx.Trees() {
			if !claimed[id] {
				if err := tx.Drop(id); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// applyOp applies one operation, unless it is one of an index: those are built from the rows.
func (w *output) applyOp(r *rescue, op txn.LogOp) error {
	id := op.Tree()
	if f := r.owner[id]; f != nil && (id == f.entry.KeyIndex() || id == f.entry.ExpiryIndex()) {
		return nil
	}
	if key, value := op.Row(); id == txn.CatalogTree && key != nil {
		if err := w.applyEntry(r, key, value); err != nil {
			return err
		}
	}
	var value []byte
	if ref, size, sum, ok := op.Extent(); ok {
		var err error
		if value, err = r.src.LoggedExtent(ref, size, sum); err != nil {
			r.report.Log.Why = err.Error() // an earlier value of the key stays
			return nil
		}
	}
	if to, ok := r.moved[id]; ok {
		id = to
	}
	err := op.Leaves(func(ref pager.Ref, _ uint64) error {
		return r.view.once().walk(tree.Tree{Root: ref, Depth: 1}, func(c *tree.Cursor) error {
			return w.write(func(tx *txn.Tx) error {
				_, err := tx.Put(id, c.Key(), c.Value(), c.Tag())
				return err
			})
		}, func(g tree.Gap) error { return g.Err })
	})
	if err != nil {
		return err
	}
	return w.write(func(tx *txn.Tx) error { return op.Apply(tx, id, value) })
}
