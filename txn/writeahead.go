package txn

import (
	"errors"
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/wal"
)

// A transaction of which it is known beforehand what it will change can have its record written
// while the changes are carried out: both take about as long. Foretell says the changes, SubmitLog
// hands the record to the log, and then the same calls are made as without. If one of them fails
// the log takes the record back (wal.Compensate) before the transaction has ended.

// submittedLog is that of the open write transaction.
type submittedLog struct {
	logged     bool              // the record is in the log, and the changes come now
	end        wal.LSN           // of the record
	pending    *wal.PendingWrite // what the disk is at work on; nil: nothing of it
	pendingOps int               // changes that were foretold and not carried out
}

// errLogMismatch is a mistake of the rooms above: replay would come to another state than this one.
var errLogMismatch = errors.New("txn: the transaction does something else than was foretold")

// Bounds of SubmitLog: fewer changes are carried out before the disk has begun, more bytes would
// fill the log's queue.
const (
	defaultSubmitFrom = 16
	maxSubmitBytes    = 512 << 10
)

// CanSubmitLog says whether the transaction can foretell so many changes of that many trees at
// most, of so many bytes, of values up to the given length. Large values, stores that are bound to
// a size, and commits that wait for no sync do without. So do those for which there may be no room:
// what the log holds must have had its pages, or the next Open, which carries it out, would be
// refused for want of them. Who was told no may find room made for it the next time.
func (tx *Tx) CanSubmitLog(trees, changes, bytes, longest int) bool {
	w := tx.w
	if w == nil || tx.check() != nil || !tx.s.started || tx.s.failed.Load() != nil {
		return false
	}
	if changes < tx.s.o.SubmitFrom || w.bytes()+int64(bytes) > maxSubmitBytes || longest > tree.MaxInline(w.PageSize()) ||
		w.relaxed || w.flushed > 0 || w.refBytes > 0 || len(w.savepoints) > 0 ||
		tx.s.o.MaxBytes > 0 ||
		w.bytes()+2*int64(bytes) > tx.s.o.MaxTxnBytes {
		return false
	}
	const perChange = 32 // what an operation of the redo has beside its key and value, and more
	return w.reserveTreeTable(len(w.changed)+min(trees, changes)) == nil &&
		tx.s.log.HasCommitSpace(int(w.bytes())+bytes+changes*perChange) &&
		tx.s.pg.HasSpace(w.pagesFor(changes, bytes))
}

// pagesFor is how many pages so many changes of so many bytes may take. Each copies a leaf, one
// beside it that cells move to, and a branch above them, as far as there are so many; and each
// splits a leaf, as far as leaves are full before, or become so once more: of a leaf that is split
// each half has room for a quarter of a page. A row of more than a third of a page may split two.
func (w *writer) pagesFor(changes, bytes int) uint64 {
	there, filled := w.s.pg.UsedPages()+uint64(w.allocated.len()), uint64(4*bytes/w.PageSize()+1)
	copied, moved := min(there, 3*uint64(changes)), min(there, uint64(changes))
	return copied + moved + filled + w.s.parallelPages(changes) + submitReserve
}

// submitReserve is for new branches, and trees that begin.
const submitReserve = 16

// EncodeRedo says that the transaction is going to Apply a change of a tree without tags.
// CanSubmitLog has said yes.
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

// SubmitLog hands the record to the log, with what the transaction has done and what was foretold,
// and has the disk begin with it if the log has nothing else to do. From now on the transaction
// does what was foretold, in that order and nothing else, and commits.
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

// LogSubmitted says whether the transaction has been.
func (tx *Tx) LogSubmitted() bool { return tx.w != nil && tx.w.submitted.logged }

// revoke voids what was logged ahead. If that fails the transaction's Err says so.
func (w *writer) revoke() {
	a := w.submitted
	if !a.logged {
		return
	}
	defer func() { // also when somebody who is told of the write panics
		if err := w.s.compensate(a); err != nil {
			w.tx.err = err
		}
	}()
	if a.pending != nil {
		w.s.log.CompleteWrite(a.pending)
	}
}

// compensate takes a record back for good. If that cannot be done, nobody may commit after it:
// there would be two commits of one number. After a failure of the store nothing is written, not
// even that.
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
		return nil // It was never written, which is as good.
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}
