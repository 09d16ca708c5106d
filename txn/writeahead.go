package txn

import (
	"errors"
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/wal"
)

// Commit gets the last changes of a transaction as runs. If they are known to fit, the record goes
// to the log before they are applied, and the disk writes it meanwhile: both take about as long. If
// the changes then fail, the log revokes the record (wal.Compensate) before Commit returns.

// A Run is changes of one tree, in their order.
type Run struct {
	Tree    TreeID
	Changes []Change
}

// submittedLog is the submitted record of the open write transaction.
type submittedLog struct {
	logged  bool              // the record is in the log, and the last changes follow
	end     wal.LSN           // of the record
	pending *wal.PendingWrite // write that the disk has begun; nil: none
}

// Bounds of submitLog: fewer changes are applied before the disk has begun, more bytes would fill
// the log's queue.
const (
	defaultSubmitFrom = 16
	maxSubmitBytes    = 512 << 10
)

// applyLast applies the last changes of the transaction.
func (tx *Tx) applyLast(sync bool, last []Run) error {
	if len(last) == 0 {
		return nil
	}
	if sync && tx.CanSubmitLog(last) {
		if err := tx.submitLog(last); err != nil {
			return err
		}
	}
	for _, r := range last {
		if err := tx.Apply(r.Tree, r.Changes, nil); err != nil {
			return err
		}
	}
	return nil
}

// CanSubmitLog says whether the record may be submitted before the last changes. It may not with
// large values, under MaxBytes, or if the commit waits for no sync. Nor may it if space could run
// out: once the record is in the log, the next Open needs the pages to replay it. Without it a
// checkpoint may free space for the next try.
func (tx *Tx) CanSubmitLog(last []Run) bool {
	w := tx.w
	if !tx.s.started || tx.s.failed.Load() != nil || w.relaxed || w.flushed > 0 || w.refBytes > 0 ||
		len(w.savepoints) > 0 || tx.s.o.MaxBytes > 0 {
		return false
	}
	changes, bytes, extents := 0, 0, false
	for _, r := range last {
		if _, ok := w.trees.get(r.Tree); !ok {
			return false // Apply returns the error
		}
		changes += len(r.Changes)
		for i := range r.Changes {
			c := &r.Changes[i]
			if len(c.Key) > tree.MaxKey(w.PageSize()) || c.Delete && c.Value != nil {
				return false // it depends on the row that it finds
			}
			bytes += len(c.Key) + len(c.Value)
			extents = extents || len(c.Value) > tree.MaxInline(w.PageSize(), len(c.Key))
		}
	}
	if changes < tx.s.o.SubmitFrom || w.bytes()+int64(bytes) > maxSubmitBytes ||
		w.bytes()+2*int64(bytes) > tx.s.o.MaxTxnBytes || extents {
		return false
	}
	const perChange = 32 // bound on the redo of an operation without its key and value
	return w.reserveTreeTable(len(w.changed)+len(last)) == nil &&
		tx.s.log.HasCommitSpace(int(w.bytes())+bytes+changes*perChange) &&
		tx.s.pg.Alloc.HasSpace(w.pagesFor(changes, bytes), w.policy)
}

// pagesFor bounds the pages that so many changes of so many bytes allocate. Each change copies a
// leaf, a neighbour that cells move to, and a branch above them, at most as many as the store has.
// Each splits a leaf, at most as many as are full before or become full: each half of a split leaf
// has space for a quarter of a page. A row of more than a third of a page may split two.
func (w *writer) pagesFor(changes, bytes int) uint64 {
	there, filled := w.s.pg.Alloc.UsedPages()+uint64(w.allocated.len()), uint64(4*bytes/w.PageSize()+1)
	copied, moved := min(there, 3*uint64(changes)), min(there, uint64(changes))
	return copied + moved + filled + w.s.o.parallelPages(changes) + submitReserve
}

// submitReserve is pages for new branches and new trees.
const submitReserve = 16

// submitLog appends the record, with the last changes, to the log, and starts its write if the log is
// idle.
func (tx *Tx) submitLog(last []Run) error {
	w := tx.w
	for _, r := range last {
		for i := range r.Changes {
			if c := &r.Changes[i]; c.Delete {
				w.redo = appendDelete(w.redo, r.Tree, c.Key)
			} else {
				w.redo = appendBytes(appendPut(w.redo, r.Tree, c.Key, c.Tag), c.Value)
			}
		}
	}
	n := int64(len(w.redo))
	end, err := w.logCommit()
	if err != nil {
		return tx.abort(err)
	}
	w.flushed, w.redo = n, w.redo[:0]
	w.submitted = submittedLog{true, end, w.s.log.SubmitWrite(end)}
	w.dirty = true
	return nil
}

// revoke compensates the submitted record. If that fails, Err of the transaction is the error.
func (w *writer) revoke() {
	a := w.submitted
	if !a.logged {
		return
	}
	defer func() { // also when a callback of the write panics
		if err := w.compensate(a); err != nil {
			w.tx.err = err
		}
	}()
	if a.pending != nil {
		w.s.log.CompleteWrite(a.pending)
	}
}

// revokeErr is the error of a commit that failed with err, and was rolled back: the next Open may
// replay a record that could not be revoked.
func (tx *Tx) revokeErr(err error) error {
	if errors.Is(tx.err, ErrUnknown) && !errors.Is(err, ErrUnknown) {
		return fmt.Errorf("%w, after: %w", tx.err, err)
	}
	return err
}

// compensate revokes a record durably. If that fails no commit may follow it: two commits would
// have one number. A store that has failed writes nothing, not even that.
func (w *writer) compensate(a submittedLog) error {
	s := w.s
	err := s.failure()
	if err == nil {
		var end wal.LSN
		if end, err = s.log.Compensate(); err == nil {
			err = s.log.Wait(end, true)
		}
	}
	if err == nil {
		return nil
	}
	_ = s.fail(err)
	s.log.Fail(err)
	if fate := s.log.Wait(a.end, false); errors.Is(fate, wal.ErrFailed) {
		return nil // the record was never written: equivalent to its revocation
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}
