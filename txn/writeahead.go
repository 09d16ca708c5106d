package txn

import (
	"errors"
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/wal"
)

// A transaction whose changes are known beforehand can have its record written while it applies
// them: both take about as long. EncodeRedo gets the changes, SubmitLog appends the record to the
// log, and then the caller makes the same calls as without. If one of these fails the log revokes
// the record (wal.Compensate) before the transaction ends.

// submittedLog is the submitted record of the open write transaction.
type submittedLog struct {
	logged     bool              // the record is in the log, and the changes follow
	end        wal.LSN           // of the record
	pending    *wal.PendingWrite // write that the disk has begun; nil: none
	pendingOps int               // changes that were encoded and not applied
}

// errLogMismatch is a bug of the caller: replay would give another state than this one.
var errLogMismatch = errors.New("txn: the transaction's changes differ from those in its log record")

// Bounds of SubmitLog: fewer changes are applied before the disk has begun, more bytes would fill
// the log's queue.
const (
	defaultSubmitFrom = 16
	maxSubmitBytes    = 512 << 10
)

// CanSubmitLog says whether the transaction may submit its record before the changes: so many, of
// at most so many trees and bytes, with values of at most the given length. It may not with large
// values, under MaxBytes, or if the commit waits for no sync. Nor may it if space could run out:
// once the record is in the log, the next Open needs the pages to replay it. The caller then
// applies the changes first, and a checkpoint may free space for its next transaction.
func (tx *Tx) CanSubmitLog(trees, changes, bytes, longest int) bool {
	w := tx.w
	if w == nil || tx.check() != nil || !tx.s.started || tx.s.failed.Load() != nil {
		return false
	}
	if changes < tx.s.o.SubmitFrom || w.bytes()+int64(bytes) > maxSubmitBytes ||
		w.bytes()+2*int64(bytes) > tx.s.o.MaxTxnBytes || longest > tree.MaxInline(w.PageSize()) {
		return false
	}
	if w.relaxed || w.flushed > 0 || w.refBytes > 0 || len(w.savepoints) > 0 || tx.s.o.MaxBytes > 0 {
		return false
	}
	const perChange = 32 // bound on the redo of an operation without its key and value
	return w.reserveTreeTable(len(w.changed)+min(trees, changes)) == nil &&
		tx.s.log.HasCommitSpace(int(w.bytes())+bytes+changes*perChange) &&
		tx.s.pg.HasSpace(w.pagesFor(changes, bytes), w.policy)
}

// pagesFor bounds the pages that so many changes of so many bytes allocate. Each change copies a
// leaf, a neighbour that cells move to, and a branch above them, at most as many as the store has.
// Each splits a leaf, at most as many as are full before or become full: each half of a split leaf
// has space for a quarter of a page. A row of more than a third of a page may split two.
func (w *writer) pagesFor(changes, bytes int) uint64 {
	there, filled := w.s.pg.UsedPages()+uint64(w.allocated.len()), uint64(4*bytes/w.PageSize()+1)
	copied, moved := min(there, 3*uint64(changes)), min(there, uint64(changes))
	return copied + moved + filled + w.s.parallelPages(changes) + submitReserve
}

// submitReserve is pages for new branches and new trees.
const submitReserve = 16

// EncodeRedo adds a change of a tree without tags to the redo; Apply follows after SubmitLog.
// CanSubmitLog has returned true.
func (tx *Tx) EncodeRedo(id TreeID, c *Change) {
	w := tx.w
	w.submitted.pendingOps++
	if c.Delete {
		w.redo = appendBytes(appendOp(w.redo, opDelete, id), c.Key)
		return
	}
	w.redo = appendBytes(appendOp(w.redo, opPut, id), c.Key)
	w.redo = appendBytes(w.redo, c.Value)
}

// SubmitLog appends the transaction's record, with the encoded changes, to the log, and starts its
// write if the log is idle. From now on the transaction applies exactly these changes, in their
// order, and commits.
func (tx *Tx) SubmitLog() error {
	w := tx.w
	n := int64(len(w.redo))
	end, err := w.logCommit()
	if err != nil {
		return tx.abort(err)
	}
	w.flushed, w.redo = n, w.redo[:0]
	w.submitted.logged, w.submitted.end, w.submitted.pending = true, end, w.s.log.SubmitWrite(end)
	w.dirty = true
	return nil
}

// LogSubmitted says whether SubmitLog has succeeded.
func (tx *Tx) LogSubmitted() bool { return tx.w != nil && tx.w.submitted.logged }

// revoke compensates the submitted record. If that fails, Err of the transaction is the error.
func (w *writer) revoke() {
	a := w.submitted
	if !a.logged {
		return
	}
	defer func() { // also when a callback of the write panics
		if err := w.s.compensate(a); err != nil {
			w.tx.err = err
		}
	}()
	if a.pending != nil {
		w.s.log.CompleteWrite(a.pending)
	}
}

// compensate revokes a record durably. If that fails no commit may follow it: two commits would
// have one number. A store that has failed writes nothing, not even that.
func (s *Store) compensate(a submittedLog) error {
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
