package txn

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// recover chooses a meta page, replays the log after it, and makes the result durable.
//
// It starts from the oldest meta page whose log is complete (R4): after a failed sync the newest
// may exist only in the page cache, and the pages of the oldest state are untouched while its log
// exists. Recovery writes to pages that this state does not use, and to the other meta page: a
// crash during recovery is a crash before it.
func (s *Store) recover(metas [2]*pager.Meta, try int) (again bool, err error) {
	order := byEpoch(metas)
	newest := order[len(order)-1]
	if err := checkMetas(s.path, &s.o, order, newest); err != nil {
		return false, err
	}
	found, err := wal.Scan(wal.Options{
		FS: s.o.FS, Path: s.path, StoreID: newest.StoreID, SegmentSize: newest.SegmentSize,
		Rand: s.o.Rand, NoDirect: s.o.NoDirect,
	})
	if err != nil {
		return false, err
	}
	if err := otherStoreLog(s.path, newest, found); err != nil {
		return false, err
	}
	candidates, reasons, err := usableMetas(order, newest, found)
	if err != nil {
		return false, err
	}
	var verified *replayer // of the log after the first candidate
	if len(candidates) == 2 {
		// Replay writes to pages that the newer state may use: after half a replay there is no way
		// back to that state. So the whole log is verified first.
		verified, err = verifyLog(s, candidates[0], newest, found)
		switch {
		case corrupt(err):
			reasons, candidates = append(reasons, err), candidates[1:]
		case err != nil:
			return false, err
		}
		if err != nil || try > 0 {
			verified.free()
			verified = nil
		}
	}
	if try >= len(candidates) {
		invalid := invalidMetaErr(s.path, metas, newest)
		reasons = distinct(append(invalid, reasons...))
		if len(invalid) == 0 {
			reasons = append(reasons, otherTime(s.path, newest, found))
		}
		return false, errors.Join(reasons...)
	}
	touched, err := s.recoverFrom(candidates[try], newest, len(order) == 2, found, verified)
	return corrupt(err) && !touched && try+1 < len(candidates), err
}

// byEpoch returns the valid meta pages, the newest last.
func byEpoch(metas [2]*pager.Meta) (order []*pager.Meta) {
	for _, m := range metas {
		if m != nil {
			order = append(order, m)
		}
	}
	if len(order) == 2 && order[0].Epoch > order[1].Epoch {
		slices.Reverse(order)
	}
	return order
}

// checkMetas verifies the meta pages against the options and each other.
func checkMetas(path string, o *Options, order []*pager.Meta, newest *pager.Meta) error {
	if o.PageSize != 0 && o.PageSize != newest.PageSize {
		return fmt.Errorf("%w: the store has pages of %d bytes, the options ask for %d",
			ErrPageSize, newest.PageSize, o.PageSize)
	}
	if len(order) == 2 && (order[0].StoreID != order[1].StoreID || order[0].PageSize != order[1].PageSize) {
		return badfile.Page(path, 0, 0, "the two meta pages belong to different stores")
	}
	if newest.Epoch == 1 && !o.ReadOnly {
		// No session has written to this store, and its name may not be durable yet. A crash could
		// then leave only a segment whose name is.
		if err := o.FS.SyncDir(filepath.Dir(path)); err != nil {
			return fmt.Errorf("sync directory of %s: %w", path, err)
		}
	}
	return nil
}

// usableMetas returns the meta pages that recovery can start from, and why it cannot from others.
func usableMetas(order []*pager.Meta, newest *pager.Meta, found *wal.ScanResult) (
	candidates []*pager.Meta, reasons []error, err error,
) {
	for _, m := range order {
		var err error
		if !noLog(m, newest, found) {
			err = found.Chain(wal.LSN(m.LogStart))
		}
		switch {
		case err == nil:
			candidates = append(candidates, m)
		case corrupt(err):
			reasons = append(reasons, err)
		default:
			return nil, nil, err
		}
	}
	return candidates, reasons, nil
}

// distinct removes repetitions: the same damage of a log may rule out both meta pages.
func distinct(errs []error) (some []error) {
	for _, err := range errs {
		if !slices.ContainsFunc(some, func(e error) bool { return e.Error() == err.Error() }) {
			some = append(some, err)
		}
	}
	return some
}

