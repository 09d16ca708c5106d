package wal

import (
	"fmt"
	"time"

	"github.com/ebbkv/ebb/internal/vfs"
)

// writeOutcome is the result of a write.
type writeOutcome uint8

const (
	// The system has all of it; after an error of the sync it may or may not be durable.
	writeComplete writeOutcome = iota
	writePartial               // the write failed
	writeNone                  // nothing was written
)

// group is one write of a leader: the first buffer of the queue, or only a sync.
type group struct {
	buffer        *writeBuffer // nil: only sync what was written before
	end           LSN          // written afterwards
	sync          bool
	direct        bool
	size          int       // bytes to write, padding included
	durableBefore LSN       // durable before
	began         time.Time // if OnGroup is set
}

// takeGroup takes the next group from the queue and decides how to write it; its write starts then.
// mu is held.
//
// A direct write needs everything before it durable: it makes the log durable up to its end. While closed
// segments are not durable no group is synced, and only a direct write syncs an end record: see
// syncClosedSegments. Each synced group ends at a block, so that no later write covers a block with
// durable records. The page cache writes pages, so cached and direct writes never share one:
//
//   - a cached group that is synced is padded to a page;
//   - a group without a sync that would go through the cache, but begins inside a page that was
//     written directly, is written directly too, and padded to a page, so that the next one can go
//     through the cache.
func (s *syncer) takeGroup(sync bool) group {
	a := s.appender
	a.mu.Lock()
	defer a.mu.Unlock()
	s.writing = true
	g := group{durableBefore: s.durableEnd(), end: s.writtenEnd()}
	if s.opts.OnGroup != nil {
		g.began = time.Now()
	}
	if len(a.queue) == 0 {
		g.sync = s.wantsSync(g.end, sync) && !s.hasUnsyncedSegments()
		a.padTo(pageUnit)
		return g
	}
	r := a.popBuffer()
	g.buffer, g.end = r, r.end
	direct, pad := s.directIO(r), int64(pageUnit)
	g.sync = s.wantsSync(g.end, sync) && !s.hasUnsyncedSegments() && (direct || !r.sealed())
	if direct {
		switch {
		case g.sync:
			g.direct, pad = true, r.seg.block
		case s.direct && int64(r.start)%pageUnit != 0:
			g.direct = true
		}
	}
	// Zeros fill a cached write to the page's end even where the next record will overwrite them:
	// the operating system need not read the page first, and no bytes of the file's previous use
	// become visible.
	g.size = int(alignUp(int64(r.start)+int64(len(r.buf)), pad) - int64(r.start))
	if (g.sync || g.direct) && !r.sealed() {
		a.padTo(pad)
	}
	s.maxSubmitted = max(s.maxSubmitted, g.end)
	return g
}

// directIO says whether a buffer can be written directly, past the page cache, now. mu is held.
func (s *syncer) directIO(r *writeBuffer) bool {
	return r.seg.directFile != nil && s.durable.Load() == s.written.Load() && int64(r.start)%r.seg.block == 0
}

// wantsSync says whether any waiter wants a sync of the log up to end. The leader's own wish counts
// even if its end is in a later buffer: it needs this sync anyway. mu is held.
func (s *syncer) wantsSync(end LSN, sync bool) bool {
	for i := 0; i < len(s.waiters) && !sync; i++ {
		sync = s.waiters[i].sync && s.waiters[i].end <= end
	}
	return sync
}

// writeGroup does a group's work on the files, without mu.
func (s *syncer) writeGroup(g *group) (writeOutcome, error) {
	if err := s.syncBeforeWrite(g); err != nil {
		return writeNone, err
	}
	if g.buffer == nil {
		if err := s.segment.file.SyncData(); err != nil {
			return writeComplete, fmt.Errorf("sync log segment %s: %w", s.segment.name, err)
		}
		return writeComplete, nil
	}
	r := g.buffer
	sealRecords(r, g.durableBefore)
	if !g.sync && !g.direct && r.start+LSN(len(r.buf)) <= s.zeroedTo {
		g.size = len(r.buf)
		if err := r.seg.file.WriteMapped(r.buf, r.offset()); err != nil {
			return writePartial, r.writeErr(err)
		}
		return writeComplete, nil
	}
	g.appendPadding()
	if g.direct {
		if err := vfs.WriteFull(r.seg.directFile, r.buf, r.offset()); err != nil {
			return writePartial, r.writeErr(err)
		}
		return writeComplete, nil
	}
	if err := vfs.WriteFull(r.seg.file, r.buf, r.offset()); err != nil {
		return writePartial, r.writeErr(err)
	}
	s.zeroedTo = r.start + LSN(len(r.buf))
	if !g.sync {
		return writeComplete, s.startWriteback(g)
	}
	if err := r.seg.file.SyncData(); err != nil {
		return writeComplete, fmt.Errorf("sync log segment %s: %w", r.seg.name, err)
	}
	return writeComplete, nil
}

// appendPadding adds the padding to a group's buffer.
func (g *group) appendPadding() { g.buffer.buf = appendZeros(g.buffer.buf, g.size-len(g.buffer.buf)) }

// writebackBytes of unsynced writes stay in the page cache before the leader starts their
// writeback.
const writebackBytes = 256 << 10

// startWriteback starts the writeback of groups without a sync once writebackBytes of them are in
// the cache: the sync of the closed segment finds it done, and a later commit does not wait for all
// of it. An error counts as one of a sync: the system may not report it again.
func (s *syncer) startWriteback(g *group) error {
	r := g.buffer
	from := max(s.writebackTo, g.durableBefore, r.seg.start())
	// The next record begins in the last page, which is written again.
	to := min(g.end, r.start+LSN(len(r.buf))) / pageUnit * pageUnit
	if to < from+writebackBytes {
		return nil
	}
	s.writebackTo = to
	first := LSN(r.seg.number * uint64(r.seg.size))
	if err := r.seg.file.StartWriteBack(int64(from-first), int64(to-from)); err != nil {
		return fmt.Errorf("write log segment %s at %d: %w", r.seg.name, from-first, err)
	}
	return nil
}

// offset is the buffer's first byte in its segment's file.
func (r *writeBuffer) offset() int64 { return int64(r.start - LSN(r.seg.number*uint64(r.seg.size))) }

func (r *writeBuffer) writeErr(cause error) error {
	return fmt.Errorf("write log segment %s at %d: %w", r.seg.name, r.offset(), cause)
}

// truncate cuts a buffer that was written in part, or to an unknown extent, out of the file with
// all bytes behind it, and says whether their commits are certainly not in the log. After a failure
// the log changes the file in no other way.
func (r *writeBuffer) truncate() bool {
	return r.seg.file.Truncate(r.offset()) == nil && r.seg.file.Sync() == nil
}

// sealRecords completes each record in r with the fields that are known only when it is written.
func sealRecords(r *writeBuffer, synced LSN) {
	for off := 0; off < len(r.buf); {
		if left := int(r.seg.block - (int64(r.start)+int64(off))%r.seg.block); left < recHeader {
			off += left
			continue
		}
		off += sealRecord(r.buf[off:], synced)
	}
}

// writeHint writes the durability hint, without a sync: everything before synced is durable. Only
// the leader calls it, without mu.
func (s *syncer) writeHint(synced LSN) error {
	putHint(s.hintBuf[:], s.segment.salt, synced)
	if err := vfs.WriteFull(s.segment.file, s.hintBuf[:], hintAt); err != nil {
		return fmt.Errorf("write hint of log segment %s: %w", s.segment.name, err)
	}
	s.hintedLSN = synced
	return nil
}
