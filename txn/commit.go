package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// Commit makes the transaction's changes part of the store. With Sync it returns when they survive
// a power cut, with NoSync when they survive a killed process; in both cases when they are visible
// to new readers. Without changes it returns when the state that the transaction began from is
// visible. Commit of a read transaction ends it.
//
// The runs in last are applied first, as by Apply: see Run.
//
// Commit releases the writer lock as soon as the record is queued: the next transaction builds on
// this one while the disk is busy, and all waiting commits share a sync.
//
// An error other than ErrUnknown means that nothing was committed, now and after any restart.
func (tx *Tx) Commit(d Durability, last ...Run) error {
	if err := tx.check(); err != nil {
		return err
	}
	if tx.w == nil {
		tx.Rollback()
		return nil
	}
	w, s := tx.w, tx.s
	if err := tx.applyLast(d == Sync, last); err != nil {
		tx.Rollback()
		return tx.revokeErr(err)
	}
	if !w.dirty {
		v := s.head
		s.open.Add(1) // holds up Close
		defer s.open.Add(-1)
		tx.Rollback()
		return s.waitVisible(v)
	}
	if err := w.validateFreed(); err != nil {
		tx.Rollback()
		return tx.revokeErr(err)
	}
	end, launched := w.submitted.end, w.submitted.pending
	if !w.submitted.logged { // a commit whose record is in the log cannot be refused
		if s.failed.Load() != nil {
			tx.Rollback()
			return s.failure()
		}
		err := w.reserveTreeTable(len(w.changed))
		if err == nil {
			end, err = w.logCommit()
		}
		if err != nil {
			// A checkpoint writes the tree table and cuts the log: then the reserve can be smaller.
			if pager.NoSpace(err) {
				w.refused = err
			}
			tx.Rollback()
			return err
		}
	}
	if w.puts {
		s.refusal = refusal{}
	} else {
		s.refusal.shrunk = s.refusal.pages > 0
	}
	v := w.commitVersion(end, d == Sync, false)
	tx.v = v
	tx.end()
	s.unlockWriter()
	defer s.open.Add(-1) // also when a callback panics
	if launched != nil {
		s.log.CompleteWrite(launched)
	}
	err := s.waitDurable(v, d == Sync)
	if err == nil {
		s.checkpointer.startIfDue()
	}
	return err
}

func (w *writer) fillHead() {
	binary.LittleEndian.PutUint64(w.redo, w.s.head.seq+1)
	binary.LittleEndian.PutUint64(w.redo[8:], uint64(w.mark))
}

// logCommit queues the last part of the transaction's record and returns the record's end.
func (w *writer) logCommit() (wal.LSN, error) {
	if w.flushed == 0 {
		w.fillHead()
	}
	if w.refBytes > 0 {
		w.s.log.AddExternalRef(w.syncFirst)
	}
	return w.appendLog(w.redo, true)
}

// commitVersion makes the transaction's state the newest version. A hidden version stays invisible
// until its hidden flag is reset. commitVersion cannot fail half way: the parts of the free map
// that it changes were read when the pages were allocated and freed.
func (w *writer) commitVersion(lsn wal.LSN, sync, hidden bool) *version {
	s, v := w.s, w.nextVersion()
	v.seq, v.mark, v.lsn, v.hidden = v.seq+1, w.mark, lsn, hidden
	if sync {
		v.syncLSN = lsn
	}
	freed := len(w.freed)
	w.publishVersion(v)
	s.commits.Add(1)
	if freed > reclaimStep {
		_, _ = s.reclaimer.reclaim(freed) // a failure does not concern this commit
	}
	return v
}

// validateFreed verifies that each page which the transaction frees is in use and freed once. In a
// damaged tree two branches may reference the same page, and the free map may have a reachable page
// as free. The transaction's record is not in the log yet, or will be revoked.
func (w *writer) validateFreed() (err error) {
	checked := 0
	for i := range w.freed {
		if f := &w.freed[i]; !f.bornInTx {
			if err = w.s.pg.Alloc.TryFree(f.id, uint64(f.n)); err != nil {
				break
			}
		}
		checked++
	}
	for i := range checked {
		if f := &w.freed[i]; !f.bornInTx {
			w.s.pg.Alloc.UndoFree(f.id, uint64(f.n))
		}
	}
	return err
}

