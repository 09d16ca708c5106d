package wal

import (
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/vfs"
)

// defaultKeepFree is the default of Options.KeepFree.
const defaultKeepFree = 16

// firstSegmentBytes is the default of Options.FirstSegmentBytes, the size of a log's first segment
// file. Most sessions write little, and to fill a whole segment takes longer than all their other
// work. It is large enough for the next segment to be prepared meanwhile: see needsSpare.
const firstSegmentBytes = 256 << 10

// segmentFileSize is the file size of a new segment in a log that has had the given bytes of
// records: small at first, whole segments soon. It has space for a record at least, and is a
// multiple of a page.
func (o Options) segmentFileSize(used int64) int64 {
	return min(o.SegmentSize, alignUp(max(o.FirstSegmentBytes, 4*used), pageUnit))
}

// nextFileSize is the file size of the next segment. mu is held.
func (l *Log) nextFileSize() int64 {
	return l.opts.segmentFileSize(l.recordBytes + int64(l.pos-l.live[len(l.live)-1].start()))
}

// A new segment is filled with zeros unless the last written group was large: more than this
// fraction of a segment. Without the fill each sync writes metadata at least, to commit the
// allocation of its blocks, and with a journal several times; the fill costs one more write of all
// bytes, in few pieces and ahead of time. Commits without a sync gain little by it.
const (
	largeGroup         = 8
	largeUnsyncedGroup = 64
)

// isLarge says that a segment of this size need not be filled for groups of this size.
func (g *group) isLarge(segmentSize int64) bool {
	if g.sync {
		return int64(g.size) > segmentSize/largeGroup
	}
	return int64(g.size) > segmentSize/largeUnsyncedGroup
}

// zeroChunk is the number of bytes of a new segment that are filled and written back at once: a
// concurrent commit waits for a fraction of a millisecond, not for several.
const zeroChunk = 256 << 10

// zeroPiece is the size of one write call of a chunk. A file system may keep one write as one piece
// of its cache, and go through all of it for each small write there later.
const zeroPiece = 32 << 10

// Prepare prepares the next segment, so that Rotate, or an Append that fills the current one, need
// not. The caller is about to free space, so SetBound does not bind Prepare. An error that wraps
// vfs.ErrNoSpace changes nothing; any other is final.
func (l *Log) Prepare() error {
	l.segmentMu.Lock()
	defer l.segmentMu.Unlock()
	return l.prepare(0)
}

// prepareInBackground calls Prepare for a leader that has written its groups and resigned the lead,
// in a goroutine that ends with it: Prepare takes milliseconds, and the leader's commit is done. It
// drops the error: the next Append finds the lack of space again, and any other failure is sticky.
//
// The goroutine checks needsSpare again: the log may have moved to the next segment meanwhile. A
// spare behind that one would be early, and after Abandon, which removes segments, it could be all
// that a power cut leaves.
func (l *Log) prepareInBackground() {
	if !l.segmentMu.TryLock() {
		return // another goroutine prepares or retires segments
	}
	prepare := func() {
		l.mu.Lock()
		due := l.needsSpare()
		l.mu.Unlock()
		if due {
			_ = l.prepare(l.bound.Load())
		}
		l.segmentMu.Unlock()
	}
	if l.opts.Inline {
		prepare()
		return
	}
	l.preparing.Go(prepare)
}

// prepareWithinBound is Prepare for an Append, which SetBound binds.
func (l *Log) prepareWithinBound() error {
	l.segmentMu.Lock()
	defer l.segmentMu.Unlock()
	most := l.bound.Load()
	err := l.prepare(most)
	if most == 0 && l.opts.FreeSpace != nil && errors.Is(err, vfs.ErrNoSpace) && l.opts.FreeSpace() {
		err = l.prepare(most)
	}
	return err
}

