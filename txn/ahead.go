package txn

import (
	"errors"
	"fmt"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/wal"
)

// A transaction of which it is known beforehand what it will change can have its record written while the changes are carried out: both
// take about as long. Foretell says the changes, LogAhead hands the record to the log, and then the same calls are made as
// without. If one of them fails the log takes the record back (wal.Void) before the transaction has ended.

// ahead is that of the open write transaction.
type ahead struct {
	logged   bool          // the record is in the log, and the changes come now
	end      wal.LSN       // of the record
	launched *wal.Launched // what the disk is at work on; nil: nothing of it
	left     int           // changes that were foretold and not carried out
}

// errForetold is a mistake of the rooms above: replay would come to another state than this one.
var errForetold = errors.New("txn: the transaction does something else than was foretold")

// Bounds of LogAhead: fewer changes are carried out before the disk has begun, more bytes would fill the log's queue.
const (
	defaultAheadFrom = 16
	mostAhead        = 512 << 10
)

// MayLogAhead says whether the transaction can foretell so many changes of that many trees at most, of so many bytes, of values up to the given length. Large values, stores that
// are bound to a size, and commits that wait for no sync do without. So do those for which there may be no room: what the log holds must have had its
// pages, or the next Open, which carries it out, would be refused for want of them. Who was told no may find room made for it the next time.
func (tx *Tx) MayLogAhead(trees, changes, bytes, longest int) bool {
	w := tx.w
	if w == nil || tx.check() != nil || !tx.s.started || tx.s.failed.Load() != nil {
		return false
	}
	if changes < tx.s.o.AheadFrom || w.bytes()+int64(bytes) > mostAhead || longest > tree.MaxInline(w.PageSize()) ||
		w.lazy || w.flushed > 0 || w.named > 0 || len(w.saves) > 0 || tx.s.o.MaxBytes > 0 || w.bytes()+2*int64(bytes) > tx.s.o.MaxTxnBytes {
		return false
	}
	const perChange = 32 // what an operation of the redo has beside its key and value, and more
	return w.keepForTable(len(w.changed)+min(trees, changes)) == nil && tx.s.log.Revocable(int(w.bytes())+bytes+changes*perChange) && tx.s.pg.Room(w.pagesFor(changes, bytes))
}

// pagesFor is how many pages so many changes of so many bytes may take. Each copies a leaf, one beside it that cells move to, and a branch above
// them, as far as there are so many; and each splits a leaf, as far as leaves are full before, or become so once more: of a leaf that is split
// each half has room for a quarter of a page. A row of more than a third of a page may split two.
func (w *writer) pagesFor(changes, bytes int) uint64 {
	there, filled := w.s.pg.UsedPages()+uint64(w.taken.len()), uint64(4*bytes/w.PageSize()+1)
	return min(there, 3*uint64(changes)) + min(there, uint64(changes)) + filled + w.s.handsPages(changes) + aheadSlack
}

// aheadSlack is for new branches, and trees that begin.
const aheadSlack = 16

// Foretell says that the transaction is going to Apply a change of a tree without tags. MayLogAhead has said yes.
func (tx *Tx) Foretell(id TreeID, c *Change) {
	w := tx.w
	w.ahead.left++
	if c.Delete {
		w.redo = appendBytes(appendOp(w.redo, opDelete, id), c.Key)
		return
	}
	w.redo = appendBytes(appendOp(w.redo, opPut, id), c.Key)
	w.redo = appendBytes(w.redo, c.Value)
}

// LogAhead hands the record to the log, with what the transaction has done and what was foretold, and has the disk begin with it
// if the log has nothing else to do. From now on the transaction does what was foretold, in that order and nothing else, and commits.
func (tx *Tx) LogAhead() error {
	w := tx.w
	n := int64(len(w.redo))
	end, err := w.logCommit()
	if err != nil {
		return tx.broken(err)
	}
	w.flushed, w.redo = n, w.redo[:0]
	w.ahead.logged, w.ahead.end, w.ahead.launched = true, end, w.s.log.Launch(end)
	w.dirty = true
	return nil
}

// LoggedAhead says whether the transaction has been.
func (tx *Tx) LoggedAhead() bool { return tx.w != nil && tx.w.ahead.logged }

// takeBack voids what was logged ahead. If that fails the transaction's Err says so.
func (w *writer) takeBack() {
	a := w.ahead
	if !a.logged {
		return
	}
	defer func() { // also when somebody who is told of the write panics
		if err := w.s.void(a); err != nil {
			w.tx.err = err
		}
	}()
	if a.launched != nil {
		w.s.log.Land(a.launched)
	}
}

// void takes a record back for good. If that cannot be done, nobody may commit after it: there would be two commits of one number. After a
// failure of the store nothing is written, not even that.
func (s *Store) void(a ahead) error {
	err := s.failure()
	if err == nil {
		var end wal.LSN
		if end, err = s.log.Void(); err == nil {
			err = s.log.Wait(end, true)
		}
	}
	if err == nil {
		return nil
	}
	_ = s.poison(err)
	s.log.Fail(err)
	if fate := s.log.Wait(a.end, false); errors.Is(fate, wal.ErrFailed) {
		return nil // It was never written, which is as good.
	}
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}
