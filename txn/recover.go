package txn

import (
	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

// readLog reads the log after m to its end. Without a writer it only proves the log and finds the
// values that it names; what it has read need not be read again unless that is partial. With a
// writer, which is for after that, it applies what a batch does not hold, up to where the log was
// proved to end.
func (s *Store) readLog(
	m, newest *pager.Meta, found *wal.ScanResult, proved *replayer, w *writer,
) (p *replayer, err error) {
	p = newReplayer(s, m, found.MaxBytes(wal.LSN(m.LogStart)))
	if p.w = w; proved != nil {
		p.stop = proved.stop
	}
	whole := false
	defer func() {
		if !whole { // a page could not be read through the map: nobody else knows of p
			p.free()
		}
	}()
	p.tail, err = found.Replay(wal.LSN(m.LogStart), durableLog(m, newest, found), p.part)
	if err == nil {
		err = checkSameCommit(m, newest, found, p.seq)
	}
	whole = true
	return p, err
}

// isRetry says that the newest meta page is of an earlier try of this very recovery: closed
// cleanly, with a log that begins where no segment has been yet.
func isRetry(m, newest *pager.Meta, found *wal.ScanResult) bool {
	return newest != m && newest.Clean && found.NextNumber() <= newest.LogStart/uint64(newest.SegmentSize)
}

// durableLog is the position up to which the log after m was durable for certain. A page of an
// earlier try tells of no position in this log, only of the commit that it ends with: see
// checkSameCommit.
func durableLog(m, newest *pager.Meta, found *wal.ScanResult) wal.LSN {
	if isRetry(m, newest, found) {
		return wal.LSN(m.LogDurable)
	}
	return wal.LSN(max(m.LogDurable, newest.LogDurable))
}

// checkSameCommit holds the last commit that replay found against what an earlier try of the
// recovery found.
func checkSameCommit(m, newest *pager.Meta, found *wal.ScanResult, seq uint64) error {
	if isRetry(m, newest, found) && seq != newest.Seq {
		return badfile.At("log", -1, "it ends with commit %d, an earlier recovery found commit %d", seq, newest.Seq)
	}
	return nil
}

// noLog says that m tells of a store that was closed, and that no segment of a later session is
// there.
func noLog(m, newest *pager.Meta, found *wal.ScanResult) bool {
	segments := found.Segments()
	none := len(segments) == 0 || segments[len(segments)-1].Number < m.LogStart/uint64(m.SegmentSize)
	return m.Clean && m == newest && none
}

// usable says why recovery cannot start from m; nil if it can.
func usable(m, newest *pager.Meta, found *wal.ScanResult) error {
	if noLog(m, newest, found) {
		return nil
	}
	return found.Chain(wal.LSN(m.LogStart))
}

// recoverFrom makes the state of m, and the log after it, the store's. touched says that the file
// may have changed; two, that both meta pages are valid. read has read the log after m before, if
// it is not nil.
func (s *Store) recoverFrom(
	m, newest *pager.Meta,
	two bool,
	found *wal.ScanResult,
	read *replayer,
) (touched bool, err error) {
	if err := s.pg.Start(m); err != nil {
		return false, err
	}
	v := &version{
		serial: 1, seq: m.Seq, base: m.Epoch, mark: m.ClockMark, nextID: TreeID(m.NextTree), trash: m.NextTrash,
	}
	s.table = tree.Tree{Root: m.Root, Depth: m.RootDepth, Rows: m.RootRows}
	if err := s.loadTrees(v); err != nil {
		return false, err
	}
	s.segment = m.SegmentSize
	s.head = v
	s.visible.Store(v)
	s.durable, s.epoch = newest.Epoch, newest.Epoch+1
	s.openedEpoch = m.FreeDir.Epoch // The epoch of a meta page may be that of a later one which says the same.
	s.nextSegment = max(
		found.NextNumber(),
		m.LogStart/uint64(m.SegmentSize),
		newest.LogStart/uint64(m.SegmentSize),
	)
	s.fileBytes.Store(int64(m.Pages) * int64(m.PageSize))
	s.recovery = Recovery{MetaEpoch: uint64(m.Epoch), Seq: m.Seq, Clean: true}
	if noLog(m, newest, found) {
		err := s.removeObsolete(found)
		if err == nil && !s.o.ReadOnly {
			// No segment is left. The log goes on where this page says: a crash that leaves a new
			// segment, but no page that tells of it, must find the segment where the chain begins.
			s.nextSegment = m.LogStart / uint64(m.SegmentSize)
		}
		return false, err
	}
	last := newest // before a fence takes its place
	if two {
		if newest, err = s.invalidateStaleMeta(m, newest, found); err != nil {
			return true, noSpace(err)
		}
	}
	// An epoch that no page of an earlier try can have: a page of that try would pass for one of
	// this.
	s.epoch = newest.Epoch + 2
	s.recovery.Clean = false
	defer func() { read.free() }()
	if read == nil {
		if read, err = s.readLog(m, newest, found, nil, nil); err != nil {
			return true, err
		}
	}
	if err := read.claimPages(); err != nil {
		return true, err
	}
	w := &s.w
	w.begin()
	w.noLog = true
	w.setFrames(s.o.CacheBytes - read.bytes) // The batch is a share of the cache.
	s.pg.Overdraft(true)                     // what fitted once shall not be refused now
	if s.logOrder {
		if err := s.pg.Tight(true); err != nil { // Long runs are for large values.
			return true, err
		}
		defer func() { _ = s.pg.Tight(false) }() // What is found damaged here is found again.
	}
	if read.partial {
		read, err = s.readLog(m, newest, found, read, w)
	}
	read.w = w
	if err == nil {
		if mark, ok := markBehind(m, last, read.seq); ok {
			read.mark = mark
		}
	}
	if err = read.finish(err); err != nil {
		return true, noSpace(err)
	}
	tail := read.tail
	s.recovery.CommitsReplayed, s.recovery.BytesDropped = tail.Commits, tail.Dropped
	s.recovery.BytesReplayed = tail.Bytes
	if tail.Commits > 0 && newest.LogStart == m.LogStart && m.Clean && !newest.Clean {
		// The newer page says the same as this one, and records were written after it: it is
		// durable. Its place is kept and this one's is used, so that no page is left that knows
		// nothing of a log.
		s.pg.Prefer(newest)
	}
	v2 := w.publishMaintenance()
	s.makeVisible()
	s.recovery.Seq = v2.seq
	if s.o.ReadOnly {
		return true, s.removeObsolete(found)
	}
	settle := s.finishRecovery
	if tail.Commits == 0 {
		settle = s.finishEmptyRecovery
	}
	if err := settle(); err != nil {
		return true, noSpace(err)
	}
	return true, s.removeObsolete(found)
}

// invalidateStaleMeta takes the place of a meta page that would be believed after a crash, and must
// not be. It says what m says. There are two such pages.
//
// One is older than m, and its log is not complete. That it is not may be true of this boot only:
// segments whose removal or recycling failed to become durable come back with a power cut, and
// recovery would then start from the older page, whose state's pages are about to be overwritten
// here.
//
// The other is of an earlier try of this recovery, which nobody was shown if the log may still lose
// its end: it is believed as soon as the log ends elsewhere, and its state's pages are about to be
// overwritten, too.
//
// A fence that is found may exist in the page cache only, and is written again. It keeps the clock
// mark of the page whose place it takes. It returns the newest meta page.
func (s *Store) invalidateStaleMeta(m, newest *pager.Meta, found *wal.ScanResult) (*pager.Meta, error) {
	if !sameState(m, newest) && !isRetry(m, newest, found) || s.o.ReadOnly {
		return newest, nil
	}
	fence := *m
	fence.Epoch, fence.ClockMark = newest.Epoch+1, newest.ClockMark
	if err := s.pg.WriteMeta(fence); err != nil {
		return nil, err
	}
	fence = s.pg.LastMeta()
	s.durable = fence.Epoch
	return &fence, nil
}

// finishRecovery makes the replayed state durable: its pages first, then a clean meta page. Only
// then may the log go.
func (s *Store) finishRecovery() error {
	defer s.pg.Capturing(s.pg.Capturing(true))
	if err := s.saveTrees(); err != nil {
		return err
	}
	pages, err := s.pg.CaptureState(s.epoch)
	if err != nil {
		return err
	}
	if err := s.pg.Write(pages, nil); err != nil {
		return err
	}
	meta := s.pg.LastMeta()
	meta.Epoch, meta.Clean, meta.Pages, meta.FreeDir = s.epoch, true, pages.Pages, pages.FreeDir
	meta.Root, meta.RootDepth, meta.RootRows = s.table.Root, s.table.Depth, s.table.Rows
	meta.NextTree, meta.NextTrash = uint64(s.head.nextID), s.head.trash
	meta.Seq, meta.ClockMark = s.head.seq, s.head.mark
	meta.LogStart = uint64(wal.First(meta.SegmentSize, s.nextSegment))
	meta.LogDurable = meta.LogStart
	if err := s.pg.WriteMeta(meta); err != nil {
		return err
	}
	for _, ref := range pages.Freed {
		s.awaitCheckpoint.push(deferredFree{id: ref.Pgid, n: 1, epoch: ref.Epoch, afterCheckpoint: s.epoch})
	}
	s.markCaptured()
	s.epoch++
	c := &checkpointState{pages: pages, meta: meta, v: s.head, framed: s.pg.InFrames(pages.Dirty)}
	s.capturedSer = s.head.serial
	return s.installCheckpoint(c)
}

// finishEmptyRecovery is finishRecovery where the log had no commit. It needs no page: a disk that
// is full keeps nobody from a store that was closed.
func (s *Store) finishEmptyRecovery() error {
	if err := s.pg.SyncExtents(); err != nil { // Before any meta page: what it tells of is durable.
		return err
	}
	meta := s.pg.LastMeta()
	meta.Epoch, meta.Clean, meta.ClockMark = s.epoch, true, s.head.mark
	meta.LogStart = uint64(wal.First(meta.SegmentSize, s.nextSegment))
	meta.LogDurable = meta.LogStart
	if err := s.pg.WriteMeta(meta); err != nil {
		return err
	}
	s.durable, s.epoch = s.epoch, s.epoch+1
	s.capturedSer = s.head.serial
	return nil
}
