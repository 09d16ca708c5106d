package txn

import (
	"errors"
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/wal"
)

// finish applies the rest of the buffer, unless err is set, and makes the last commit the newest
// version.
func (p *replayer) finish(err error) error {
	defer p.free()
	if err == nil {
		err = p.apply(true)
	}
	if err != nil {
		return err
	}
	h := *p.s.head // not visible yet: the store is being opened
	h.seq, h.mark = p.seq, p.mark
	p.s.head = &h
	return nil
}

// free frees the memory. p may be nil.
func (p *replayer) free() {
	if p != nil {
		p.batch.free()
	}
}

// apply applies the buffer and empties it. last says that it is the last one.
func (p *replayer) apply(last bool) (err error) {
	backlog := p.s.pg.NewBackgroundSync()
	defer func() {
		if kept := backlog.Wait(); err == nil {
			err = p.s.dataError(kept)
		}
	}()
	order, settled := p.batch.sort()
	if p.s.logOrder {
		return p.applyInLogOrder()
	}
	if !last {
		settled = len(order)
	}
	wrote := func(leaves int) error { return p.s.dataError(backlog.Written(leaves * p.w.PageSize())) }
	for done := 0; done < len(order); {
		if err := p.w.spill(); err != nil {
			return err
		}
		write := done >= settled && !p.s.o.ReadOnly // no later operation changes these leaves
		if write {
			if err := p.w.spillAppended(backlog); err != nil {
				return err
			}
		}
		n, err := p.applySome(order[done:], write, wrote)
		if err != nil {
			return p.badRecord(p.batch.lsn(order[done]), err)
		}
		done += n
	}
	p.batch.reset()
	return nil
}

// applyInLogOrder is apply in the order in which the operations were logged.
func (p *replayer) applyInLogOrder() error {
	for rest := p.batch.ops; len(rest) > 0; {
		at := uint32(len(p.batch.ops) - len(rest))
		if err := p.w.spill(); err != nil {
			return err
		}
		r, more, err := decodeRedo(rest)
		if err != nil {
			err = fmt.Errorf("%w: %w", errBadRedo, err)
		} else {
			err = p.w.apply(r)
		}
		if err == nil && (r.op == opDrop || r.op == opClear) {
			err = p.w.emptyTrash()
		}
		if err != nil {
			return p.badRecord(p.batch.lsn(at), err)
		}
		rest = more
	}
	p.batch.reset()
	return nil
}

// emptyTrash frees the pages of dropped trees. In the original run checkpoints did, even those that
// then failed for lack of space or were interrupted: later commits could allocate the pages of
// trees that no checkpoint had reached.
func (w *writer) emptyTrash() error {
	for {
		if none, err := w.reclaimTree(); none || err != nil {
			return err
		}
	}
}

// applySome applies the operation at the head of order, together with following puts if it is a
// put, and returns their number.
func (p *replayer) applySome(order []uint32, write bool, wrote func(leaves int) error) (int, error) {
	if g := &p.run; len(g.puts) == 0 || !g.enough() {
		r, err := g.collect(p.batch, order, p.w.PageSize())
		if err != nil {
			return 0, err
		}
		if len(g.puts) == 0 {
			return 1, p.w.apply(r)
		}
	}
	n, err := p.run.apply(p.w, write, wrote)
	p.run.puts = p.run.puts[n:]
	return n, err
}

// badRecord adds the position in the log to the error of an operation that does not fit the state.
func (p *replayer) badRecord(lsn wal.LSN, err error) error {
	if errors.Is(err, errBadRedo) || isNoTree(err) {
		return badfile.At(p.s.path+" (log)", int64(lsn), "record at LSN %d: %v", lsn, err)
	}
	return err
}

// valid verifies that a transaction could have changed such a tree, and such a row of it with a
// value of size bytes.
func (w *writer) valid(r redo, size uint64) error {
	if r.id >= trashBit || r.id == 0 {
		return fmt.Errorf("%w: tree %d", errBadRedo, r.id)
	}
	if r.isKeyOp() && (len(r.key) == 0 || len(r.key) > tree.MaxKey(w.PageSize()) || size > tree.MaxValue) {
		return fmt.Errorf("%w: key of %d bytes, value of %d", errBadRedo, len(r.key), size)
	}
	return nil
}

func (w *writer) apply(r redo) error {
	err := w.valid(r, uint64(len(r.value)))
	if err != nil {
		return err
	}
	switch r.op {
	case opPut, opPutTag:
		_, err = w.put(r.id, r.key, r.value, r.tag)
	case opPutNamed:
		if r.size <= tree.MaxInline(w.PageSize(), len(r.key)) {
			return fmt.Errorf("%w: a named value of %d bytes", errBadRedo, r.size)
		}
		err = w.putLogRef(r)
	case opLeaves:
		err = w.replayLeafRun(r)
	case opDelete:
		_, err = w.delete(r.id, r.key, nil)
	case opRange:
		_, err = w.deleteRange(r.id, r.key, r.value)
	case opSetTag:
		_, err = w.setTag(r.id, r.key, r.tag)
	case opNextTree:
		if r.id >= maxTree {
			return fmt.Errorf("%w: trees up to number %d", errBadRedo, r.id)
		}
		w.nextID = max(w.nextID, r.id)
	default:
		err = w.shape(r.op, r.id)
	}
	return err
}
