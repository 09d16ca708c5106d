package txn

import (
	"context"
	"errors"
	"time"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/mapfault"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// A checkpoint writes the pages of one version that the file does not hold, and then the meta page
// that reaches them.
//
//	crash ...                       the files hold                       recovery
//	before the meta page is synced  the old meta page and its whole log  starts from the old one, replays all
//	then, before the log is cut     two usable meta pages                starts from the old one: the new one
//	                                                                     may exist only in the page cache
//	after the log is cut            the new meta page, the log after it  starts from the new one
//
// Pages that the new state does not reach are overwritten only after the first segment of the old
// log was removed durably: from then on the old meta page never has a complete log, and recovery
// cannot start from it. Pages in memory reuse these page numbers before that: see
// pager.OfferReusable.

// checkpointState is the state that a checkpoint captured under the writer lock.
type checkpointState struct {
	pages  *pager.Capture
	meta   pager.Meta
	framed []pager.Pgid // those of the pages that had a frame after they were written
	cut    wal.LSN      // start of the log that the new meta page needs
	v      *version
}

// Checkpoint writes the newest committed state to the main file and cuts the log. If there is
// nothing to write it returns at once.
func (s *Store) Checkpoint(ctx context.Context) error {
	s.open.Add(1)
	defer s.open.Add(-1)
	if err := s.canWrite(); err != nil {
		return err
	}
	if err := lock(ctx, s.maintenanceMu); err != nil {
		return err
	}
	defer func() { <-s.maintenanceMu }()
	return s.checkpoint(ctx)
}

// checkpoint is called with maintenanceMu. A page that cannot be read through the map may stop it
// half way: that fails the store.
func (s *Store) checkpoint(ctx context.Context) error {
	return mapfault.Guard(s.finalFault, func() error { return s.checkpointOnce(ctx) })
}

func (s *Store) checkpointOnce(ctx context.Context) error {
	began := time.Now()
	if err := s.canWrite(); err != nil {
		return err
	}
	if err := s.reclaimTrees(ctx); err != nil {
		return err
	}
	c, err := s.captureCheckpoint(ctx)
	switch {
	case pager.NoSpace(err):
		c, err = s.checkpointDiskFull(ctx)
	case c != nil:
		if err = s.writeCheckpoint(c, s.newFrameReclaimer(c)); err == nil {
			err = s.finishCheckpoint(c)
		}
	}
	if c == nil {
		return err
	}
	if s.o.Events.Checkpoint != nil {
		s.o.Events.Checkpoint(len(c.pages.Dirty), time.Since(began), err)
	}
	return err
}

// captureCheckpoint captures a state under the writer lock; nil if there is nothing to write.
func (s *Store) captureCheckpoint(ctx context.Context) (*checkpointState, error) {
	if err := s.lockWriter(ctx); err != nil {
		return nil, err
	}
	due := s.hasUncaptured()
	s.unlockWriter()
	if !due { // Each segment that is prepared for nothing makes the log longer.
		return nil, s.canWrite()
	}
	// Before the lock: Prepare may write a whole segment. On a full disk captureLocked retries.
	if err := s.queue.sessionLog().Prepare(); err != nil && !pager.NoSpace(err) {
		return nil, s.logError(err)
	}
	if err := s.lockWriter(ctx); err != nil {
		return nil, err
	}
	defer s.unlockWriter()
	if err := s.canWrite(); err != nil {
		return nil, err
	}
	return s.captureLocked(false)
}

// hasUncaptured says whether there is something that no checkpoint has: a newer version, or log of
// transactions that were rolled back. Writer lock.
func (s *Store) hasUncaptured() bool {
	return s.started && (s.head.serial != s.capturedSer || s.log.Volume() > s.logSince.Load())
}

func (s *Store) captureLocked(clean bool) (*checkpointState, error) {
	if s.epoch >= pager.MaxEpoch {
		return nil, s.fail(errors.New("all epochs are used: copy the store into a new one"))
	}
	if _, err := s.reclaimer.reclaim(reclaimAll); err != nil {
		return nil, err
	}
	if err := s.saveTrees(); err != nil {
		return nil, err
	}
	end, cut, err := s.rotateLog(clean)
	if err != nil {
		return nil, err
	}
	c, err := s.captureState(clean, cut, end)
	if err != nil {
		if pager.NoSpace(err) {
			return nil, s.spaceError(err)
		}
		return nil, s.fail(err)
	}
	s.logSince.Store(s.log.Volume())
	s.filledBytes.Store(0)
	s.refBytesBefore.Store(s.refBytesSince.Swap(0))
	return c, nil
}

// captureState captures the pages and the meta page of the newest version, whose trees are saved,
// and begins the next epoch. The log of the new state begins at start; it is durable up to durable.
func (s *Store) captureState(clean bool, start, durable wal.LSN) (*checkpointState, error) {
	pages, err := s.pg.CaptureState(s.epoch)
	if err != nil {
		return nil, err
	}
	s.reclaimer.captured(pages.Freed, s.epoch)
	m := s.pg.LastMeta()
	m.Epoch, m.Clean, m.Pages, m.FreeDir = s.epoch, clean, pages.Pages, pages.FreeDir
	m.Root, m.RootDepth, m.RootRows = s.table.Root, s.table.Depth, s.table.Rows
	m.NextTree, m.NextTrash = uint64(s.head.nextID), s.head.trash
	m.Seq, m.ClockMark = s.head.seq, s.head.mark
	m.LogStart, m.LogDurable = uint64(start), uint64(durable)
	s.epoch++
	s.capturedSer = s.head.serial
	return &checkpointState{pages: pages, meta: m, cut: start, v: s.head}, nil
}

// rotateLog ends the log that the new state does not need, and returns its end and the start of the
// log that follows. Unless the session ends, the segment of that start exists when it returns.
func (s *Store) rotateLog(last bool) (end, cut wal.LSN, err error) {
	if last {
		end, cut = s.log.Finish()
		return end, cut, nil
	}
	// Now: the space that the main file keeps after giving some to the log suffices for
	// CaptureState.
	if err := s.prepareLog(); err != nil {
		return 0, 0, err
	}
	if cut, err = s.log.Rotate(); err != nil {
		return 0, 0, s.logError(err)
	}
	return cut, cut, nil
}

// errStopped fails the store after a checkpoint that did not finish.
var errStopped = errors.New("a panic, or an end of the goroutine, stopped a checkpoint")

// writeCheckpoint writes a captured state, without the writer lock. Any failure is final, and so is
// a panic of a group callback: the next checkpoint takes the captured pages for written. observer
// is nil if there are no concurrent commits.
//
// No snapshot holds the captured pages and, until they are written, their frames: pages that later
// commits free wait for the next checkpoint.
func (s *Store) writeCheckpoint(c *checkpointState, observer pager.CheckpointObserver) (err error) {
	done := false
	defer func() {
		switch {
		case !done:
			_ = s.fail(errStopped)
		case err != nil:
			_ = s.fail(err) // no effect if the store has failed already
		}
	}()
	err = s.writePages(c, observer)
	done = true
	return err
}

func (s *Store) writePages(c *checkpointState, observer pager.CheckpointObserver) error {
	if err := s.pg.CheckIdentity(); err != nil {
		return s.fail(replaced(err))
	}
	// The log up to the cut is closed and synced first: the old meta page must be able to replay
	// all of it.
	if err := s.log.Sync(); err != nil {
		return s.logError(err)
	}
	s.queue.makeVisible()
	if err := s.pg.Write(c.pages, observer); err != nil {
		return s.fail(err)
	}
	c.framed = s.pg.InFrames(c.pages.Dirty)
	s.metaWritten = c.meta.Epoch
	if err := s.pg.WriteMeta(c.meta); err != nil {
		return s.fail(err)
	}
	if c.meta.Clean {
		return nil // Close removes the whole log
	}
	s.log.SetFollows(uint32(c.meta.Epoch))
	if err := s.log.Release(c.cut); err != nil {
		return s.logError(err)
	}
	return nil
}

// finishCheckpoint publishes that pages up to the checkpoint's epoch are in the file, and frees
// frames and pages.
func (s *Store) finishCheckpoint(c *checkpointState) error {
	v, err := s.publishCheckpoint(c)
	if err != nil {
		return err
	}
	if err := s.reclaimInSteps(v); err != nil {
		return err
	}
	s.pg.TrimFrames()
	return nil
}

func (s *Store) publishCheckpoint(c *checkpointState) (*version, error) {
	_ = s.lockWriter(nil)
	defer s.unlockWriter()
	err := s.installCheckpoint(c)
	return s.head, err
}

func (s *Store) installCheckpoint(c *checkpointState) error {
	s.durable = c.meta.Epoch
	s.refBytesBefore.Store(0)
	s.checkpoints.Add(1)
	idle := s.head == c.v
	s.w.begin()
	v := s.w.publishMaintenance()
	if idle {
		s.capturedSer = v.serial
	}
	s.queue.makeVisible()
	s.reclaimer.installed(c, v.serial)
	s.fileBytes.Store(int64(c.pages.Pages) * int64(s.pg.PageSize()))
	if err := s.pg.TrimFile(false); err != nil {
		return s.fail(err)
	}
	return nil
}

// reclaimStepPages is the number of pages of dropped trees that one hold of the writer lock frees.
const reclaimStepPages = 4096

// reclaimTrees frees the pages of dropped trees, in steps: between two steps the writer lock is
// free.
func (s *Store) reclaimTrees(ctx context.Context) error {
	for {
		if done, err := s.reclaimTreesStep(ctx); err != nil || done {
			return err
		}
	}
}

func (s *Store) reclaimTreesStep(ctx context.Context) (done bool, err error) {
	if err := s.lockWriter(ctx); err != nil {
		return false, err
	}
	defer s.unlockWriter()
	if err := s.canWrite(); err != nil {
		return false, err
	}
	return s.reclaimTree()
}

// reclaimTree frees some pages of a dropped tree, with the writer lock.
func (s *Store) reclaimTree() (done bool, err error) {
	if _, _, any := s.head.trees.firstTrash(); !any || !s.started {
		return true, nil
	}
	w := &s.w
	w.begin()
	w.policy.Purpose = pager.ForDelete
	_, err = w.reclaimTree()
	if err == nil {
		err = w.validateFreed()
	}
	if err != nil {
		w.rollback()
		return false, s.spaceError(err)
	}
	w.publishMaintenance()
	s.queue.makeVisible()
	return false, nil
}

// reclaimTree frees some pages of a dropped tree; none says that there is no such tree.
func (w *writer) reclaimTree() (none bool, err error) {
	id, t, any := w.trees.firstTrash()
	if !any {
		return true, nil
	}
	gone, err := tree.FreeTree(w, &t, reclaimStepPages)
	if err != nil {
		return false, err
	}
	if !gone {
		w.set(id, t)
		return false, nil
	}
	w.trees.remove(id)
	w.noteChanged(id)
	w.mods++
	return false, nil
}

// closeClean writes the last checkpoint of a session, with maintenanceMu and the writer lock: after
// it the store needs no log. The state is nil if it wrote none.
func (s *Store) closeClean() (*checkpointState, error) {
	for done := false; !done; {
		var err error
		if done, err = s.reclaimTree(); err != nil {
			return nil, err
		}
	}
	// Compaction needs space for the copies; without it the checkpoint goes ahead.
	if err := s.compact(); err != nil && !pager.NoSpace(err) {
		return nil, err
	}
	c, err := s.captureLocked(true)
	if err != nil {
		return nil, err
	}
	c.meta.ClockMark, _ = s.markAtClose()
	return c, s.writeCheckpoint(c, nil)
}

// checkpointLocked is a whole checkpoint with maintenanceMu and the writer lock held.
func (s *Store) checkpointLocked() error {
	c, err := s.captureLocked(false)
	if err != nil {
		return err
	}
	if err := s.writeCheckpoint(c, nil); err != nil {
		return err
	}
	s.packed += len(c.pages.Dirty)
	if err := s.installCheckpoint(c); err != nil {
		return err
	}
	_, err = s.reclaimer.reclaim(reclaimAll)
	return err
}
