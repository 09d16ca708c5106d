package txn

import (
	"context"
	"errors"
	"sync/atomic"
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

// A checkpointer starts checkpoints and runs them.
type checkpointer struct {
	s *Store

	// mu is held by a checkpoint, Close or a bulk load: a lock with a context. It guards metaWritten,
	// packed and backup.
	mu          chan struct{}
	metaWritten pager.Epoch // newest checkpoint whose meta page may be in the file
	packed      int         // pages written by runLocked, for the event of Close
	backup      *backupRun  // that the next checkpoint is for; nil: none

	compacting chan struct{} // held by a Compact: a lock with a context, before mu

	capturedSer uint64 // serial of the version that was captured last. Writer lock

	running    atomic.Bool  // a committer has started a checkpoint
	ended      broadcast    // sent when running has become false
	retryAt    atomic.Int64 // volume of the log at which a failed checkpoint is retried
	background waitGroup    // checkpoints that committers started
	count      atomic.Uint64

	logSince      atomic.Int64 // volume of the log at the last capture
	refBytesSince atomic.Int64 // bytes referenced by log records since then
	// refBytesBefore is the same for the records before it, until that checkpoint is durable.
	refBytesBefore atomic.Int64
	filledBytes    atomic.Int64 // bytes of leaves filled by ascending puts since the last capture
	usedBytes      atomic.Int64 // of pages in use, as of the newest version
	capturedBytes  atomic.Int64 // the same, as of the last capture
	logLimit       atomic.Int64 // of logGrown, before committers wait: see paceLog; 0: none
	logLimitMoved  broadcast    // sent when logLimit has changed

	idle idleTimer

	closingMark func(stored int64) (mark int64, needed bool) // see OnClose; set before the store is used
}

// Checkpoint writes the newest committed state to the main file and cuts the log. If there is
// nothing to write it returns at once.
func (s *Store) Checkpoint(ctx context.Context) error {
	s.open.Add(1)
	defer s.open.Add(-1)
	if err := s.canWrite(); err != nil {
		return err
	}
	if err := lock(ctx, s.checkpointer.mu); err != nil {
		return err
	}
	defer func() { <-s.checkpointer.mu }()
	return s.checkpointer.run(ctx)
}

// run is called with checkpointer.mu. A page that cannot be read through the map may stop it
// half way: that fails the store.
func (k *checkpointer) run(ctx context.Context) error {
	return mapfault.Guard(k.s.finalFault, func() error {
		_, err := k.runOnce(ctx)
		return err
	})
}

// runOnce returns the state that it wrote; nil if there was nothing to write.
func (k *checkpointer) runOnce(ctx context.Context) (*checkpointState, error) {
	began := time.Now()
	if err := k.s.canWrite(); err != nil {
		return nil, err
	}
	if err := k.reclaimTrees(ctx); err != nil {
		return nil, err
	}
	c, err := k.capture(ctx)
	switch {
	case pager.NoSpace(err):
		c, err = k.runOnFullDisk(ctx)
	case c != nil:
		if err = k.write(c, k.newFrameReclaimer(c)); err == nil {
			err = k.finish(c)
		}
		if err == nil && len(k.compacting) == 0 { // a Compact cuts most of it off, and punches the rest
			err = k.punchHoles(c.pages.Pages, false)
		}
	}
	if c != nil && k.s.o.Events.Checkpoint != nil {
		k.s.o.Events.Checkpoint(len(c.pages.Dirty), time.Since(began), err)
	}
	return c, err
}

// capture is captureLocked for a caller without the writer lock; nil if there is nothing to write.
func (k *checkpointer) capture(ctx context.Context) (*checkpointState, error) {
	if err := k.s.lockWriter(ctx); err != nil {
		return nil, err
	}
	due := k.hasUncaptured()
	k.s.unlockWriter()
	if !due { // Each segment that is prepared for nothing makes the log longer.
		return nil, k.s.canWrite()
	}
	// Before the lock: Prepare may write a whole segment. On a full disk captureLocked retries.
	if err := k.s.queue.sessionLog().Prepare(); err != nil && !pager.NoSpace(err) {
		return nil, k.s.logError(err)
	}
	if err := k.s.lockWriter(ctx); err != nil {
		return nil, err
	}
	defer k.s.unlockWriter()
	if err := k.s.canWrite(); err != nil {
		return nil, err
	}
	return k.captureLocked(false)
}

// hasUncaptured says whether there is something that no checkpoint has: a newer version, or log of
// transactions that were rolled back. Writer lock.
func (k *checkpointer) hasUncaptured() bool {
	return k.s.started && (k.s.head.serial != k.capturedSer || k.s.log.Volume() > k.logSince.Load())
}

func (k *checkpointer) captureLocked(clean bool) (*checkpointState, error) {
	if k.s.epoch >= pager.MaxEpoch {
		return nil, k.s.fail(errors.New("all epochs are used: copy the store into a new one"))
	}
	if _, err := k.s.reclaimer.reclaim(reclaimAll); err != nil {
		return nil, err
	}
	if err := k.s.w.saveTrees(); err != nil {
		return nil, err
	}
	end, cut, err := k.rotateLog(clean)
	if err != nil {
		return nil, err
	}
	c, err := k.captureState(clean, cut, end)
	if err != nil {
		if pager.NoSpace(err) {
			return nil, k.s.spaceError(err)
		}
		return nil, k.s.fail(err)
	}
	k.logSince.Store(k.s.log.Volume())
	k.filledBytes.Store(0)
	k.capturedBytes.Store(k.usedBytes.Load())
	k.refBytesBefore.Store(k.refBytesSince.Swap(0))
	return c, nil
}

// captureState captures the pages and the meta page of the newest version, whose trees are saved,
// and begins the next epoch. The log of the new state begins at start; it is durable up to durable.
func (k *checkpointer) captureState(clean bool, start, durable wal.LSN) (*checkpointState, error) {
	pages, err := k.s.pg.CaptureState(k.s.epoch)
	if err != nil {
		return nil, err
	}
	k.s.reclaimer.captured(pages.Freed, k.s.epoch)
	m := k.s.pg.LastMeta()
	m.Epoch, m.Clean, m.Pages, m.FreeDir = k.s.epoch, clean, pages.Pages, pages.FreeDir
	m.Root, m.RootDepth, m.RootRows = k.s.table.Root, k.s.table.Depth, k.s.table.Rows
	m.NextTree, m.NextTrash = uint64(k.s.head.nextID), k.s.head.trash
	m.Seq, m.ClockMark = k.s.head.seq, k.s.head.mark
	m.LogStart, m.LogDurable = uint64(start), uint64(durable)
	if k.backup != nil {
		k.backup.capture(&m)
	}
	k.s.epoch++
	k.capturedSer = k.s.head.serial
	return &checkpointState{pages: pages, meta: m, cut: start, v: k.s.head}, nil
}

// rotateLog ends the log that the new state does not need, and returns its end and the start of the
// log that follows. Unless the session ends, the segment of that start exists when it returns.
func (k *checkpointer) rotateLog(last bool) (end, cut wal.LSN, err error) {
	if last {
		end, cut = k.s.log.Finish()
		return end, cut, nil
	}
	// Now: the space that the main file keeps after giving some to the log suffices for
	// CaptureState.
	if err := k.prepareLog(); err != nil {
		return 0, 0, err
	}
	cut, err = k.s.log.Rotate()
	return cut, cut, k.s.logError(err)
}

// errStopped fails the store after a checkpoint that did not finish.
var errStopped = errors.New("a panic, or an end of the goroutine, stopped a checkpoint")

// write puts a captured state into the file, without the writer lock. Any failure is final, and so is
// a panic of a group callback: the next checkpoint takes the captured pages for written. observer
// is nil if there are no concurrent commits.
//
// No snapshot holds the captured pages and, until they are written, their frames: pages that later
// commits free wait for the next checkpoint.
func (k *checkpointer) write(c *checkpointState, observer pager.CheckpointObserver) (err error) {
	done := false
	defer func() {
		k.endLogPace()
		switch {
		case !done:
			_ = k.s.fail(errStopped)
		case err != nil:
			_ = k.s.fail(err) // no effect if the store has failed already
		}
	}()
	err = k.writePages(c, observer)
	done = true
	return err
}

func (k *checkpointer) writePages(c *checkpointState, observer pager.CheckpointObserver) error {
	if err := k.s.pg.CheckIdentity(); err != nil {
		return k.s.fail(err)
	}
	// The log up to the cut is closed and synced first: the old meta page must be able to replay
	// all of it.
	if err := k.s.log.Sync(); err != nil {
		return k.s.logError(err)
	}
	k.s.queue.makeVisible()
	if err := k.s.pg.Write(c.pages, observer); err != nil {
		return k.s.fail(err)
	}
	c.framed = k.s.pg.Pool.InFrames(c.pages.Dirty)
	k.metaWritten = c.meta.Epoch
	if err := k.s.pg.WriteMeta(c.meta); err != nil {
		return k.s.fail(err)
	}
	if c.meta.Clean {
		return nil // Close removes the whole log
	}
	k.s.log.SetFollows(uint32(c.meta.Epoch))
	return k.s.logError(k.s.log.Release(c.cut))
}

// finish publishes that pages up to the checkpoint's epoch are in the file, and frees
// frames and pages.
func (k *checkpointer) finish(c *checkpointState) error {
	v, err := k.publish(c)
	if err != nil {
		return err
	}
	if err := k.reclaimInSteps(v); err != nil {
		return err
	}
	k.s.pg.Pool.TrimFrames()
	return nil
}

// punchHoles gives free space below page end, that of the durable state, back to the file system,
// without the writer lock while the disk works: all of it, or what the store does not need soon. It is
// called with checkpointer.mu.
func (k *checkpointer) punchHoles(end uint64, all bool) error {
	_ = k.s.lockWriter(nil)
	dead := k.s.pg.Alloc.Holes.TakeDead(end, all)
	k.s.unlockWriter()
	if len(dead) == 0 {
		return nil
	}
	failed := k.s.pg.Alloc.Holes.Punch(dead)
	_ = k.s.lockWriter(nil)
	defer k.s.unlockWriter()
	if err := k.s.pg.Alloc.Holes.Punched(dead, failed); err != nil {
		return k.s.fail(err)
	}
	return nil
}

func (k *checkpointer) publish(c *checkpointState) (*version, error) {
	_ = k.s.lockWriter(nil)
	defer k.s.unlockWriter()
	err := k.install(c)
	return k.s.head, err
}

func (k *checkpointer) install(c *checkpointState) error {
	k.s.durable = c.meta.Epoch
	k.refBytesBefore.Store(0)
	k.count.Add(1)
	idle := k.s.head == c.v
	k.s.w.begin()
	v := k.s.w.publishMaintenance()
	if idle {
		k.capturedSer = v.serial
	}
	k.s.queue.makeVisible()
	k.s.reclaimer.installed(c, v.serial)
	if err := k.s.pg.Alloc.TrimFile(false); err != nil {
		return k.s.fail(err)
	}
	return nil
}

// storeUsedBytes notes the size of the pages in use. Writer lock.
func (k *checkpointer) storeUsedBytes() {
	k.usedBytes.Store(int64(k.s.pg.Alloc.UsedPages()) * int64(k.s.pg.PageSize()))
}

// reclaimStepPages is the number of pages of dropped trees that one hold of the writer lock frees.
const reclaimStepPages = 4096

// reclaimTrees frees the pages of dropped trees, in steps: between two steps the writer lock is
// free.
func (k *checkpointer) reclaimTrees(ctx context.Context) error {
	for {
		if done, err := k.reclaimTreesStep(ctx); err != nil || done {
			return err
		}
	}
}

func (k *checkpointer) reclaimTreesStep(ctx context.Context) (done bool, err error) {
	if err := k.s.lockWriter(ctx); err != nil {
		return false, err
	}
	defer k.s.unlockWriter()
	if err := k.s.canWrite(); err != nil {
		return false, err
	}
	return k.reclaimTree()
}

// reclaimTree frees some pages of a dropped tree, with the writer lock.
func (k *checkpointer) reclaimTree() (done bool, err error) {
	if _, _, any := k.s.head.trees.firstTrash(); !any || !k.s.started {
		return true, nil
	}
	w := &k.s.w
	w.begin()
	w.policy.Purpose = pager.ForDelete
	_, err = w.reclaimTree()
	if err == nil {
		err = w.validateFreed()
	}
	if err != nil {
		w.rollback()
		return false, k.s.spaceError(err)
	}
	w.publishMaintenance()
	k.s.queue.makeVisible()
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

// closeClean writes the last checkpoint of a session, with checkpointer.mu and the writer lock: after
// it the store needs no log. The state is nil if it wrote none.
func (k *checkpointer) closeClean() (*checkpointState, error) {
	for done := false; !done; {
		var err error
		if done, err = k.reclaimTree(); err != nil {
			return nil, err
		}
	}
	// Compaction needs space for the copies; without it the checkpoint goes ahead.
	if err := k.compact(); err != nil && !pager.NoSpace(err) {
		return nil, err
	}
	if err := k.punchAtClose(); err != nil && !pager.NoSpace(err) {
		return nil, err
	}
	c, err := k.captureLocked(true)
	if err != nil {
		return nil, err
	}
	c.meta.ClockMark, _ = k.markAtClose()
	return c, k.write(c, nil)
}

// runLocked is a whole checkpoint with checkpointer.mu and the writer lock held.
func (k *checkpointer) runLocked() error {
	c, err := k.captureLocked(false)
	if err != nil {
		return err
	}
	if err := k.write(c, nil); err != nil {
		return err
	}
	k.packed += len(c.pages.Dirty)
	if err := k.install(c); err != nil {
		return err
	}
	_, err = k.s.reclaimer.reclaim(reclaimAll)
	return err
}
