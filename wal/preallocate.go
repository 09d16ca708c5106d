package wal

import (
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/vfs"
)

// firstSegmentBytes is the default of Options.FirstSegmentBytes, the size of a log's first segment
// file. Most sessions write little, and to fill a whole segment takes longer than all their other
// work. It is large enough for the next segment to be prepared meanwhile: see needsSpare.
const firstSegmentBytes = 256 << 10

// A new segment file is filled with zeros unless the last written group was large: so many of its
// size are more than the file takes. Without the fill each sync writes metadata at least, to commit
// the allocation of its blocks, and with a journal several times; the fill costs one more write of
// all bytes, in few pieces and ahead of time. Commits without a sync gain little by it.
const (
	fewGroups         = 8
	fewUnsyncedGroups = 64
)

// fileSize is the file size of a new segment in a log that has had the given bytes of records, and how
// much of it is filled: small at first, whole segments soon. The log triples with each: the spare of
// a small log is filled with zeros for nothing. What is not filled costs no writes, and is larger,
// unless the log has a bound. The file has space for a record at least, and is a multiple of a page.
func (p *segmentPool) fileSize(used int64) (size, fill int64) {
	if size = p.opts.segmentFileSize(2 * used); size >= p.unfilledSize.Load() {
		return size, size
	}
	if p.bound.Load() == 0 {
		size = p.opts.segmentFileSize(8 * used)
	}
	return size, firstRecord
}

// segmentFileSize is the size of a segment file for n bytes, at most that of a segment.
func (o *Options) segmentFileSize(n int64) int64 {
	return min(o.SegmentSize, alignUp(max(o.FirstSegmentBytes, n), pageUnit))
}

// zeroChunk is the number of bytes of a new segment that are filled and written back at once: a
// concurrent commit waits for a fraction of a millisecond, not for several.
const zeroChunk = 256 << 10

// zeroPiece is the size of one write call of a chunk. A file system may keep one write as one piece
// of its cache, and go through all of it for each small write there later.
const zeroPiece = 32 << 10

// prepareInBackground prepares a segment for a leader that has written its groups and resigned the
// lead, in a goroutine that ends with it: that takes milliseconds, and the leader's commit is done.
// It drops the error: the next Append finds the lack of space again, and any other failure is
// sticky.
//
// The goroutine checks needsSpare again, unless early is set: the log may have moved to the next segment
// meanwhile. A spare behind that one would be early, and after RestartInPlace, which removes segments, it
// could be all that a power cut leaves.
func (p *segmentPool) prepareInBackground(early bool) {
	if !p.mu.TryLock() {
		return // another goroutine prepares or retires segments
	}
	prepare := func() {
		if early || p.appender.needsSpare() {
			_ = p.prepare(p.bound.Load())
		}
		p.mu.Unlock()
	}
	if p.opts.Inline {
		prepare()
		return
	}
	p.preparing.Go(prepare)
}

func (p *segmentPool) prepareUnbound() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.prepare(0)
}

// prepareWithinBound is prepareUnbound for an Append, which SetBound binds.
func (p *segmentPool) prepareWithinBound() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := p.bound.Load()
	err := p.prepare(most)
	if most == 0 && p.opts.FreeSpace != nil && errors.Is(err, vfs.ErrNoSpace) && p.opts.FreeSpace() {
		err = p.prepare(most)
	}
	return err
}

// prepare prepares the next segment unless there is one. It refuses if all segment files would have
// more bytes than most; 0: no bound. mu is held.
func (p *segmentPool) prepare(most int64) error {
	if err := p.state.err(); err != nil {
		return err
	}
	number, used, ready := p.appender.nextSegment()
	if ready {
		return nil
	}
	size, fill := p.fileSize(used)
	var seg *segment
	err := p.checkIdentity()
	switch n := len(p.free); {
	case err != nil:
	case n > 0:
		seg = p.free[n-1]
		p.free[n-1] = nil
		p.free = p.free[:n-1]
		if err = p.recycle(seg, number); err != nil {
			p.free = append(p.free, seg) // for Close, or the next try
		}
		if errors.Is(err, vfs.ErrNoFiles) {
			return err
		}
	case most > 0 && p.bytes.Load()+size > most:
		return &boundError{fmt.Sprintf("the log has %d bytes and needs %d more, of %d that it may have",
			p.bytes.Load(), size, most)}
	default:
		seg, err = p.newSegment(number, size, fill, 0)
		if small := p.opts.segmentFileSize(2 * used); errors.Is(err, vfs.ErrNoSpace) && size > small {
			seg, err = p.newSegment(number, small, fill, 0)
		}
		if errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, vfs.ErrNoFiles) {
			return err
		}
	}
	if err != nil {
		p.state.fail(err)
		return fmt.Errorf("%w: %w", ErrFailed, err)
	}
	p.appender.setSpare(seg)
	return nil
}

