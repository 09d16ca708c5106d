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
// to new readers. Without changes it returns when the state that it was built on is visible. Commit
// of a read transaction ends it.
//
// The writer lock is free again as soon as the record is queued: the next transaction builds on
// this one while the disk is still busy, and shares a sync with whoever else waits.
//
// An error other than ErrUnknown means that nothing was committed, now and after any restart.
func (tx *Tx) Commit(d Durability) error {
	if err := tx.check(); err != nil {
		return err
	}
	if tx.w == nil {
		tx.Rollback()
		return nil
	}
	w, s := tx.w, tx.s
	if !w.dirty {
		v := s.head
		s.open.Add(1) // Close does not come between.
		defer s.open.Add(-1)
		tx.Rollback()
		return s.waitVisible(v)
	}
	if err := w.validateFreed(); err != nil {
		tx.Rollback()
		return errors.Join(err, tx.err)
	}
	end, launched := w.submitted.end, w.submitted.pending
	if w.submitted.pendingOps != 0 {
		tx.Rollback()
		return errors.Join(errLogMismatch, tx.err)
	}
	if !w.submitted.logged { // What is in the log is not for us to refuse any more.
		if s.failed.Load() != nil {
			tx.Rollback()
			return s.failure()
		}
		err := w.reserveTreeTable(len(w.changed))
		if err == nil {
			end, err = w.logCommit()
		}
		if err != nil {
			// A checkpoint writes the table, and cuts the log: then there is less to keep room for.
			if pager.NoSpace(err) {
				w.refused = err
			}
			tx.Rollback()
			return err
		}
	}
	if w.puts {
		s.refusal = refusal{}
	}
	v := w.commitVersion(end, d == Sync, false)
	tx.seq = v.seq
	tx.end()
	s.unlockWriter()
	defer s.open.Add(-1) // also when someone who is told of the commit panics
	if launched != nil {
		s.log.CompleteWrite(launched)
	}
	err := s.waitDurable(v, d == Sync)
	if err == nil {
		s.maybeCheckpoint()
	}
	return err
}

func (w *writer) fillHead() {
	mark := w.s.head.mark
	if w.tx != nil {
		mark = w.tx.mark
	}
	binary.LittleEndian.PutUint64(w.redo, w.s.head.seq+1)
	binary.LittleEndian.PutUint64(w.redo[8:], uint64(mark))
}

// logCommit queues the last part of the transaction's record and returns where it ends.
func (w *writer) logCommit() (wal.LSN, error) {
	if w.flushed == 0 {
		w.fillHead()
	}
	if w.refBytes > 0 {
		w.s.log.AddExternalRef(w.syncFirst)
	}
	return w.appendLog(w.redo, true)
}

// commitVersion makes what the transaction built the newest version, which nobody is to see as long
// as it is on hold. It cannot fail half way: what it needs of the free map was read when the pages
// were taken and freed.
func (w *writer) commitVersion(lsn wal.LSN, sync, hold bool) *version {
	s := w.s
	v := &version{
		seq: s.head.seq + 1, base: s.durable, mark: s.head.mark,
		lsn: lsn, syncLSN: s.head.syncLSN, nextID: w.nextID, trash: w.trash, hidden: hold,
	}
	if w.tx != nil {
		v.mark = w.tx.mark
	}
	if sync {
		v.syncLSN = lsn
	}
	freed := len(w.freed)
	w.publishVersion(v)
	s.commits.Add(1)
	if freed > reclaimStep {
		if err := s.reclaimFreed(freed); err != nil {
			_ = s.fail(err) // no matter of this commit
		}
	}
	return v
}

// validateFreed says whether the pages that a transaction of a damaged tree gives up can be: each
// is in use, and given up once. Two branches may name the same page, and the free map says of a
// page that a tree reaches what it likes. Nothing has been logged yet, or it is taken back.
func (w *writer) validateFreed() (err error) {
	struck := 0
	for i := range w.freed {
		if f := &w.freed[i]; !f.bornInTx {
			if err = w.s.pg.TryFree(f.id, uint64(f.n)); err != nil {
				break
			}
		}
		struck++
	}
	for i := range struck {
		if f := &w.freed[i]; !f.bornInTx {
			w.s.pg.UndoFree(f.id, uint64(f.n))
		}
	}
	return err
}

// publishMaintenance makes what a transaction of the store's own built a new version of the same
// state.
func (w *writer) publishMaintenance() *version {
	h := w.s.head
	v := &version{
		seq:     h.seq,
		base:    w.s.durable,
		mark:    h.mark,
		lsn:     h.lsn,
		syncLSN: h.syncLSN,
		nextID:  w.nextID,
		trash:   w.trash,
	}
	w.publishVersion(v)
	return v
}

