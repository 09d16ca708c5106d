package txn

import "fmt"

// Savepoint is a state of a write transaction to roll back to. It is valid for the transaction that
// made it, until the transaction ends or rolls back to an earlier one.
type Savepoint struct {
	tx *Tx
	no uint64
}

type savepoint struct {
	no    uint64
	trees trees
	pages int
	freed int
	redo  int
	trash uint64
	dirty bool
	refs  int64
}

// Savepoint marks the present state of a write transaction. In a read transaction there is nothing
// to roll back.
func (tx *Tx) Savepoint() Savepoint {
	if tx.check() != nil || tx.w == nil {
		return Savepoint{tx: tx}
	}
	w := tx.w
	s := tx.s
	s.serial++
	w.owner = s.serial // existing pages are copied before they change again
	w.spare = w.spare[:0]
	w.saved = true
	w.disableUndo() // the undo log rolls back whole transactions only
	w.mods++
	w.savepoints = append(w.savepoints, savepoint{
		no: s.serial, trees: w.trees.copy(nil), pages: w.allocated.len(), freed: len(w.freed),
		redo: len(w.redo), trash: w.trash, dirty: w.dirty, refs: w.refBytes,
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
	w.freeAllocated(sv.pages)
	w.freed = w.freed[:sv.freed]
	w.trees = sv.trees.copy(nil)
	// nextID stays: a caller may still hold the number of a tree that is gone, and must not find
	// another tree under it.
	w.redo, w.trash, w.dirty = w.redo[:sv.redo], sv.trash, sv.dirty
	w.refBytes = sv.refs
	w.mods++
	w.s.serial++
	w.owner = w.s.serial // remaining pages date from before the savepoint
}
