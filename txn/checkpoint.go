package txn

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// A checkpoint writes the pages of one version that the file does not hold, and flips a meta page.
//
//	crash ...                       the files hold                         recovery
//	before the meta page is synced  the old meta page, its whole log       starts from the old one and replays all
//	after it, before the log is cut both meta pages usable                 starts from the old one: the new one may
//	                                                                       exist only in the page cache
//	after the log is cut            the new meta page, the log after it    starts from the new one
//
// The pages that the new state no longer reaches are used again only after the first segment of the old log was
// retired durably: from then on the old meta page can never again find a complete log, so nothing starts from it.

// capture is what a checkpoint took note of under the writer lock.
type capture struct {
	pages *pager.Capture
	meta  pager.Meta
	cut   wal.LSN // the log before it is not needed once the meta page is durable
	slot  *readerSlot
	v     *version
}

// Checkpoint writes the newest committed state to the main file and cuts the log. If there is nothing to write it
// returns at once.
func (s *Store) Checkpoint(ctx context.Context) error {
	s.open.Add(1)
	defer s.open.Add(-1)
	if err := s.canWrite(); err != nil {
		return err
	}
	if err := lock(ctx, s.upkeep); err != nil {
		return err
	}
	defer func() { <-s.upkeep }()
	return s.checkpoint(ctx)
}

// checkpoint is called with the upkeep lock.
func (s *Store) checkpoint(ctx context.Context) error {
	began := time.Now()
	if err := s.canWrite(); err != nil {
		return err
	}
	if err := s.reclaim(ctx); err != nil {
		return err
	}
	c, err := s.capture(ctx)
	if err != nil || c == nil {
		return err
	}
	err = s.writeCapture(c)
	if err == nil {
		err = s.finishCheckpoint(c)
	}
	if s.o.Events.Checkpoint != nil {
		s.o.Events.Checkpoint(len(c.pages.Dirty), time.Since(began), err)
	}
	return err
}

// capture takes the writer lock for as long as it takes to note a state; nil if there is nothing to write.
func (s *Store) capture(ctx context.Context) (*capture, error) {
	if s.started {
		if err := s.log.Prepare(); err != nil { // before the lock: it may write a whole segment
			return nil, s.logError(err)
		}
	}
	if err := s.lockWriter(ctx); err != nil {
		return nil, err
	}
	defer s.unlockWriter()
	if err := s.canWrite(); err != nil {
		return nil, err
	}
	if !s.started || s.head.serial == s.capturedSer {
		return nil, nil
	}
	return s.captureLocked(false)
}

func (s *Store) captureLocked(clean bool) (*capture, error) {
	if s.epoch >= pager.MaxEpoch {
		return nil, s.poison(errors.New("all epochs are used: copy the store into a new one"))
	}
	if err := s.reap(1 << 30); err != nil {
		return nil, s.poison(err)
	}
	if err := s.saveTrees(); err != nil {
		return nil, err
	}
	cut, err := s.log.Rotate()
	if err != nil {
		return nil, s.logError(err)
	}
	pages, err := s.pg.CaptureState(s.epoch)
	if err != nil {
		if isNoSpace(err) {
			return nil, s.spaceError(err)
		}
		return nil, s.poison(err)
	}
	for _, ref := range pages.Freed {
		s.waiting = append(s.waiting, freedRun{id: ref.Pgid, n: 1, epoch: ref.Epoch, until: s.epoch})
	}
	c := &capture{pages: pages, cut: cut, v: s.head, slot: s.readers.pin(s.head, s.now())}
	c.meta = s.pg.LastMeta()
	c.meta.Epoch, c.meta.Clean, c.meta.Pages, c.meta.FreeDir = s.epoch, clean, pages.Pages, pages.FreeDir
	c.meta.Root, c.meta.RootDepth, c.meta.RootRows = s.table.Root, s.table.Depth, s.table.Rows
	c.meta.NextTree, c.meta.NextTrash = uint64(s.head.nextID), s.head.trash
	c.meta.Seq, c.meta.ClockMark = s.head.seq, s.head.mark
	c.meta.LogStart, c.meta.LogDurable = uint64(cut), uint64(cut)
	s.epoch++
	s.logSince.Store(int64(cut))
	s.capturedSer = s.head.serial
	return c, nil
}

