package pager

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"
)

func putU64(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

// A Capture is the content of one checkpoint: the pages of one committed state that the file does
// not hold.
type Capture struct {
	Epoch   Epoch
	Pages   uint64 // page count
	FreeDir Ref
	// Freed are pages of the free map that the last durable state uses and this one does not.
	Freed []Ref
	// Dirty are the tree pages, in order. Their frames, or their deltas with the bases, must stay
	// until the pages are written.
	Dirty []Pgid
	// Deltas is the memory of their deltas. It must stay as long as a snapshot that began before
	// the pages are durable.
	Deltas     Frames
	images     map[Pgid][]byte
	deadRanges []pageRange
}

// CaptureState captures the newest committed state for a checkpoint with this number. Later commits
// change no captured page. Writer lock; it takes O(changed pages).
func (p *Pager) CaptureState(epoch Epoch) (*Capture, error) {
	// Reserve the free map first, so that a full disk fails the capture before any change.
	n := p.Alloc.freeMapPages(0)
	if err := p.Alloc.reserve(n, false, ForCheckpoint); err != nil {
		return nil, err
	}
	if err := p.Alloc.flushFreeLists(); err != nil {
		return nil, err
	}
	p.Alloc.space.rewind()
	p.Alloc.Holes.trimTail()
	for _, g := range p.Alloc.space.groups {
		g.again = nil
	}
	images, freed, err := p.Alloc.captureFreeMap(epoch)
	if err != nil {
		return nil, err
	}
	p.end.Store(p.Alloc.space.end)
	c := &Capture{Epoch: epoch, Pages: p.Alloc.space.end, FreeDir: p.Alloc.freeDir()}
	c.Freed, c.images = freed, images
	c.Dirty = p.Alloc.dirtyPages()
	if p.mapped {
		c.deadRanges = p.Alloc.space.deadRanges()
	}
	p.Pool.captured = epoch
	p.Alloc.reserved.captured()
	c.Deltas, p.Pool.deltas = p.Pool.deltas.frames, deltaArena{}
	return c, nil
}

// stagingBytes is the size of one write of a checkpoint: large and in order, so that log writes can
// run in between without seeks.
const stagingBytes = 512 << 10

// The sizes between two waits of a checkpoint for the disk: a concurrent commit waits longer by one
// such write. With 128 KiB, p99 of commits during a checkpoint is two to three times that of an
// idle store on a virtual disk that takes 100 us for a commit (row pause-checkpoint of cmd/bench).
// Larger sizes make checkpoints shorter and commits slower.
const (
	pacedChunk = 128 << 10
	fastChunk  = 1 << 20
)

// CheckpointObserver represents the commits that run during a checkpoint.
type CheckpointObserver interface {
	// Throttle reports whether commits matter more than an early end, when that share of the pages
	// is written.
	Throttle(written float64) bool
	// PagesWritten gets the pages that readers can read from the file from now on: their frames can
	// be reclaimed. Some have no frame.
	PagesWritten(ids []Pgid)
	// Yield is called before each page, so that the checkpoint goroutine can help commits between
	// two page copies.
	Yield()
}

// flusher writes pages of the buffer pool to the file, for a checkpoint or early. A checkpoint and
// WriteEarly may run at the same time.
type flusher struct {
	*mainFile
	pool     *BufferPool
	spilling []byte // reused buffer of WriteEarly
}

// Write writes the captured pages into their free space and syncs the file. It takes no lock.
// observer is nil if there are no concurrent commits.
//
// Crash order: no page of a durable state is overwritten, so a crash at any point leaves the state
// before. Write-back runs between the writes: if the final sync had to write all pages, every
// concurrent commit would wait for it.
func (w *flusher) Write(c *Capture, observer CheckpointObserver) (err error) {
	defer func() {
		if err != nil {
			w.invalidateVerified()
		}
	}()
	if observer != nil && len(c.Deltas) == 0 {
		w.dropFromPageCache(c.deadRanges)
	}
	ids := make([]Pgid, 0, len(c.Dirty)+len(c.images))
	ids = append(ids, c.Dirty...)
	for id := range c.images {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	buf := w.staging(nil, len(ids))
	yield := func() {}
	if observer != nil {
		yield = observer.Yield
	}
	for at, synced := 0, 0; at < len(ids); { // counts of written pages, and of those written back
		n, paced := fastChunk, observer != nil && observer.Throttle(float64(at)/float64(len(ids)))
		if paced {
			n = pacedChunk
		}
		end := min(at+max(n/w.pageSize, 1), len(ids))
		part := ids[at:end]
		if err := w.writePages(part, c.images, buf, yield); err != nil {
			return err
		}
		switch {
		case observer == nil:
		case paced: // the disk is idle for commits until the next part is copied
			err, synced = w.writeBack(ids[synced:end]), end
		default: // write-back overlaps the copy of the next part
			err, synced = errors.Join(w.startWriteBack(w.byteRange(part)), w.writeBack(ids[synced:at])), at
		}
		if err != nil {
			return err
		}
		if at = end; observer != nil {
			observer.PagesWritten(part)
		}
	}
	if observer != nil && len(c.Deltas) > 0 { // The bases of deltas have been read.
		w.dropFromPageCache(c.deadRanges)
	}
	// A full sync, not one of the data alone: the file may have grown, in this session or in one
	// that a crash ended, and its size must be durable before a meta page counts on it (R5).
	return w.sync("the pages", func() error { return w.file.Sync() })
}

// invalidateVerified makes the next read of each page verify it: after a failure the page cache may
// drop written pages, so that the file holds their previous content. This can affect any page: of
// this checkpoint, of a value, or spilled by a transaction.
func (f *mainFile) invalidateVerified() {
	f.verifyGeneration.Add(1) // first: a concurrent verification then undoes its result
	f.verified.clear()        // before accessed: a page that is not accessed is checked against verified
	f.accessed.clear()
}

// markTrusted marks a page that the pager wrote itself as verified, unless a sync has failed. A
// later failure undoes it: see invalidateVerified. No page is trusted after that.
func (f *mainFile) markTrusted(id Pgid) {
	if f.mapped && f.verifyGeneration.Load() == 0 {
		f.verified.add(id)
		f.recheckGeneration(id, 0)
	}
}

// recheckGeneration follows the verification of a page that began in this generation, and undoes
// its result if a sync has failed since.
func (f *mainFile) recheckGeneration(id Pgid, generation uint64) {
	if f.verifyGeneration.Load() != generation {
		f.verified.remove(id)
		f.accessed.remove(id)
	}
}

// staging returns a buffer for a number of pages, the earlier one if it suffices.
func (w *flusher) staging(earlier []byte, pages int) []byte {
	if size := min(stagingBytes, max(pages, 1)*w.pageSize); cap(earlier) < size {
		return make([]byte, 0, size)
	}
	return earlier[:0]
}

// writePages writes pages, one at least and in order, in runs of at most the size of buf, and calls
// yield before each. The frames stay unchanged because readers use them: checksums are set in the
// copy.
func (w *flusher) writePages(ids []Pgid, images map[Pgid][]byte, buf []byte, yield func()) error {
	first := Pgid(0)
	flush := func() error {
		err := w.writeAt(buf, int64(first)*int64(w.pageSize))
		if err == nil {
			w.written(first, len(buf)/w.pageSize)
		}
		buf = buf[:0]
		return err
	}
	w.readBases(ids)
	for _, id := range ids {
		yield()
		if len(buf) > 0 && (id != first+Pgid(len(buf)/w.pageSize) || len(buf)+w.pageSize > cap(buf)) {
			if err := flush(); err != nil {
				return err
			}
		}
		if len(buf) == 0 {
			first = id
		}
		at := len(buf)
		buf = buf[:at+w.pageSize]
		if err := w.stage(buf[at:], id, images[id]); err != nil {
			return err
		}
		SetChecksum(buf[at:], w.salt)
	}
	return flush()
}

// stage copies a page to b, from image, or, if that is nil, from its frame or its delta.
func (w *flusher) stage(b []byte, id Pgid, image []byte) error {
	if image == nil {
		s := w.pool.table.peek(id)
		f := atomic.LoadPointer(&s.dirty)
		if f == nil {
			return w.mergeInto(b, id, atomic.LoadPointer(&s.delta))
		}
		image = unsafe.Slice((*byte)(f), w.pageSize)
	}
	copy(b, image)
	return nil
}

// written records that n pages from first on are in the file. Readers of pages with a delta read
// the file from now on.
func (w *flusher) written(first Pgid, n int) {
	w.pagesWritten.Add(uint64(n))
	for id := first; id < first+Pgid(n); id++ {
		if s := w.pool.table.peek(id); s != nil && atomic.LoadPointer(&s.delta) != nil {
			w.markTrusted(id)
			atomic.StorePointer(&s.delta, nil)
		}
	}
}

// writeBack writes pages that have just been written, in order, from the page cache to the disk,
// and waits.
func (f *mainFile) writeBack(ids []Pgid) error {
	if len(ids) == 0 {
		return nil
	}
	off, n := f.byteRange(ids)
	return f.sync(fmt.Sprintf("pages from %d on", ids[0]), func() error { return f.file.WriteBack(off, n) })
}

// byteRange is the range of the file, in bytes, from the first of these ordered pages to the last.
func (f *mainFile) byteRange(ids []Pgid) (off, n int64) {
	first, last := int64(ids[0]), int64(ids[len(ids)-1])
	return first * int64(f.pageSize), (last - first + 1) * int64(f.pageSize)
}

// startWriteBack starts the write-back of bytes that have just been written, without waiting.
func (f *mainFile) startWriteBack(off, n int64) error {
	if err := f.file.StartWriteBack(off, n); err != nil {
		return fmt.Errorf("write %s at %d: %w", f.name, off, err)
	}
	return nil
}

// WriteEarly writes pages of the open transaction before its commit, into their free space, and
// starts their write-back. There is at least one page; they need not be in order. They do not change
// before it returns. Not concurrent with itself.
func (p *Pager) WriteEarly(ids []Pgid) error {
	slices.Sort(ids)
	p.spilling = p.staging(p.spilling, len(ids))
	if err := p.writePages(ids, nil, p.spilling, func() {}); err != nil {
		return err
	}
	for ids := ids; len(ids) > 0; {
		n := consecutive(ids)
		if err := p.startWriteBack(p.byteRange(ids[:n])); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// FreeFrames frees the frames of pages that WriteEarly has written. Writer lock.
func (p *Pager) FreeFrames(ids []Pgid) {
	for _, id := range ids {
		p.Reader.forget(id)
		p.Pool.freeFrame(p.Pool.table.slot(id))
	}
}

// WriteMeta makes m the newest durable state: it overwrites the older meta page and syncs it. The
// pages that m refers to must be durable. It returns an error instead of writing a page that Open
// would reject. Not concurrent with itself.
func (f *mainFile) WriteMeta(m Meta) error {
	m.Slot = 1 - f.lastMeta.Slot
	m.StoreID, m.PageSize = f.id, f.pageSize
	m.SegmentSize, m.Optional = f.lastMeta.SegmentSize, f.lastMeta.Optional
	if err := f.unsynced(); err != nil {
		return err
	}
	b := appendMeta(nil, &m)
	if _, err := decodeMeta(b, m.Slot); err != nil {
		return fmt.Errorf("meta page %d of %s would be invalid: %w", m.Slot, f.name, err)
	}
	if err := f.writeAt(b, int64(m.Slot)*int64(f.pageSize)); err != nil {
		return err
	}
	name := fmt.Sprintf("meta page %d", m.Slot)
	if err := f.sync(name, func() error { return f.file.SyncData() }); err != nil {
		return err
	}
	f.lastMeta = &m
	return nil
}