// publishVersion counts pages and publishes v behind the versions before it.
func (w *writer) publishVersion(v *version) {
	s := w.s
	s.serial++
	v.serial = s.serial
	if w.trees.large != nil {
		v.trees = w.trees.copy()
	} else {
		v.trees = trees{small: append([]treeState(nil), w.trees.small...)}
	}
	s.refBytesSince.Add(w.refBytes)
	s.filledBytes.Add(int64(w.filled) * int64(w.PageSize()))
	var errs []error
	note := func(err error) { // A list of a thousand successes is memory for nothing.
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, f := range w.freed {
		if f.bornInTx && !f.logReferenced {
			s.pg.SetOwner(f.id, 0) // counted as unused below
		}
	}
	w.allocated.each(0, func(r pageRun) bool {
		if s.pg.Owner(r.id) >= w.firstOwner {
			note(s.pg.Commit(r.id, uint64(r.n)))
		} else {
			note(s.pg.Unused(r.id, uint64(r.n)))
		}
		return true
	})
	for _, f := range w.freed {
		if f.bornInTx && !f.logReferenced {
			continue
		}
		if err := s.pg.Freed(f.id, uint64(f.n)); err != nil {
			note(err) // and it is not to be given back
			continue
		}
		f.serial, f.afterCheckpoint = v.serial, s.epoch
		if f.epoch > s.durable && f.epoch <= s.pg.Captured() {
			s.replacedPages += uint64(f.n)
		}
		if f.deltaBase {
			s.deltaBases.push(f)
		} else {
			s.freedByVersion.push(f)
		}
	}
	for _, id := range w.changed {
		s.changed[id] = struct{}{}
	}
	if err := errors.Join(errs...); err != nil {
		_ = s.fail(fmt.Errorf("account for the pages of commit %d: %w", v.seq, err))
	}
	s.pg.Undo().Committed(v.serial)
	s.publish(v)
	w.finish()
}

// waitDurable returns when v may be seen, and makes it so.
func (s *Store) waitDurable(v *version, sync bool) error {
	err := s.log.Wait(v.lsn, sync)
	if err == nil && !sync && s.log.Durable() < v.syncLSN {
		err = s.log.Wait(v.syncLSN, true)
	}
	if err != nil {
		return s.logError(err)
	}
	s.makeVisible()
	return nil
}

// waitVisible returns when v is visible: for a transaction that was built on v and changes nothing.
// What it has read may be a state that no reader can see yet and that a crash could still take
// back; when its commit returns it no longer is.
func (s *Store) waitVisible(v *version) error {
	if s.visible.Load().serial >= v.serial {
		return nil
	}
	err := s.waitDurable(v, false)
	if failed := s.failure(); err != nil && failed != nil {
		return failed // Nothing of its own has an unknown fate.
	}
	return err
}

// publish makes v the head and queues it for visibility. Writer lock.
func (s *Store) publish(v *version) {
	s.head = v
	s.queueMu.Lock()
	s.queue = append(s.queue, v)
	s.queueMu.Unlock()
}

// makeVisible makes the newest version visible whose record, and every record before it that asked
// for a sync, is where it has to be. Nothing that was promised and seen can be lost.
func (s *Store) makeVisible() {
	s.queueMu.Lock()
	defer s.queueMu.Unlock()
	var written, durable wal.LSN
	if s.log != nil {
		written, durable = s.log.Written(), s.log.Durable()
	}
	n := 0
	for n < len(s.queue) && !s.queue[n].hidden && s.queue[n].lsn <= written && s.queue[n].syncLSN <= durable {
		if s.queue[n].lsn <= durable {
			s.durableSeq = s.queue[n].seq
		}
		n++
	}
	if n == 0 {
		return
	}
	v := s.queue[n-1]
	s.pg.Undo().Publish(v.serial, func() { s.visible.Store(v) })
	rest := copy(s.queue, s.queue[n:])
	clear(s.queue[rest:])
	s.queue = s.queue[:rest]
}

// logError turns an error of the log, not nil, into one of the store's, and poisons it if the log
// is done for.
func (s *Store) logError(err error) error {
	switch {
	case errors.Is(err, wal.ErrUnknown):
		_ = s.fail(err)
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	case errors.Is(err, wal.ErrFailed):
		return s.fail(err)
	}
	return s.spaceError(err)
}

// spaceError names a full disk; damage, a failed read of the free map, and a file that could not be
// opened for want of a descriptor are the caller's to tell, anything else poisons. It is for calls
// that reserve space before they write.
func (s *Store) spaceError(err error) error {
	if errors.Is(err, wal.ErrBound) {
		return fmt.Errorf(
			"%w: %s: MaxBytes is %d, the main file has %d of them: %w",
			ErrNoSpace,
			filepath.Base(s.path),
			s.o.MaxBytes,
			s.pg.FileBytes(),
			err,
		)
	}
	if pager.NoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	if corrupt(err) || errors.Is(err, pager.ErrRead) || errors.Is(err, vfs.ErrNoFiles) {
		return err
	}
	return s.fail(err)
}

// dataError is for writes to the main file: the first one that fails is the last one.
func (s *Store) dataError(err error) error {
	if err == nil || corrupt(err) {
		return err
	}
	return s.fail(err)
}

// fail keeps the first failure: nothing is written any more until the store is opened again.
// Snapshots go on reading.
func (s *Store) fail(err error) error {
	f := &failure{err}
	if s.failed.CompareAndSwap(nil, f) && s.o.Events.Failure != nil {
		s.o.Events.Failure(err)
	}
	return s.failure()
}

// Fault is what a fault at an address means, from who read through the map of the main file.
func (s *Store) Fault(addr uintptr) error { return s.pg.Fault(addr) }

// finalFault is Fault for who may have left something half done.
func (s *Store) finalFault(addr uintptr) error { return s.fail(s.Fault(addr)) }

type failure struct{ err error }

func (s *Store) failure() error {
	f := s.failed.Load()
	if f == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrFailed, f.err)
}

func isNoTree(err error) bool { return errors.Is(err, ErrNoTree) }