// writeCapture does the slow part, without the writer lock. Any failure is final.
func (s *Store) writeCapture(c *capture) error {
	defer c.slot.release() // pages that later commits free stay until the next checkpoint all the same
	if err := s.pg.CheckIdentity(); err != nil {
		return s.poison(replaced(err))
	}
	// The log up to the cut is sealed and synced first: the old meta page must be able to replay all of it.
	if err := s.log.Sync(); err != nil {
		return s.logError(err)
	}
	s.advance()
	if err := s.pg.Write(c.pages, nil); err != nil {
		return s.poison(err)
	}
	s.flipped = c.meta.Epoch
	if err := s.pg.WriteMeta(c.meta); err != nil {
		return s.poison(err)
	}
	if c.meta.Clean {
		return nil // the whole log goes
	}
	s.log.SetFollows(uint32(c.meta.Epoch))
	if err := s.log.Release(c.cut); err != nil {
		return s.logError(err)
	}
	return nil
}

// finishCheckpoint publishes that pages up to the checkpoint's epoch are in the file, and lets go of frames and pages.
func (s *Store) finishCheckpoint(c *capture) error {
	if err := s.lockWriter(nil); err != nil {
		return err
	}
	defer s.unlockWriter()
	return s.published(c)
}

func (s *Store) published(c *capture) error {
	s.durable = c.meta.Epoch
	s.checkpoints.Add(1)
	idle := s.head == c.v
	s.w.begin()
	v := s.w.upkeep()
	if idle {
		s.capturedSer = v.serial
	}
	s.advance()
	for _, id := range c.pages.Dirty {
		s.retired.push(freedRun{id: id, birth: s.pg.Owner(id), serial: v.serial}) // the frame only
	}
	s.fileBytes.Store(int64(c.pages.Pages) * int64(s.pg.PageSize()))
	s.reachedDisk()
	if err := s.pg.TrimFile(false); err != nil {
		return s.poison(err)
	}
	return nil
}

// saveTrees brings the tree table up to date: a change that no log record tells of, because replay makes it again.
func (s *Store) saveTrees() error {
	if len(s.changed) == 0 {
		return nil
	}
	ids := make([]TreeID, 0, len(s.changed))
	for id := range s.changed {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	w := &s.w
	w.begin()
	defer s.pg.Overdraft(s.pg.Overdraft(true))
	table := s.table
	for _, id := range ids {
		key := treeKey(id)
		t, ok := w.trees.get(id)
		var err error
		if ok {
			_, err = tree.Put(w, &table, key, appendTree(nil, t), 0)
		} else {
			_, err = tree.Delete(w, &table, key)
		}
		if err != nil {
			w.rollback()
			return s.spaceError(err)
		}
	}
	s.table = table
	w.changed = w.changed[:0]
	w.upkeep()
	clear(s.changed)
	return nil
}

// Tree table row: the tree's number, big-endian, to
//
//	0 root pgid u64   8 rows u64   16 root epoch u32   20 depth u8   21 zeros to 24
//
// Numbers with the highest bit set are dropped trees with pages to give back. Golden bytes: testdata/tree-row.hex.
const treeRow = 24

func treeKey(id TreeID) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

func appendTree(b []byte, t tree.Tree) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(t.Root.Pgid))
	b = binary.LittleEndian.AppendUint64(b, t.Rows)
	b = binary.LittleEndian.AppendUint32(b, uint32(t.Root.Epoch))
	return append(b, t.Depth, 0, 0, 0)
}

