package pager

import (
	"sync/atomic"
	"unsafe"
)

// BufferPool holds the pages that are in memory instead of the file: in frames, or as deltas. It
// also knows the owner of each page. The caller's writer lock guards all fields; functions that
// take no lock say so.
type BufferPool struct {
	*mainFile
	table       pageTable[slot]
	arena       frameArena       // has its own lock
	deltas      deltaArena       // deltas of the present epoch
	deltaEpochs pageTable[Epoch] // epoch of a page's newest delta
	// captured is the epoch of the last capture. The file holds pages up to it, or will before the
	// next capture.
	captured Epoch
}

// Owner is the serial of the transaction that allocated the page; 0 if the page is older than the
// session.
func (bp *BufferPool) Owner(id Pgid) uint64 {
	if s := bp.table.peek(id); s != nil {
		return s.owner
	}
	return 0
}

// SetOwner sets the serial that owns a page of the open transaction; 0 if the page is no longer in
// use.
func (bp *BufferPool) SetOwner(id Pgid, owner uint64) { bp.table.slot(id).owner = owner }

// unwritten reports whether the file may lack a page: the page has a frame or a delta.
func (bp *BufferPool) unwritten(id Pgid) bool {
	s := bp.table.peek(id)
	return s != nil && (atomic.LoadPointer(&s.dirty) != nil || atomic.LoadPointer(&s.delta) != nil)
}

// Written reports whether the file holds a page: it was spilled, written in a leaf run, or is older
// than the last checkpoint.
func (bp *BufferPool) Written(id Pgid) bool { return !bp.unwritten(id) }

// InFrame reports whether a page has a frame.
func (bp *BufferPool) InFrame(id Pgid) bool {
	s := bp.table.peek(id)
	return s != nil && s.dirty != nil
}

// InFrames returns the pages of a capture that have a frame. It takes no lock.
func (bp *BufferPool) InFrames(ids []Pgid) (framed []Pgid) {
	for _, id := range ids {
		if s := bp.table.peek(id); s != nil && atomic.LoadPointer(&s.dirty) != nil {
			framed = append(framed, id)
		}
	}
	return framed
}

func (bp *BufferPool) freeFrame(s *slot) {
	if f := s.dirty; f != nil {
		atomic.StorePointer(&s.dirty, nil)
		bp.arena.release(f)
	}
}

// ReleaseFrame frees the frame of a page that the file holds, if owner still owns the page.
func (bp *BufferPool) ReleaseFrame(id Pgid, owner uint64) {
	if s := bp.table.peek(id); s != nil && s.owner == owner {
		bp.markTrusted(id)
		bp.freeFrame(s)
	}
}

// Frames are frames that belong to no page any more.
type Frames []unsafe.Pointer

// TakeFrames detaches the frames of pages that a checkpoint has written: later reads of these pages
// go to the file. Earlier readers may still use the frames.
func (bp *BufferPool) TakeFrames(ids []Pgid) Frames {
	frames := make(Frames, 0, len(ids))
	for _, id := range ids {
		if s := bp.table.peek(id); s != nil && s.dirty != nil {
			bp.markTrusted(id)
			frames = append(frames, s.dirty)
			atomic.StorePointer(&s.dirty, nil)
		}
	}
	return frames
}

// ReturnFrames frees detached frames once no reader uses them.
func (bp *BufferPool) ReturnFrames(frames Frames) {
	for _, f := range frames {
		bp.arena.release(f)
	}
}

// FrameBytes is the memory of frames: of pages that the file does not hold, or did not hold when an
// open snapshot began.
func (bp *BufferPool) FrameBytes() int64 { return bp.arena.bytes() }

// TrimFrames releases the memory of unused frames to the system if memory is scarce: the page cache
// needs it more. A checkpoint leaves most frames unused.
func (bp *BufferPool) TrimFrames() {
	if bp.Scarce() {
		bp.arena.trim()
	}
}

// Captured is the epoch of the last capture, or of the state of Start before the first one. Writer
// lock.
func (bp *BufferPool) Captured() Epoch { return bp.captured }

// frame returns the frame of a page, a new one with undefined content if it has none.
func (bp *BufferPool) frame(s *slot) ([]byte, error) {
	if s.dirty == nil {
		f, err := bp.arena.alloc()
		if err != nil {
			return nil, err
		}
		atomic.StorePointer(&s.dirty, f)
	}
	return unsafe.Slice((*byte)(s.dirty), bp.pageSize), nil
}
