package salvage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// Bounds of the new store's memory and of its transactions.
const (
	outputCache = 32 << 20
	outputTx    = 8 << 20
	// manyRows is from how many rows on a tree is loaded without the log, at the price of a
	// checkpoint.
	manyRows = 10_000
)

// output is the new store. Its trees have the numbers that they have in the damaged one, so that the
// log applies as it is.
type output struct {
	ctx context.Context
	s   *txn.Store
	tx  *txn.Tx // open write transaction; nil: none
}

func dirOf(path string) string { return filepath.Dir(path) }

func newOutput(ctx context.Context, path string, r *rescue) (*output, error) {
	o := r.o.Engine
	o.FS, o.PageSize, o.NoMap = r.o.FS, r.src.PageSize(), true // a map would count as memory
	if o.CacheBytes == 0 {
		o.CacheBytes = outputCache
	}
	s, err := txn.Open(path, o)
	if err != nil {
		return nil, err
	}
	return &output{ctx: ctx, s: s}, nil
}

// write runs fn in the open transaction, which it commits when it is large.
func (w *output) write(fn func(tx *txn.Tx) error) (err error) {
	if w.tx == nil {
		if w.tx, err = w.s.Begin(w.ctx, true); err != nil {
			return err
		}
	}
	if err := fn(w.tx); err != nil {
		return err
	}
	if w.tx.Bytes() < outputTx {
		return nil
	}
	return w.commit()
}

func (w *output) commit() error {
	if w.tx == nil {
		return nil
	}
	tx := w.tx
	w.tx = nil
	return tx.Commit(txn.NoSync)
}

// close makes the store durable, unless it is given up.
func (w *output) close(failed error) error {
	if failed == nil {
		failed = w.commit()
	}
	if w.tx != nil {
		w.tx.Rollback()
		w.tx = nil
	}
	return errors.Join(failed, w.s.Close())
}

// fill writes everything.
func (w *output) fill(r *rescue) error {
	if err := w.families(r); err != nil {
		return err
	}
	for _, f := range r.families {
		for _, s := range f.sources {
			err := w.load(s.to, s.state.tree.Rows, func(add addRow) error { return r.rows(s, add) })
			if err != nil {
				return fmt.Errorf("family %q: %w", f.entry.Name, err)
			}
		}
		r.report.Families = append(r.report.Families, *f.report)
	}
	if err := w.lostFound(r); err != nil {
		return err
	}
	if err := w.numbers(r); err != nil {
		return err
	}
	if err := w.applyLog(r); err != nil {
		return err
	}
	if err := w.commit(); err != nil {
		return err
	}
	return w.indexes(r)
}