// invalidMetaErr names the invalid meta page, if there is one: if the log of the other one is gone,
// that page is the damage, and the log is as it should be. The second page of a store that no
// session has written to is empty.
func invalidMetaErr(path string, metas [2]*pager.Meta, newest *pager.Meta) (errs []error) {
	for slot, m := range metas {
		if m == nil && newest.Epoch > 1 {
			off := int64(slot) * int64(newest.PageSize)
			errs = append(errs, badfile.Page(path, uint64(slot), off, "meta page is not valid"))
		}
	}
	return errs
}

// isRetry says that the newest meta page was written by an earlier try of this recovery: it is
// clean, and its log begins where no segment was yet.
func isRetry(m, newest *pager.Meta, found *wal.ScanResult) bool {
	return newest != m && newest.Clean && found.NextNumber() <= newest.LogStart/uint64(newest.SegmentSize)
}

// noLog says that m is of a closed store, and that there is no segment of a later session.
func noLog(m, newest *pager.Meta, found *wal.ScanResult) bool {
	segments := found.Segments()
	none := len(segments) == 0 || segments[len(segments)-1].Number < m.LogStart/uint64(m.SegmentSize)
	return m.Clean && m == newest && none
}

// recoverFrom makes the state of m, with the log after it, the store's. touched says that the file
// may have changed; two, that both meta pages are valid. verified has read the log after m, unless nil.
func (s *Store) recoverFrom(
	m, newest *pager.Meta, two bool, found *wal.ScanResult, verified *replayer,
) (touched bool, err error) {
	defer func() { verified.free() }()
	if err := s.startFrom(m, newest, found); err != nil {
		return false, err
	}
	if noLog(m, newest, found) {
		err := s.removeObsolete(found)
		if err == nil && !s.o.ReadOnly {
			// No segment is left. The next log starts where this page says: if a crash leaves a new
			// segment without a meta page for it, recovery must find it at the start of the chain.
			s.nextSegment = m.LogStart / uint64(m.SegmentSize)
		}
		return false, err
	}
	last := newest // before invalidateStaleMeta
	if two {
		if newest, err = s.invalidateStaleMeta(m, newest, found); err != nil {
			return true, noSpace(err)
		}
	}
	// No page of an earlier try has this epoch: such a page would pass for one of this try.
	s.epoch = newest.Epoch + 2
	s.recovery.Clean = false
	if verified == nil {
		if verified, err = verifyLog(s, m, newest, found); err != nil {
			return true, err
		}
	}
	if err := verified.claimPages(); err != nil {
		return true, err
	}
	w := &s.w
	w.begin()
	w.noLog = true
	w.policy.Purpose = pager.ForDelete // changes that had space in the original run are not refused
	if s.logOrder {
		w.policy.Fit = pager.FitTightest // keeps long runs for large values
	}
	read, err := s.applyLog(newest, found, verified, w)
	if err == nil {
		if mark, ok := markBehind(m, last, read.last.seq); ok {
			read.last.mark = mark
		}
		err = read.finish()
	}
	if err != nil {
		return true, noSpace(err)
	}
	if err := s.publishReplayed(m, newest, read.tail); err != nil {
		return true, noSpace(err)
	}
	return true, s.removeObsolete(found)
}

// startFrom makes the state of m the store's newest version.
func (s *Store) startFrom(m, newest *pager.Meta, found *wal.ScanResult) error {
	if err := s.pg.Start(m); err != nil {
		return err
	}
	v, err := s.loadVersion(m)
	if err != nil {
		return err
	}
	s.segment = m.SegmentSize
	s.head = v
	s.queue.visible.Store(v)
	s.durable, s.epoch = newest.Epoch, newest.Epoch+1
	s.reclaimer.durable = s.durable
	s.openedEpoch = m.FreeDir.Epoch // m.Epoch may be that of a later meta page of the same state
	s.nextSegment = max(found.NextNumber(), max(m.LogStart, newest.LogStart)/uint64(m.SegmentSize))
	s.checkpointer.storeUsedBytes()
	s.checkpointer.capturedBytes.Store(s.checkpointer.usedBytes.Load())
	s.recovery = Recovery{MetaEpoch: uint64(m.Epoch), Seq: m.Seq, Clean: true}
	return nil
}

func (s *Store) loadVersion(m *pager.Meta) (*version, error) {
	v := &version{
		serial: 1, seq: m.Seq, base: m.Epoch, mark: m.ClockMark, nextID: TreeID(m.NextTree),
		trash: m.NextTrash,
	}
	s.table = tree.Tree{Root: m.Root, Depth: m.RootDepth, Rows: m.RootRows}
	return v, v.loadTrees(s)
}

