package wal

import (
	"errors"
	"fmt"

	"github.com/ebbkv/ebb/internal/vfs"
)

// defaultKeepFree is the default of Options.KeepFree.
const defaultKeepFree = 16

// firstSegmentBytes is the size of a log's first segment file, unless Options.FirstSegmentBytes
// says otherwise. Most sessions write little, and to fill a whole segment takes longer than all
// else that they do. It is enough to have the next one made while it is written to: see needsSpare.
const firstSegmentBytes = 256 << 10

// segmentFileSize is how large the file of a segment is in a log that has had so many bytes of
// records: small in the beginning, whole segments soon. It is never less than has room for a
// record, and a multiple of a page.
func (o Options) segmentFileSize(used int64) int64 {
	return min(o.SegmentSize, alignUp(max(o.FirstSegmentBytes, 4*used), pageUnit))
}

// nextFileSize is how large the file of the next segment is. mu is held.
func (l *Log) nextFileSize() int64 {
	return l.opts.segmentFileSize(l.recordBytes + int64(l.pos-l.live[len(l.live)-1].start()))
}

// A new segment is filled with zeros unless the group written last was large: more than this part
// of a segment. To commit the place of its blocks costs each sync a write of metadata at least, and
// with a journal several; to fill the segment costs one more write of all bytes, in few pieces and
// ahead of time. Who does not sync gains little by it.
const (
	largeGroup         = 8
	largeUnsyncedGroup = 64
)

// isLarge says that a segment of this size need not be filled for groups like this one.
func (g *group) isLarge(segmentSize int64) bool {
	if g.sync {
		return int64(g.size) > segmentSize/largeGroup
	}
	return int64(g.size) > segmentSize/largeUnsyncedGroup
}

// zeroChunk is how much of a new segment is written at once: the disk is done with it before more
// is written, so that a commit beside it waits a fraction of a millisecond, not several.
const zeroChunk = 256 << 10

// zeroPiece is how much of that one call writes. A file system may keep what was written at once as
// one piece of its cache, and go through all of it for each small write there later.
const zeroPiece = 32 << 10

// Prepare makes sure that the next segment is there, so that Rotate, or an Append that fills the
// current one, need not make it. It is for who is about to give space back, so SetBound does not
// bind it. An error that wraps vfs.ErrNoSpace changes nothing; any other is final.
func (l *Log) Prepare() error {
	l.segmentMu.Lock()
	defer l.segmentMu.Unlock()
	return l.prepare(0)
}

// prepareInBackground is Prepare for a leader that has done its duty, and has given the lead away:
// by a goroutine that ends with it, since that takes milliseconds and the leader's commit is done.
// It stands whatever comes of this: no space is found out again by whoever needs it, and any other
// failure sticks.
//
// Whoever comes late looks again: the log may have moved on to the next segment meanwhile. A spare
// behind that one would be begun for nothing, and after Abandon, which removes segments, it could
// be all that a power cut leaves.
func (l *Log) prepareInBackground() {
	if !l.segmentMu.TryLock() {
		return // somebody is at it
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

// prepare is Prepare, refused if all segments would have more bytes than most; 0: no bound. prep is
// held. As long as there is no spare nobody else moves on to a next segment, so its number stays
// right without mu.
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

// checkIdentity gives the error of Options.CheckIdentity.
func (l *Log) checkIdentity() error {
	if l.opts.CheckIdentity == nil {
		return nil
	}
	return l.opts.CheckIdentity()
}

// boundError says that a new segment would be past SetBound. It is ErrBound and vfs.ErrNoSpace.
type boundError struct{ text string }

func (e *boundError) Error() string        { return e.text }
func (e *boundError) Is(target error) bool { return target == ErrBound || target == vfs.ErrNoSpace }

// SetBound refuses new segment files to Append from now on if all of them together would have more
// bytes, as a full disk would; 0: no bound.
func (l *Log) SetBound(bytes int64) { l.bound.Store(bytes) }

// newHeader makes the header of a segment's next life.
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
// If it fails no file is left, or one that Found calls a stranger or a spare.
//
// As a rule it is written through with zeros: later syncs then never have to commit where the
// file's blocks are. While groups are large that costs more than it saves: then its blocks are only
// reserved.
//
// flag is vfs.Excl for a log's first segment. A later one may find a file that an attempt without
// space left behind.
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
			err = file.WriteBack(begun, off-begun) // Commits that come meanwhile would wait for all of it otherwise.
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

// probeDirect writes the header again, directly. A system that lets a file be opened for that and
// then refuses has to say so here: between groups it is too late, since what was appended meanwhile
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

// recycle gives a retired segment its next life. Order: the new header, with a new salt and no
// note, is durable before the rename, so that under the new name there are never records of the
// former life; the rename is durable before the caller lets a record in. Only prep is held.
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

// Release gives up all segments that are wholly before the given position. When it returns the
// lowest of them is durably no part of the log any more: whatever becomes of renames and unlinks, a
// meta page that starts there finds no complete chain. The others are kept for recycling up to a
// bound, or deleted. An error is final.
func (l *Log) Release(before LSN) error {
	// The seals of what we give up must be written before someone else writes to those files.
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

// recycleOrRemove does Release's work on the files. prep is held.
func (l *Log) recycleOrRemove(dead []*segment) error {
	lowest := dead[0]
	l.mu.Lock()
	number, room := l.live[len(l.live)-1].number+1, l.nextFileSize()
	ready := l.spare != nil
	l.mu.Unlock()
	if !ready && lowest.fileSize >= room {
		if err := l.recycle(lowest, number); err != nil {
			l.free = append(l.free, dead...)    // for Close
			if errors.Is(err, vfs.ErrNoFiles) { // The header is synced: it is retired. Prepare renames it again.
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
		if len(l.free) < l.opts.KeepFree && s.fileSize >= room { // One that is too small by now goes.
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

// invalidate makes a retired segment durably one of no log.
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