var errSegmentNumbers = errors.New("all segment numbers are used: copy the store into a new one")

// checkIdentity calls Options.CheckIdentity.
func (p *segmentPool) checkIdentity() error {
	if p.opts.CheckIdentity == nil {
		return nil
	}
	return p.opts.CheckIdentity()
}

// boundError is the error of a new segment past SetBound. It is ErrBound and vfs.ErrNoSpace.
type boundError struct{ text string }

func (e *boundError) Error() string        { return e.text }
func (e *boundError) Is(target error) bool { return target == ErrBound || target == vfs.ErrNoSpace }

// newHeader makes the header for a segment's next use.
func (p *segmentPool) newHeader(number uint64, block int64) segmentHeader {
	return segmentHeader{
		block: block, storeID: p.opts.StoreID, number: number, salt: p.opts.Rand(),
		size: p.opts.SegmentSize, follows: p.follows.Load(),
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
func (p *segmentPool) newSegment(
	number uint64, size, fill int64, flag vfs.Flag,
) (_ *segment, err error) {
	if number > MaxSegment {
		return nil, errSegmentNumbers
	}
	name := p.opts.name(number)
	file, err := p.opts.FS.Open(name, vfs.Write|vfs.Create|flag)
	if err != nil {
		return nil, fmt.Errorf("create log segment: %w", err)
	}
	seg := &segment{fileSize: size, file: file, name: name}
	p.bytes.Add(size)
	defer func() {
		if err != nil {
			_ = seg.close()
			_ = p.opts.FS.Remove(name)
			p.bytes.Add(-size)
		}
	}()
	block := int64(pageUnit)
	if !p.opts.NoDirect {
		past, err := p.opts.FS.Open(name, vfs.Write|vfs.Direct)
		switch {
		case err == nil:
			seg.directFile, block = past, int64(past.BlockSize())
		case !errors.Is(err, vfs.ErrNoDirect):
			return nil, fmt.Errorf("open log segment for direct writes: %w", err)
		}
	}
	seg.segmentHeader = p.newHeader(number, block)
	if fill < size {
		if err := file.Grow(size); err != nil {
			return nil, fmt.Errorf("reserve log segment %s: %w", name, err)
		}
	}
	zeros := vfs.AlignedBuffer(int(min(zeroPiece, fill)))
	putSegmentHeader(zeros, seg.segmentHeader)
	for off := int64(0); off < fill; off += int64(len(zeros)) {
		if off > 0 && off%zeroChunk == 0 { // in pieces: a concurrent commit waits for one of them
			err = file.WriteBack(off-zeroChunk, zeroChunk)
		}
		if err == nil {
			err = vfs.WriteFull(file, zeros[:min(int64(len(zeros)), fill-off)], off)
		}
		if err != nil {
			return nil, fmt.Errorf("fill log segment %s: %w", name, err)
		}
		clear(zeros[:segHeadLen])
	}
	if err := file.Sync(); err != nil {
		return nil, fmt.Errorf("sync new log segment %s: %w", name, err)
	}
	if flag == vfs.Excl {
		if err := p.probeDirect(seg, zeros[:block]); err != nil {
			return nil, err
		}
	}
	if err := p.opts.FS.SyncDir(p.opts.dir()); err != nil {
		return nil, fmt.Errorf("sync directory of new log segment %s: %w", name, err)
	}
	return seg, nil
}

// probeDirect writes the header of the log's first segment again, directly. A system that opens a
// file for direct writes and then refuses them must do so here. Between groups it is too late: the
// records appended meanwhile may begin in the middle of a page. b is a block of zeros.
func (p *segmentPool) probeDirect(s *segment, b []byte) error {
	if s.directFile == nil {
		return nil
	}
	putSegmentHeader(b, s.segmentHeader)
	err := vfs.WriteFull(s.directFile, b, 0)
	if p.opts.NoDirect = errors.Is(err, vfs.ErrNoDirect); p.opts.NoDirect {
		err = s.directFile.Close()
		s.directFile = nil
	}
	if err != nil {
		return fmt.Errorf("write header of new log segment %s: %w", s.name, err)
	}
	return nil
}
