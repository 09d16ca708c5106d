package txn

import "fmt"

// Savepoint is a place in a write transaction to go back to. It is good for the transaction that
// made it, until the transaction ends or goes back to an earlier one.
type Savepoint struct {
	tx *Tx
	no uint64
}

type savepoint struct {
	no    uint64
	trees trees
	taken int
	freed int
	redo  int
	trash uint64
	dirty bool
	named int64
}

// Savepoint marks the present state of a write transaction. Of a read transaction it is a place
// with nothing to undo.
func (tx *Tx) Savepoint() Savepoint {
	if tx.check() != nil || tx.w == nil {
		return Savepoint{tx: tx}
	}
	w := tx.w
	s := tx.s
	s.serial++
	w.owner = s.serial // pages so far are copied before they change again
	w.spare = w.spare[:0]
	w.saved = true
	w.disableUndo() // it goes back to the transaction's beginning only
	w.mods++
	w.savepoints = append(w.savepoints, savepoint{
		no: s.serial, trees: w.trees.copy(), taken: w.allocated.len(), freed: len(w.freed),
		redo: len(w.redo), trash: w.trash, dirty: w.dirty,
		named: w.refBytes,
	})
	return Savepoint{tx: tx, no: s.serial}
}

// RollbackTo undoes everything since sp. sp may be used again; savepoints made after it are gone.
func (tx *Tx) RollbackTo(sp Savepoint) error {
	if err := tx.check(); err != nil {
		return err
	}
	if tx.w == nil {
		return ErrReadOnly
	}
	w := tx.w
	for i := len(w.savepoints) - 1; i >= 0 && sp.tx == tx; i-- {
		if w.savepoints[i].no == sp.no {
			w.restore(i)
			return nil
		}
	}
	return fmt.Errorf("%w", ErrSavepoint)
}

func (w *writer) restore(i int) {
	sv := &w.savepoints[i]
	w.savepoints = w.savepoints[:i+1]
	w.freeAllocated(sv.taken)
	w.freed = w.freed[:sv.freed]
	w.trees = sv.trees.copy()
	// nextID stays: who still holds on to a tree that is gone must not find another one under its
	// number.
	w.redo, w.trash, w.dirty = w.redo[:sv.redo], sv.trash, sv.dirty
	w.refBytes = sv.named
	w.mods++
	w.s.serial++
	w.owner = w.s.serial // what is left dates from before the savepoint
}