// publishMaintenance publishes a new version of the same state: a transaction of the store's own.
func (w *writer) publishMaintenance() *version {
	v := w.nextVersion()
	w.publishVersion(v)
	return v
}

// nextVersion is a version of the newest commit, with the transaction's tree numbers.
func (w *writer) nextVersion() *version {
	h := w.s.head
	return &version{
		seq: h.seq, base: w.s.durable, mark: h.mark, lsn: h.lsn, syncLSN: h.syncLSN,
		nextID: w.nextID, trash: w.trash,
	}
}

// publishVersion accounts for the allocated and freed pages and publishes v behind the versions
// before it.
func (w *writer) publishVersion(v *version) {
	s := w.s
	s.serial++
	v.serial = s.serial
	v.trees = w.trees.copy(nil)
	s.checkpointer.refBytesSince.Add(w.refBytes)
	s.checkpointer.filledBytes.Add(int64(w.filled) * int64(w.PageSize()))
	var errs []error
	note := func(err error) { // errors.Join of all results would allocate a slot for each nil
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, f := range w.freed {
		if f.bornInTx && !f.logReferenced {
			s.pg.Pool.SetOwner(f.id, 0) // counted as unused below
		}
	}
	w.allocated.each(0, func(r pageRun) bool {
		if s.pg.Pool.Owner(r.id) >= w.firstOwner {
			note(s.pg.Commit(r.id, uint64(r.n)))
		} else {
			note(s.pg.Unused(r.id, uint64(r.n)))
		}
		return true
	})
	for i := range w.freed {
		f := &w.freed[i]
		if f.bornInTx && !f.logReferenced {
			continue
		}
		if err := s.pg.Alloc.Freed(f.id, uint64(f.n)); err != nil {
			note(err) // and the page is not freed
			continue
		}
		s.reclaimer.add(f, v.serial, s.epoch)
	}
	for _, id := range w.changed {
		s.changed[id] = struct{}{}
	}
	if err := errors.Join(errs...); err != nil {
		_ = s.fail(fmt.Errorf("account for the pages of commit %d: %w", v.seq, err))
	}
	s.pg.Undo.Committed(v.serial)
	s.checkpointer.storeUsedBytes()
	s.head = v
	s.queue.push(v)
	w.finish()
}

// waitDurable returns when v may become visible, and makes it visible.
func (s *Store) waitDurable(v *version, sync bool) error {
	return s.logError(s.queue.wait(v, sync))
}

// waitVisible returns when v is visible: for a transaction that began from v and changes nothing.
// It may have read a state that no reader sees yet and that a crash could still undo; after its
// commit returned, no crash can.
func (s *Store) waitVisible(v *version) error {
	if s.queue.visible.Load().serial >= v.serial {
		return nil
	}
	err := s.waitDurable(v, false)
	if failed := s.failure(); err != nil && failed != nil {
		return failed // no commit of this transaction has an unknown fate
	}
	return err
}

// logError converts an error of the log into one of the store, and fails the store if the log has
// failed.
func (s *Store) logError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, wal.ErrUnknown):
		_ = s.fail(err)
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case errors.Is(err, wal.ErrFailed):
		return s.fail(err)
	}
	return s.spaceError(err)
}

// spaceError converts the error of a call that reserves space before it writes. A full disk is
// ErrNoSpace. Damage, a failed read of the free map and a lack of file descriptors are returned as
// they are. Any other error fails the store.
func (s *Store) spaceError(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, wal.ErrBound) {
		return fmt.Errorf("%w: %s: MaxBytes is %d, the main file has %d of them: %w", ErrNoSpace,
			filepath.Base(s.path), s.o.MaxBytes, s.pg.Alloc.FileBytes(), err)
	}
	if pager.NoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	if corrupt(err) || errors.Is(err, pager.ErrRead) || errors.Is(err, vfs.ErrNoFiles) {
		return err
	}
	return s.fail(err)
}

// Fault converts a fault at an address, of a read through the map of the main file, to an error.
func (s *Store) Fault(addr uintptr) error { return s.pg.Fault(addr) }

// finalFault is Fault for callers that the fault may have stopped half way.
func (s *Store) finalFault(addr uintptr) error { return s.fail(s.Fault(addr)) }

func isNoTree(err error) bool { return errors.Is(err, ErrNoTree) }