// publishReplayed publishes the replayed state, and makes it durable unless the store is read-only.
func (s *Store) publishReplayed(m, newest *pager.Meta, tail wal.Tail) error {
	s.recovery.CommitsReplayed, s.recovery.BytesDropped = tail.Commits, tail.Dropped
	s.recovery.BytesReplayed = tail.Bytes
	if tail.Commits > 0 && newest.LogStart == m.LogStart && m.Clean && !newest.Clean {
		// The newer page describes the same state, and records were written after it: it is
		// durable. The next meta page overwrites m and not the newer page, so that no page without
		// a log remains.
		s.pg.Prefer(newest)
	}
	v := s.w.publishMaintenance()
	s.queue.makeVisible()
	s.recovery.Seq = v.seq
	switch {
	case s.o.ReadOnly:
		return nil
	case tail.Commits == 0:
		return s.finishEmptyRecovery()
	}
	return s.finishRecovery()
}

// invalidateStaleMeta overwrites a meta page that recovery would trust after a crash, but must not,
// with a copy of m. There are two such pages.
//
// One is older than m, and its log is incomplete. It may be complete again after a power cut, if
// the removal or recycling of segments did not become durable. Recovery would then start from the
// older page, but this one is about to overwrite the pages of its state.
//
// The other was written by an earlier try of this recovery. No Open has shown its state if the log
// may still lose its end. Recovery would trust it as soon as the log ends elsewhere, but this one
// is about to overwrite the pages of its state, too.
//
// An existing copy may exist in the page cache only, and is written again. A copy keeps the clock
// mark and the backups of the page that it overwrites. invalidateStaleMeta returns the newest meta page.
func (s *Store) invalidateStaleMeta(m, newest *pager.Meta, found *wal.ScanResult) (*pager.Meta, error) {
	if !sameState(m, newest) && !isRetry(m, newest, found) || s.o.ReadOnly {
		return newest, nil
	}
	mark, backups := newest.ClockMark, newest.Backups
	err := s.checkpointer.overwriteMeta(func(m *pager.Meta) { m.ClockMark, m.Backups = mark, backups })
	if err != nil {
		return nil, err
	}
	last := s.pg.LastMeta()
	return &last, nil
}

// finishRecovery makes the replayed state durable: its pages first, then a clean meta page. Only
// then may the log be removed.
func (s *Store) finishRecovery() error {
	if err := s.w.saveTrees(); err != nil {
		return err
	}
	start := wal.First(s.segment, s.nextSegment)
	c, err := s.checkpointer.captureState(true, start, start)
	if err != nil {
		return err
	}
	if err := s.pg.Write(c.pages, nil); err != nil {
		return err
	}
	if err := s.pg.WriteMeta(c.meta); err != nil {
		return err
	}
	c.framed = s.pg.Pool.InFrames(c.pages.Dirty)
	return s.checkpointer.install(c)
}

// finishEmptyRecovery is finishRecovery of a log without commits. It needs no page: a closed store
// opens on a full disk.
func (s *Store) finishEmptyRecovery() error {
	if err := s.pg.SyncExtents(); err != nil { // before any meta page: the state that it describes is durable
		return err
	}
	start := uint64(wal.First(s.segment, s.nextSegment))
	err := s.checkpointer.overwriteMeta(func(m *pager.Meta) {
		m.Clean, m.ClockMark, m.LogStart, m.LogDurable = true, s.head.mark, start, start
	})
	if err != nil {
		return err
	}
	s.checkpointer.capturedSer = s.head.serial
	return nil
}

// removeObsolete removes the log files that the newest meta page, which is durable, does not need:
// segments of a log that was replayed, or that an unsynced removal brought back, and a half-made
// main file. If a removal fails Open returns its error, and the next Open retries it.
//
// Crash: the next Open finds some of the files, and removes them. If a power cut brings all of them
// back replay gives the same state, and no page of the state that it starts from was overwritten.
func (s *Store) removeObsolete(found *wal.ScanResult) error {
	if s.o.ReadOnly {
		s.foundLog = found.FileBytes()
		return nil
	}
	names := found.Obsolete(wal.First(s.pg.LastMeta().SegmentSize, s.nextSegment))
	if err := found.Remove(names); err != nil {
		return err
	}
	return pager.RemoveTemp(s.o.FS, s.path)
}
