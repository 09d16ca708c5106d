package txn

import (
	"errors"
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// The operations of a write transaction: each changes trees and adds itself to the redo.

// change starts an operation: it verifies that the transaction may write, starts the log, and
// spills pages if frames are short.
func (tx *Tx) change() (*writer, error) {
	if err := tx.check(); err != nil {
		return nil, err
	}
	w := tx.w
	if w == nil {
		if tx.s.o.ReadOnly {
			return nil, ErrReadOnlyDB
		}
		return nil, ErrReadOnly
	}
	if err := w.ready(); err != nil {
		return nil, tx.recordErr(err)
	}
	return w, nil
}

// changeBy is change for an operation of about n bytes, which is refused if it would make the
// transaction too large.
func (tx *Tx) changeBy(n int) (*writer, error) {
	w, err := tx.change()
	if err == nil {
		err = w.ensureTxnBytes(n)
	}
	return w, err
}

func (w *writer) ready() error {
	if w.s.failed.Load() != nil {
		return w.s.failure()
	}
	if err := w.numbersLeft(); err != nil {
		return err
	}
	if !w.s.started {
		if err := w.s.startLog(); err != nil {
			return err
		}
	}
	return w.spill()
}

// Put stores value under key, with a tag or, if that is 0, without. It returns the previous row.
func (tx *Tx) Put(id TreeID, key, value []byte, tag int64) (was Info, err error) {
	w, err := tx.changeBy(len(key) + len(value))
	if err != nil {
		return Info{}, err
	}
	w.checkMaxBytes()
	s, err := w.state(id)
	if err != nil {
		return Info{}, err
	}
	f := w.insertCursor(id)
	if was, err = f.Put(w, &s.t, key, value, tag); err != nil {
		return Info{}, tx.abort(err) // s.t may be inconsistent
	}
	w.filled += f.TakeFilledLeaves()
	w.set(id, s.t)
	w.cursorsAt = w.mods
	return was, tx.abort(w.logPut(id, key, value, tag))
}

// state returns the tree's root, to be changed and then set.
func (w *writer) state(id TreeID) (*treeState, error) {
	if s := w.trees.findSmall(id); s != nil {
		return s, nil
	}
	s, ok := w.trees.findLarge(id)
	if !ok {
		return nil, treeError(id)
	}
	return &s, nil
}

// logPut adds an applied put to the redo.
func (w *writer) logPut(id TreeID, key, value []byte, tag int64) error {
	if w.submitted.logged {
		return nil
	}
	if w.logsByRef(len(value)) {
		w.redo = appendLogRef(w.redo, id, tag, key, w.lastExtent)
		w.refBytes, w.syncFirst = w.refBytes+int64(len(value)), true
		return w.logged()
	}
	w.redo = appendPut(w.redo, id, key, tag)
	return w.logValue(value)
}

func (w *writer) logDelete(id TreeID, key []byte) error {
	if w.submitted.logged {
		return nil
	}
	w.redo = appendDelete(w.redo, id, key)
	return w.logged()
}

// putLogRef puts a value whose extent is in the file, and allocated.
func (w *writer) putLogRef(r redo) error {
	if _, ok := w.trees.get(r.id); !ok {
		return treeError(r.id)
	}
	// The log references it: this transaction must not reuse it.
	w.s.pg.Pool.SetOwner(r.ref.Pgid, w.firstOwner)
	w.allocated.push(pageRun{r.ref.Pgid, uint32(pager.ExtentPages(r.size, w.PageSize()))})
	return w.putExtent(r, r.ref, r.size)
}

// insertCursor returns the cursor of a tree. It is reset if another operation than put changed
// pages.
func (w *writer) insertCursor(id TreeID) *tree.InsertCursor {
	if w.cursorsAt != w.mods {
		w.cursors = [len(w.cursors)]insertCursor{}
	}
	f := &w.cursors[id%TreeID(len(w.cursors))]
	if f.id != id {
		*f = insertCursor{id: id}
	}
	return &f.InsertCursor
}

// SetTag changes the tag of a key, 0 for none, and nothing else. It returns the previous row.
func (tx *Tx) SetTag(id TreeID, key []byte, tag int64) (was Info, err error) {
	w, err := tx.changeBy(len(key))
	if err != nil {
		return Info{}, err
	}
	w.checkMaxBytes()
	if was, err = w.setTag(id, key, tag); err != nil || !was.Found {
		return was, tx.abort(err)
	}
	w.redo = appendBytes(appendTag(appendOp(w.redo, opSetTag, id), tag), key)
	return was, tx.abort(w.logged())
}

func (w *writer) setTag(id TreeID, key []byte, tag int64) (was Info, err error) {
	t, ok := w.trees.get(id)
	if !ok {
		return Info{}, treeError(id)
	}
	was, err = tree.SetTag(w, &t, key, tag)
	if err == nil && was.Found {
		w.set(id, t)
	}
	return was, err
}

// Delete removes a key. It returns the removed row.
func (tx *Tx) Delete(id TreeID, key []byte) (was Info, err error) {
	return tx.delete(id, key, nil)
}

// delete is Delete; with a value that is not nil only a row with that value is deleted: see Change.
func (tx *Tx) delete(id TreeID, key, value []byte) (was Info, err error) {
	if tx.w != nil && tx.check() == nil && !tx.s.started {
		// If there is nothing to delete no log is started.
		if info, err := tx.Info(id, key); err != nil || !info.Found && tx.Exists(id) {
			return Info{}, err
		}
	}
	w, err := tx.changeBy(len(key))
	if err != nil {
		return Info{}, err
	}
	t, ok := w.trees.get(id)
	if !ok {
		return Info{}, treeError(id)
	}
	defer w.usePurpose(pager.ForDelete)()
	if was, err = tree.DeleteOnly(w, &t, key, value); err != nil || !was.Found {
		return was, tx.abort(err)
	}
	w.set(id, t)
	return was, tx.abort(w.logDelete(id, key))
}

// DeleteRange removes the keys in [lo, hi), nil meaning no bound, and counts them. Whole subtrees
// are unlinked.
func (tx *Tx) DeleteRange(id TreeID, lo, hi []byte) (rows uint64, err error) {
	w, err := tx.changeBy(len(lo) + len(hi))
	if err != nil {
		return 0, err
	}
	lo, hi = w.shortBound(lo), w.shortBound(hi)
	if rows, err = w.deleteRange(id, lo, hi); err != nil || rows == 0 {
		return rows, tx.abort(err)
	}
	w.redo = appendRange(w.redo, id, lo, hi)
	return rows, tx.abort(w.logged())
}

// shortBound cuts a bound that is longer than any key: all keys compare with the rest as with it.
func (w *writer) shortBound(b []byte) []byte {
	most := tree.MaxKey(w.PageSize()) + 1
	return b[:min(len(b), most):min(len(b), most)]
}

func (w *writer) deleteRange(id TreeID, lo, hi []byte) (rows uint64, err error) {
	t, ok := w.trees.get(id)
	if !ok {
		return 0, treeError(id)
	}
	defer w.usePurpose(pager.ForDelete)()
	rows, err = tree.DeleteRange(w, &t, lo, hi)
	if err == nil && rows > 0 {
		w.set(id, t)
	}
	return rows, err
}

// NewTreeIDs returns the first of n consecutive tree numbers that were never used in this store.
func (tx *Tx) NewTreeIDs(n int) (first TreeID, err error) {
	w, err := tx.change()
	if err != nil {
		return 0, err
	}
	switch {
	case n <= 0:
		return 0, fmt.Errorf("txn: %d tree numbers asked for", n)
	case TreeID(n) >= maxTree-min(w.nextID, maxTree):
		return 0, w.usedUp("numbers of trees")
	}
	first = w.nextID
	w.nextID += TreeID(n)
	w.redo = appendOp(w.redo, opNextTree, w.nextID)
	return first, tx.abort(w.logged())
}

// Create makes an empty tree. The number should come from NewTreeIDs and must not be in use;
// NewTreeIDs gives higher ones from then on.
func (tx *Tx) Create(id TreeID) error { return tx.shape(opCreate, id) }

// Drop removes a tree in one step; its pages are freed later, in bounded steps.
func (tx *Tx) Drop(id TreeID) error { return tx.shape(opDrop, id) }

// Clear makes a tree empty in one step, as Drop and Create would.
func (tx *Tx) Clear(id TreeID) error { return tx.shape(opClear, id) }

func (tx *Tx) shape(op byte, id TreeID) error {
	w, err := tx.changeBy(0)
	if err != nil {
		return err
	}
	if err := w.shape(op, id); err != nil {
		return tx.abort(err)
	}
	w.redo = appendOp(w.redo, op, id)
	return tx.abort(w.logged())
}

func (w *writer) shape(op byte, id TreeID) error {
	t, ok := w.trees.get(id)
	switch {
	case op == opCreate && ok:
		return fmt.Errorf("%w: %d exists", ErrNoTree, id)
	case op != opCreate && !ok, id >= maxTree-1, id == 0:
		return treeError(id)
	}
	if op == opCreate {
		w.nextID = max(w.nextID, id+1)
	}
	if op != opCreate && !t.Root.IsZero() {
		if TreeID(w.trash) >= maxTree-1 {
			return badfile.Page(w.s.path, 0, -1, "the meta page says that %d trees were dropped", w.trash)
		}
		w.set(trashBit|TreeID(w.trash), t)
		w.trash++
	}
	if op == opDrop {
		w.trees.remove(id)
		w.noteChanged(id)
		w.mods++
		return nil
	}
	w.set(id, tree.Tree{})
	return nil
}

// EnsureTxnBytes returns the error that an operation of n more bytes would get because the
// transaction is too large. A caller that changes several rows which belong together calls it for
// all of them before the first: after the error the transaction is usable, with its earlier
// changes.
func (tx *Tx) EnsureTxnBytes(n int) error {
	if tx.w == nil {
		return nil // the operation returns the error
	}
	return tx.w.ensureTxnBytes(n)
}

// ensureTxnBytes refuses an operation that would make the transaction too large, before it changes
// anything.
func (w *writer) ensureTxnBytes(n int) error {
	if w.bytes()+int64(n) > w.s.o.MaxTxnBytes && !w.submitted.logged {
		return fmt.Errorf("%w of %d bytes", ErrTxnTooBig, w.s.o.MaxTxnBytes)
	}
	return nil
}

// checkMaxBytes applies MaxBytes, of main file and log together, to a transaction with a put.
// Operations that free space are never refused: a transaction of deletes alone may exceed the bound
// a little.
func (w *writer) checkMaxBytes() {
	if w.puts || w.noLog {
		return
	}
	w.puts = true
	w.setBounds()
}

func (w *writer) setBounds() {
	if w.puts && w.s.o.MaxBytes > 0 {
		w.s.setBounds()
	}
}

func (w *writer) bytes() int64 { return w.flushed + int64(len(w.redo)) + w.refBytes }

// Bytes is the size of the transaction so far: in the log, and of values that the log references.
func (tx *Tx) Bytes() int64 {
	if tx.w == nil {
		return 0
	}
	return tx.w.bytes()
}

// abort makes the error of an operation that may have stopped half way sticky: the transaction can
// only roll back.
func (tx *Tx) abort(err error) error {
	if err == nil || isNoTree(err) {
		return err
	}
	if tx.err == nil {
		tx.err = err
	}
	return err
}

// redoChunk bytes of redo go to the log before the commit, unless a savepoint may still discard
// them.
const redoChunk = 1 << 20

// logged is called after an operation was added to the redo.
func (w *writer) logged() error {
	w.dirty = true
	if w.noLog {
		w.redo = w.redo[:redoHead]
	}
	if len(w.redo) < redoChunk || len(w.savepoints) > 0 {
		return nil
	}
	return w.flush(w.redo)
}

// logValue adds a value to the redo; a large one goes to the log directly, without a copy in the
// redo.
func (w *writer) logValue(value []byte) error {
	if len(value) < redoChunk/4 || len(w.savepoints) > 0 || w.noLog {
		w.redo = appendBytes(w.redo, value)
		return w.logged()
	}
	w.dirty = true
	w.redo = appendLength(w.redo, len(value))
	if err := w.flush(w.redo); err != nil {
		return err
	}
	return w.append(value)
}

func (w *writer) flush(b []byte) error {
	if w.flushed == 0 {
		w.fillHead()
	}
	err := w.append(b)
	w.redo = w.redo[:0]
	return err
}

func (w *writer) append(b []byte) error {
	w.flushed += int64(len(b))
	_, err := w.appendLog(b, false)
	return err
}

// errAppendStopped is the sticky error of a transaction whose log append did not return.
var errAppendStopped = errors.New("txn: a panic, or an end of the goroutine, stopped a write to the log")

// appendLog appends a part of the transaction's record to the log. A callback of a group that is
// written first may panic: then the log drops all parts, and the transaction fails, should the
// caller recover and continue with it.
func (w *writer) appendLog(b []byte, last bool) (end wal.LSN, err error) {
	tx := w.tx
	before := tx.err
	tx.err = errAppendStopped
	w.setBounds() // The transaction may have made the file longer, and makes the log longer.
	end, err = w.s.log.Append(b, last)
	w.setBounds()
	tx.err = before
	if err != nil {
		return 0, w.s.logError(err)
	}
	return end, nil
}