func decodeTree(b []byte) (tree.Tree, error) {
	if len(b) != treeRow || b[21]|b[22]|b[23] != 0 {
		return tree.Tree{}, fmt.Errorf("tree table row of %d bytes, %d belong, the last 3 zero", len(b), treeRow)
	}
	t := tree.Tree{
		Root:  pager.Ref{Pgid: pager.Pgid(binary.LittleEndian.Uint64(b)), Epoch: pager.Epoch(binary.LittleEndian.Uint32(b[16:]))},
		Rows:  binary.LittleEndian.Uint64(b[8:]),
		Depth: b[20],
	}
	if (t.Depth == 0) != t.Root.IsZero() || t.Root.IsZero() && t.Rows != 0 {
		return tree.Tree{}, fmt.Errorf("tree with root %v, depth %d, %d rows", t.Root, t.Depth, t.Rows)
	}
	return t, nil
}

// reclaimStep is the number of pages of dropped trees that one hold of the writer lock gives back.
const reclaimStep = 4096

// reclaim gives back the pages of dropped trees, in steps between which writers get their turn.
func (s *Store) reclaim(ctx context.Context) error {
	for {
		if done, err := s.reclaimStep(ctx); err != nil || done {
			return err
		}
	}
}

func (s *Store) reclaimStep(ctx context.Context) (done bool, err error) {
	if err := s.lockWriter(ctx); err != nil {
		return false, err
	}
	defer s.unlockWriter()
	if err := s.canWrite(); err != nil {
		return false, err
	}
	return s.reclaimOnce()
}

// reclaimOnce is called with the writer lock.
func (s *Store) reclaimOnce() (done bool, err error) {
	id, ok := s.head.firstTrash()
	if !ok || !s.started {
		return true, nil
	}
	w := &s.w
	w.begin()
	t, _ := w.trees.get(id)
	defer s.pg.Overdraft(s.pg.Overdraft(true))
	gone, err := tree.FreeTree(w, &t, reclaimStep)
	if err != nil {
		w.rollback()
		return false, s.spaceError(err)
	}
	if gone {
		w.trees.remove(id)
		w.noteChanged(id)
	} else {
		w.set(id, t)
	}
	w.upkeep()
	s.advance()
	return false, nil
}

// maybeCheckpoint starts a checkpoint if the log or the frames have grown past their bounds. The goroutine ends with it.
func (s *Store) maybeCheckpoint() {
	if !s.due() || !s.checkpointing.CompareAndSwap(false, true) {
		return
	}
	// The lock is taken here if it is free, so that whoever waits for it waits for this checkpoint.
	locked := false
	select {
	case s.upkeep <- struct{}{}:
		locked = true
	default:
	}
	run := func() {
		defer s.checkpointing.Store(false)
		if !locked {
			_ = lock(nil, s.upkeep)
		}
		defer func() { <-s.upkeep }()
		if err := s.checkpoint(nil); err != nil {
			s.retryAt.Store(uint64(s.log.End()) + uint64(s.checkpointBytes())/8)
		}
	}
	if s.o.Inline {
		s.open.Add(1)
		defer s.open.Add(-1)
		run()
		return
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		run()
	}()
}

// due is asked by committers, without the writer lock: a rough answer does.
func (s *Store) due() bool {
	end := uint64(s.log.End())
	if end < s.retryAt.Load() {
		return false
	}
	if s.wantRoom.Swap(false) {
		return true
	}
	since, bound := int64(end)-s.logSince.Load(), s.checkpointBytes()
	// Frames that snapshots hold do not go away with a checkpoint: not one after the other for their sake.
	return since > bound || s.pg.FrameBytes() > s.o.CacheBytes-s.o.CacheBytes/4 && since > bound/16
}

// Bounds of the log that a crash leaves to replay: some 5 us a small row.
const (
	minCheckpointBytes = 64 << 20
	maxCheckpointBytes = 256 << 20
)

// checkpointBytes is the log size that starts a checkpoint: half the store, within bounds that replay time sets.
func (s *Store) checkpointBytes() int64 {
	if s.o.CheckpointBytes > 0 {
		return s.o.CheckpointBytes
	}
	bytes := min(max(s.fileBytes.Load()/2, minCheckpointBytes), maxCheckpointBytes)
	if s.o.MaxBytes > 0 {
		bytes = min(bytes, s.o.MaxBytes/8)
	}
	return bytes
}