// prepare is Prepare, refused if all segments would have more bytes than most; 0: no bound.
// segmentMu is held. While there is no spare no other goroutine moves to a next segment, so its
// number stays right without mu.
func (l *Log) prepare(most int64) error {
	l.mu.Lock()
	err := l.stickyErr()
	ready := l.spare != nil
	number, room := l.live[len(l.live)-1].number+1, l.nextFileSize()
	l.mu.Unlock()
	if err != nil || ready {
		return err
	}
	var seg *segment
	err = l.checkIdentity()
	switch n := len(l.free); {
	case err != nil:
	case n > 0:
		seg = l.free[n-1]
		l.free[n-1] = nil
		l.free = l.free[:n-1]
		if err = l.recycle(seg, number); err != nil {
			l.free = append(l.free, seg) // for Close, or the next try
		}
		if errors.Is(err, vfs.ErrNoFiles) {
			return err
		}
	case most > 0 && l.Bytes()+room > most:
		return &boundError{
			fmt.Sprintf("the log has %d bytes and needs %d more, of %d that it may have", l.Bytes(), room, most),
		}
	default:
		seg, err = l.newSegment(number, room, 0)
		if errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, vfs.ErrNoFiles) {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.fail(err)
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	l.spare = seg
	return nil
}

var errSegmentNumbers = errors.New("all segment numbers are used: copy the store into a new one")

// checkIdentity calls Options.CheckIdentity.
func (l *Log) checkIdentity() error {
	if l.opts.CheckIdentity == nil {
		return nil
	}
	return l.opts.CheckIdentity()
}

// boundError is the error of a new segment past SetBound. It is ErrBound and vfs.ErrNoSpace.
type boundError struct{ text string }

func (e *boundError) Error() string        { return e.text }
func (e *boundError) Is(target error) bool { return target == ErrBound || target == vfs.ErrNoSpace }

// SetBound makes Append refuse new segment files from now on if all of them together would have
// more bytes, as a full disk would; 0: no bound.
func (l *Log) SetBound(bytes int64) { l.bound.Store(bytes) }

// newHeader makes the header for a segment's next use.
func (l *Log) newHeader(number uint64, block int64) segmentHeader {
	return segmentHeader{
		block:   block,
		storeID: l.opts.StoreID,
		number:  number,
		salt:    l.opts.Rand(),
		size:    l.opts.SegmentSize,
		follows: l.follows.Load(),
	}
}

// newSegment makes a segment file, which reads as zeros behind its header. It is durable on return.
// If it fails no file remains, or one that Scan reports as foreign or as a spare.
//
// As a rule it fills the file with zeros: later syncs then never commit the allocation of its
// blocks. While groups are large that costs more than it saves, and newSegment only reserves the
// blocks.
//
// flag is vfs.Excl for a log's first segment. A later one may find a file that an attempt on a full
// disk left behind.
func (l *Log) newSegment(number uint64, room int64, flag vfs.Flag) (_ *segment, err error) {
	if number > MaxSegment {
		return nil, errSegmentNumbers
	}
	name := l.opts.name(number)
	file, err := l.opts.FS.Open(name, vfs.Write|vfs.Create|flag)
	if err != nil {
		return nil, fmt.Errorf("create log segment: %w", err)
	}
	seg := &segment{fileSize: room, file: file, name: name}
	l.bytes.Add(room)
	defer func() {
		if err != nil {
			_ = seg.close()
			_ = l.opts.FS.Remove(name)
			l.bytes.Add(-room)
		}
	}()
	block := int64(pageUnit)
	if !l.opts.NoDirect {
		past, err := l.opts.FS.Open(name, vfs.Write|vfs.Direct)
		switch {
		case err == nil:
			seg.directFile, block = past, int64(past.BlockSize())
		case !errors.Is(err, vfs.ErrNoDirect):
			return nil, fmt.Errorf("open log segment for direct writes: %w", err)
		}
	}
	seg.segmentHeader = l.newHeader(number, block)
	fill := room
	if l.skipZeroFill.Load() {
		if err := file.Grow(room); err != nil {
			return nil, fmt.Errorf("reserve log segment %s: %w", name, err)
		}
		fill = firstRecord
	}
	zeros := vfs.AlignedBuffer(int(min(zeroPiece, fill)))
	putSegmentHeader(zeros, seg.segmentHeader)
	for off, begun := int64(0), int64(0); off < fill; {
		n := min(int64(len(zeros)), fill-off)
		err := vfs.WriteFull(file, zeros[:n], off)
		if off += n; err == nil && (off-begun >= zeroChunk || off == fill) {
			err = file.WriteBack(begun, off-begun) // in pieces: a concurrent commit waits for one of them
			begun = off
		}
		if err != nil {
			return nil, fmt.Errorf("fill log segment %s: %w", name, err)
		}
		clear(zeros[:segHeadLen])
	}
	if err := seg.probeDirect(zeros[:block]); err != nil {
		return nil, err
	}
	if err := file.Sync(); err != nil {
		return nil, fmt.Errorf("sync new log segment %s: %w", name, err)
	}
	if err := l.opts.FS.SyncDir(l.opts.dir()); err != nil {
		return nil, fmt.Errorf("sync directory of new log segment %s: %w", name, err)
	}
	return seg, nil
}

// probeDirect writes the header again, directly. A system that opens a file for direct writes and
// then refuses them must do so here. Between groups it is too late: the records appended meanwhile
// may begin in the middle of a page. b is a block of zeros.
func (s *segment) probeDirect(b []byte) error {
	if s.directFile == nil {
		return nil
	}
	putSegmentHeader(b, s.segmentHeader)
	err := vfs.WriteFull(s.directFile, b, 0)
	if errors.Is(err, vfs.ErrNoDirect) {
		err = s.directFile.Close()
		s.directFile = nil
	}
	if err != nil {
		return fmt.Errorf("write header of new log segment %s: %w", s.name, err)
	}
	return nil
}

// recycle gives a retired segment's file to a new segment. Order: the new header, with a new salt
// and no hint, is durable before the rename, so that under the new name there are never records of
// the previous use. The rename is durable before the caller admits a record. Only segmentMu is
// held.
func (l *Log) recycle(seg *segment, number uint64) error {
	if number > MaxSegment {
		return errSegmentNumbers
	}
	h := l.newHeader(number, seg.block)
	var b [firstRecord]byte
	putSegmentHeader(b[:], h)
	if err := vfs.WriteFull(seg.file, b[:], 0); err != nil {
		return fmt.Errorf("write header of recycled log segment %s: %w", seg.name, err)
	}
	if err := seg.file.Sync(); err != nil {
		return fmt.Errorf("sync header of recycled log segment %s: %w", seg.name, err)
	}
	name := l.opts.name(number)
	if err := l.opts.FS.Rename(seg.name, name); err != nil {
		return fmt.Errorf("rename recycled log segment: %w", err)
	}
	seg.segmentHeader, seg.name = h, name
	if err := l.opts.FS.SyncDir(l.opts.dir()); err != nil {
		return fmt.Errorf("sync directory of recycled log segment %s: %w", name, err)
	}
	return nil
}

// Release retires all segments that are wholly before the given position. When it returns the
// lowest of them is durably invalid: whatever a crash does to renames and unlinks, a meta page that
// starts there finds no complete chain. Release keeps the others for recycling up to KeepFree, and
// deletes the rest. An error is final.
func (l *Log) Release(before LSN) error {
	// The leader must have written the end records of the retired segments before their files are
	// written to again.
	if err := l.Wait(min(before, l.End()), true); err != nil {
		return err
	}
	l.segmentMu.Lock()
	defer l.segmentMu.Unlock()
	number, _ := l.opts.at(before)

	l.mu.Lock()
	if err := l.stickyErr(); err != nil {
		l.mu.Unlock()
		return err
	}
	n := 0
	for n < len(l.live)-1 && l.live[n].number < number {
		n++
	}
	dead := append([]*segment(nil), l.live[:n]...)
	kept := copy(l.live, l.live[n:])
	clear(l.live[kept:])
	l.live = l.live[:kept]
	l.mu.Unlock()
	if n == 0 {
		return nil
	}
	err := l.checkIdentity()
	if err != nil {
		l.free = append(l.free, dead...) // for Close
	} else {
		err = l.recycleOrRemove(dead)
	}
	if err != nil {
		l.mu.Lock()
		l.fail(err)
		l.mu.Unlock()
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	return nil
}

// recycleOrRemove does Release's work on the files. segmentMu is held.
func (l *Log) recycleOrRemove(dead []*segment) error {
	lowest := dead[0]
	l.mu.Lock()
	number, room := l.live[len(l.live)-1].number+1, l.nextFileSize()
	ready := l.spare != nil
	l.mu.Unlock()
	if !ready && lowest.fileSize >= room {
		if err := l.recycle(lowest, number); err != nil {
			l.free = append(l.free, dead...)    // for Close
			if errors.Is(err, vfs.ErrNoFiles) { // its header is durable: Prepare renames it again
				last := len(l.free) - len(dead)
				l.free[last], l.free[len(l.free)-1] = l.free[len(l.free)-1], l.free[last]
				return nil
			}
			return err
		}
		l.mu.Lock()
		l.spare = lowest
		l.mu.Unlock()
		dead = dead[1:]
	} else if err := lowest.invalidate(); err != nil {
		l.free = append(l.free, dead...)
		return err
	}
	for i, s := range dead {
		if len(l.free) < l.opts.KeepFree && s.fileSize >= room { // smaller files are removed
			l.free = append(l.free, s)
			continue
		}
		// Nothing relies on the file being gone, so the directory is not synced.
		if err := errors.Join(s.close(), l.opts.FS.Remove(s.name)); err != nil {
			l.free = append(l.free, dead[i+1:]...)
			return fmt.Errorf("remove log segment %s: %w", s.name, err)
		}
		l.bytes.Add(-s.fileSize)
	}
	return nil
}

// invalidate makes a retired segment's header durably invalid for every log.
func (s *segment) invalidate() error {
	var b [hintAt]byte
	if err := vfs.WriteFull(s.file, b[:], 0); err != nil {
		return fmt.Errorf("write header of retired log segment %s: %w", s.name, err)
	}
	if err := s.file.SyncData(); err != nil {
		return fmt.Errorf("sync header of retired log segment %s: %w", s.name, err)
	}
	return nil
}