// families writes the catalog and the metadata, and creates the trees.
func (w *output) families(r *rescue) error {
	for _, f := range r.families {
		err := w.write(func(tx *txn.Tx) error {
			if r.meta != nil {
				tx.SetMark(r.meta.ClockMark)
			}
			return cf.Adopt(tx, f.entry)
		})
		if err != nil {
			return err
		}
		ids := []txn.TreeID{f.entry.Data()}
		for _, s := range f.sources {
			ids = append(ids, s.to)
		}
		if err := w.create(ids...); err != nil {
			return err
		}
	}
	for _, m := range r.metadata {
		id := m.family.entry.Metadata()
		if err := w.create(id); err != nil {
			return err
		}
		err := w.write(func(tx *txn.Tx) error {
			_, err := tx.Put(id, m.key, m.value, 0)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *output) create(ids ...txn.TreeID) error {
	for _, id := range ids {
		err := w.write(func(tx *txn.Tx) error {
			if tx.Exists(id) {
				return nil
			}
			return tx.Create(id)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// numbers makes sure that no tree number of the damaged store, or of a family, is given again.
func (w *output) numbers(r *rescue) error {
	next := txn.TreeID(0)
	if r.meta != nil {
		next = txn.TreeID(r.meta.NextTree)
	}
	for id := range r.owner {
		next = max(next, id+1)
	}
	return w.write(func(tx *txn.Tx) error {
		if next <= txn.CatalogTree+1 || tx.Exists(next-1) {
			return nil
		}
		return errors.Join(tx.Create(next-1), tx.Drop(next-1))
	})
}

// addRow adds the next row of a tree.
type addRow = func(key, value []byte, tag int64) error

// load fills tree id, which is empty, with rows in the order of their keys.
func (w *output) load(id txn.TreeID, n uint64, rows func(addRow) error) error {
	if n < manyRows {
		return rows(func(key, value []byte, tag int64) error {
			return w.write(func(tx *txn.Tx) error {
				_, err := tx.Put(id, key, value, tag)
				return err
			})
		})
	}
	if err := w.commit(); err != nil {
		return err
	}
	_, err := w.s.BulkLoad(w.ctx, nil, id, rows)
	return err
}

// rows calls add for each row of a tree, and reports the others.
func (r *rescue) rows(s *source, add addRow) error {
	e := &emitter{r: r, report: s.family.report, view: r.view.fresh(), add: add}
	return e.tree(s.state.tree)
}

// emitter gives rows of one tree in the order of their keys.
type emitter struct {
	r      *rescue
	report *Family
	view   *view
	add    addRow
	last   []byte
	any    bool
	passed uint64 // rows that were read, or reported
}

func (e *emitter) tree(t tree.Tree) error { return e.view.walk(t, e.row, e.gap) }

// row gives the row of the cursor. Rows out of order would end the load: a tree whose pages prove has
// none.
func (e *emitter) row(c *tree.Cursor) error {
	e.passed++
	key := c.Key()
	value, err := c.ReadValue()
	switch tag := c.Tag(); {
	case err != nil:
	case tag < 0:
		err = fmt.Errorf("expiry %d", tag)
	case e.any && bytes.Compare(key, e.last) <= 0:
		err = fmt.Errorf("it is not above the key before it")
	default:
		if err := e.add(key, value, tag); err != nil {
			return err
		}
		e.last, e.any = append(e.last[:0], key...), true
		e.report.Saved++
		return nil
	}
	if ctxErr := e.r.ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	e.report.gap(Gap{Key: bytes.Clone(key), Rows: 1, Why: err.Error()})
	return nil
}

// gap gives the rows of the pieces that fit a lost branch, and reports the rest of it.
func (e *emitter) gap(g tree.Gap) error {
	lost := Gap{
		Lower: bytes.Clone(g.Lower), Upper: bytes.Clone(g.Upper),
		Rows: int64(g.Rows), Page: uint64(g.Ref.Pgid), Why: g.Err.Error(),
	}
	was := e.passed
	i := -1
	if g.Level > 0 {
		i = slices.IndexFunc(e.r.lostBranches, func(h *lostBranch) bool { return h.Ref == g.Ref })
	}
	if i >= 0 {
		for _, p := range e.r.lostBranches[i].pieces {
			if err := e.tree(p.tree); err != nil {
				return err
			}
		}
	}
	lost.Rows -= int64(e.passed - was)
	e.report.gap(lost)
	e.passed = was + g.Rows
	return nil
}

// indexes builds the expiry indexes of all families from their rows.
func (w *output) indexes(r *rescue) error {
	var families []*cf.Family
	read, err := w.s.Begin(w.ctx, false)
	if err != nil {
		return err
	}
	defer read.Rollback()
	if err := cf.Each(read, func(f *cf.Family) bool {
		families = append(families, f)
		return true
	}); err != nil {
		return err
	}
	for _, f := range families {
		if f.Partitioned() {
			continue
		}
		if err := w.index(read, f); err != nil {
			return err
		}
	}
	return w.commit()
}

// indexBatch is how many rows are sorted before they go into the expiry index.
const indexBatch = 50_000

func (w *output) index(read *txn.Tx, f *cf.Family) error {
	var due [][]byte
	flush := func() error {
		slices.SortFunc(due, bytes.Compare)
		for _, key := range due {
			err := w.write(func(tx *txn.Tx) error {
				_, err := tx.Put(f.ExpiryIndex(), key, nil, 0)
				return err
			})
			if err != nil {
				return err
			}
		}
		due = due[:0]
		return nil
	}
	c := read.Cursor(f.Data())
	for ok := c.First(); ok; ok = c.Next() {
		tag := c.Tag()
		if tag == 0 {
			continue
		}
		if err := w.create(f.KeyIndex(), f.ExpiryIndex()); err != nil {
			return err
		}
		value, row := ttl.IndexRows(c.Key(), tag)
		err := w.write(func(tx *txn.Tx) error {
			_, err := tx.Put(f.KeyIndex(), c.Key(), value, 0)
			return err
		})
		if err != nil {
			return err
		}
		if due = append(due, row); len(due) == indexBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return errors.Join(c.Err(), flush())
}