// makeRoom makes a transaction wait for the running checkpoint while frames are used up, or, under MaxBytes, the log is.
// No lock is held.
func (s *Store) makeRoom(ctx context.Context) error {
	full := s.pg.FrameBytes() > s.o.CacheBytes
	if s.o.MaxBytes > 0 && s.checkpointing.Load() {
		s.queueMu.Lock()
		log := s.log
		s.queueMu.Unlock()
		full = full || log != nil && int64(log.End())-s.logSince.Load() > s.checkpointBytes()
	}
	if !full || !s.checkpointing.Load() {
		return nil
	}
	if err := lock(ctx, s.upkeep); err != nil {
		return err
	}
	<-s.upkeep
	return nil
}

// closeClean writes the last checkpoint of a session, with the upkeep and the writer lock: afterwards no log is needed.
func (s *Store) closeClean() error {
	for done := false; !done; {
		var err error
		if done, err = s.reclaimOnce(); err != nil {
			return err
		}
	}
	if err := s.shrink(); err != nil && !isNoSpace(err) { // packing needs room for the copies; the rest need not
		return err
	}
	if err := s.log.Prepare(); err != nil {
		return s.logError(err)
	}
	c, err := s.captureLocked(true)
	if err != nil {
		return err
	}
	if err := s.writeCapture(c); err != nil {
		return err
	}
	if err := s.pg.TrimFile(true); err != nil {
		return s.poison(err)
	}
	return nil
}

// A store whose file is more than this much larger than its pages is packed when it is closed, in one bounded go.
const (
	shrinkPercent  = 30
	shrinkMinBytes = 1 << 20
	shrinkMaxPages = 1 << 16
)

// shrink moves pages from the end of the file into free space further down, so that the tail can be cut. Each step is a
// checkpoint: what is moved is free only when its copy is durable.
func (s *Store) shrink() error {
	if !s.worthShrinking() {
		return nil
	}
	if err := s.checkpointLocked(); err != nil || !s.worthShrinking() {
		return err
	}
	s.pg.Pack(true)
	defer s.pg.Pack(false)
	w := &s.w
	w.begin()
	used := s.pg.UsedPages()
	limit, left := pager.Pgid(used+used/16), shrinkMaxPages
	var ids []TreeID
	s.head.trees.from(0, func(id TreeID, _ tree.Tree) bool {
		ids = append(ids, id)
		return true
	})
	for _, id := range ids {
		t, _ := w.trees.get(id)
		if t.Root.IsZero() || left <= 0 {
			continue
		}
		before := t.Root
		moved, err := tree.Relocate(w, &t, limit, left)
		if err != nil {
			w.rollback()
			return s.spaceError(err)
		}
		if t.Root != before { // also when nothing landed below the limit
			w.set(id, t)
		}
		left -= moved
		if err := w.spill(); err != nil {
			w.rollback()
			return err
		}
	}
	table := s.table
	if _, err := tree.Relocate(w, &table, limit, shrinkMaxPages); err != nil {
		w.rollback()
		return s.spaceError(err)
	}
	s.table = table
	w.upkeep()
	return s.checkpointLocked()
}

func (s *Store) worthShrinking() bool {
	pages, used := s.pg.Pages(), s.pg.UsedPages()
	return pages*100 > used*(100+shrinkPercent) && (pages-used)*uint64(s.pg.PageSize()) > shrinkMinBytes
}

// checkpointLocked is a whole checkpoint with the upkeep and the writer lock held.
func (s *Store) checkpointLocked() error {
	if err := s.log.Prepare(); err != nil {
		return s.logError(err)
	}
	c, err := s.captureLocked(false)
	if err != nil {
		return err
	}
	if err := s.writeCapture(c); err != nil {
		return err
	}
	if err := s.published(c); err != nil {
		return err
	}
	if err := s.reap(1 << 30); err != nil {
		return s.poison(err)
	}
	return nil
}
