package pager

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/ebbkv/ebb/internal/invariant"
)

func putU64(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

// A Capture is what one checkpoint writes: the pages of one committed state that the file does not
// hold.
type Capture struct {
	Epoch   Epoch
	Pages   uint64 // page count
	FreeDir Ref
	// Freed are pages of the free map that the last durable state uses and this one does not.
	Freed []Ref
	// Dirty are the tree pages, in order; their frames, or their patches and what these change,
	// must stay until they are written.
	Dirty []Pgid
	// Deltas is the memory of patches among them. It must stay as long as a snapshot that began
	// before they are durable.
	Deltas     Frames
	images     map[Pgid][]byte
	deadRanges []pageRange
}

// CaptureState notes the newest committed state for a checkpoint with this number. Later commits do
// not disturb it: they change no page that it names. Writer lock; the work is O(pages that
// changed).
func (p *Pager) CaptureState(epoch Epoch) (*Capture, error) {
	defer p.Overdraft(p.Overdraft(true))
	defer p.Capturing(p.Capturing(true))
	// Room for the free map first, so that a full disk is met before anything is changed.
	if err := p.keep(p.freeMapReserve(0)); err != nil {
		return nil, err
	}
	if err := p.flushFramed(); err != nil {
		return nil, err
	}
	p.space.rewind()
	p.space.tail()
	images, freed, err := p.captureFreeMap(epoch)
	if err != nil {
		return nil, err
	}
	p.end.Store(p.space.end)
	c := &Capture{Epoch: epoch, Pages: p.space.end, FreeDir: p.freeDir(), Freed: freed, images: images}
	c.Dirty = p.dirtyPages()
	if p.mapped {
		c.deadRanges = p.space.deadRanges()
	}
	p.captured = epoch
	p.leafRunPages.captured()
	p.treeTableReserve = 0
	c.Deltas, p.deltas = p.deltas.frames, deltaArena{}
	return c, nil
}

// Captured is the epoch of the last capture; before the first one, of the state that Start was told
// of. Writer lock.
func (p *Pager) Captured() Epoch { return p.captured }

// stagingBytes is the size of one write of a checkpoint: large and in order, so that the log's
// writes get their turn in between without the disk having to seek.
const stagingBytes = 512 << 10

// How much a checkpoint writes before it waits for the disk: a commit that comes meanwhile waits
// that long more. With 128 KiB, p99 of commits during a checkpoint is two to three times that of an
// idle store on a virtual disk that takes 100 us for a commit (row pause-checkpoint of cmd/bench);
// larger steps make checkpoints shorter and commits wait.
const (
	pacedChunk = 128 << 10
	fastChunk  = 1 << 20
)

// CheckpointObserver stands for the commits that come while a checkpoint is written.
type CheckpointObserver interface {
	// Throttle says, when that share of the pages is written, that commits matter more than an
	// early end.
	Throttle(written float64) bool
	// PagesWritten is told which pages can be read from the file now: their frames can go. Not all
	// of them have one.
	PagesWritten(ids []Pgid)
	// Yield is called before each page: a processor that copies pages may do something for those
	// who commit, and go on.
	Yield()
}

// Write writes the captured pages into the free space that they were given, and syncs the file. No
// lock is needed.
//
// Crash order: nothing that a durable state reaches is touched, so a crash at any point leaves the
// state before. Some of it is on the disk before more is written: if the sync at the end had to
// write all, every commit that came meanwhile would wait behind it. beside is nil if there are
// none.
func (p *Pager) Write(c *Capture, beside CheckpointObserver) (err error) {
	defer func() {
		if err != nil {
			p.invalidateVerified()
		}
	}()
	if beside != nil && len(c.Deltas) == 0 {
		p.dropFromPageCache(c.deadRanges)
	}
	ids := make([]Pgid, 0, len(c.Dirty)+len(c.images))
	ids = append(ids, c.Dirty...)
	for id := range c.images {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	buf := p.staging(nil, len(ids))
	between := func() {}
	if beside != nil {
		between = beside.Yield
	}
	for at, awaited := 0, 0; at < len(ids); { // pages that are written, and that the disk has been waited for
		n, calm := fastChunk, beside != nil && beside.Throttle(float64(at)/float64(len(ids)))
		if calm {
			n = pacedChunk
		}
		end := min(at+max(n/p.pageSize, 1), len(ids))
		part := ids[at:end]
		if err := p.writePages(part, c.images, buf, between); err != nil {
			return err
		}
		switch {
		case beside == nil:
		case calm: // the disk is free for others until the next part is there
			err, awaited = p.writeBack(ids[awaited:end]), end
		default: // it is at work while the next part is copied
			err, awaited = errors.Join(p.startWriteBack(p.reach(part)), p.writeBack(ids[awaited:at])), at
		}
		if err != nil {
			return err
		}
		if at = end; beside != nil {
			beside.PagesWritten(part)
		}
	}
	if beside != nil && len(c.Deltas) > 0 { // What patches change has been read until now.
		p.dropFromPageCache(c.deadRanges)
	}
	// A full sync, not one of the data alone: the file may have grown, in this session or in one
	// that a crash ended, and its size must be durable before a meta page counts on it (R5).
	return p.sync("the pages", func() error { return p.file.Sync() })
}

// invalidateVerified makes the next read of each page prove it: after a failure the page cache may
// forget what was written, and the file hold what was there before. That can be about any page: of
// this checkpoint, of a value, or spilled by a transaction.
func (p *Pager) invalidateVerified() {
	p.verifyGeneration.Add(1) // before all: who is proving a page meanwhile takes back what it notes
	p.verified.clear()        // before met: what is not met is met anew with what verified says
	p.accessed.clear()
}

// markTrusted notes a page as proved that we wrote ourselves, unless a sync has failed: should one
// fail, see distrust. Nothing is proved in this way after that.
func (p *Pager) markTrusted(id Pgid) {
	if p.mapped && p.verifyGeneration.Load() == 0 {
		p.verified.add(id)
		p.recheckGeneration(id, 0)
	}
}

// recheckGeneration is for who has proved a page, with so many doubts when it began, and has noted
// that: it is taken back if there has been another one.
func (p *Pager) recheckGeneration(id Pgid, doubts uint64) {
	if p.verifyGeneration.Load() != doubts {
		p.verified.remove(id)
		p.accessed.remove(id)
	}
}

// staging makes the buffer for a number of pages, of an earlier one if that suffices.
func (p *Pager) staging(earlier []byte, pages int) []byte {
	if size := min(stagingBytes, max(pages, 1)*p.pageSize); cap(earlier) < size {
		return make([]byte, 0, size)
	}
	return earlier[:0]
}

// writePages writes pages, one at least and in order, in runs as long as the staging buffer, and
// calls between before each. The frames stay as they are: a reader may look at them, so checksums
// are set in the copy.
func (p *Pager) writePages(ids []Pgid, images map[Pgid][]byte, buf []byte, between func()) error {
	first := Pgid(0)
	flush := func() error {
		err := p.writeAt(buf, int64(first)*int64(p.pageSize))
		if err == nil {
			p.written(first, len(buf)/p.pageSize)
		}
		buf = buf[:0]
		return err
	}
	for _, id := range ids {
		between()
		if len(buf) > 0 && (id != first+Pgid(len(buf)/p.pageSize) || len(buf)+p.pageSize > cap(buf)) {
			if err := flush(); err != nil {
				return err
			}
		}
		if len(buf) == 0 {
			first = id
		}
		at := len(buf)
		buf = buf[:at+p.pageSize]
		if err := p.stage(buf[at:], id, images[id]); err != nil {
			return err
		}
		SetChecksum(buf[at:], p.salt)
	}
	return flush()
}

// stage copies a page to b, from its image, which is nil if it has none, its frame or its patch.
func (p *Pager) stage(b []byte, id Pgid, image []byte) error {
	if image == nil {
		s := p.table.peek(id)
		f := atomic.LoadPointer(&s.dirty)
		if f == nil {
			return p.mergeInto(b, id, atomic.LoadPointer(&s.delta))
		}
		image = unsafe.Slice((*byte)(f), p.pageSize)
	}
	copy(b, image)
	return nil
}

// written is told that n pages from first on are in the file. Those that had a patch are read there
// from now on.
func (p *Pager) written(first Pgid, n int) {
	p.pagesWritten.Add(uint64(n))
	for id := first; id < first+Pgid(n); id++ {
		if s := p.table.peek(id); s != nil && atomic.LoadPointer(&s.delta) != nil {
			p.markTrusted(id)
			atomic.StorePointer(&s.delta, nil)
		}
	}
}

// writeBack has the disk write pages that were written just before, in order, if there are any, and
// waits for it.
func (p *Pager) writeBack(ids []Pgid) error {
	if len(ids) == 0 {
		return nil
	}
	off, n := p.reach(ids)
	return p.sync(fmt.Sprintf("pages from %d on", ids[0]), func() error { return p.file.WriteBack(off, n) })
}

// reach is the range of the file, in bytes, from the first of these pages to the last: they are in
// order.
func (p *Pager) reach(ids []Pgid) (off, n int64) {
	first, last := int64(ids[0]), int64(ids[len(ids)-1])
	return first * int64(p.pageSize), (last - first + 1) * int64(p.pageSize)
}

// startWriteBack lets the disk begin with bytes that were written just before, and waits for
// nothing.
func (p *Pager) startWriteBack(off, n int64) error {
	if err := p.file.StartWriteBack(off, n); err != nil {
		return fmt.Errorf("write %s at %d: %w", p.name, off, err)
	}
	return nil
}

// Spill writes pages of the open transaction early, into the free space that they were given, lets
// the disk begin with them, and gives their frames back. There is one at least; they need not be in
// order. Writer lock.
func (p *Pager) Spill(ids []Pgid) error {
	slices.Sort(ids)
	if i := slices.IndexFunc(ids, p.IsReusable); invariant.On && i >= 0 {
		invariant.Fail("pager: page %d is spilled over the last durable state", ids[i])
	}
	p.spilling = p.staging(p.spilling, len(ids))
	if err := p.writePages(ids, nil, p.spilling, func() {}); err != nil {
		return err
	}
	for rest := ids; len(rest) > 0; {
		n := consecutive(rest)
		if err := p.startWriteBack(int64(rest[0])*int64(p.pageSize), int64(n)*int64(p.pageSize)); err != nil {
			return err
		}
		rest = rest[n:]
	}
	for _, id := range ids {
		s := p.table.slot(id)
		p.forget(id, s)
		p.freeFrame(s)
	}
	return nil
}

// WriteMeta makes m the newest durable state: it is written over the meta page that does not hold
// the newest one, and synced. What m names must be durable already. A page that no Open would take
// is not written: an error. Not concurrent with itself.
func (p *Pager) WriteMeta(m Meta) error {
	m.Slot = 1 - p.lastMeta.Slot
	m.StoreID, m.PageSize, m.SegmentSize, m.Optional = p.id, p.pageSize, p.lastMeta.SegmentSize, p.lastMeta.Optional
	if err := p.unsynced(); err != nil {
		return err
	}
	b := appendMeta(nil, &m)
	if _, err := decodeMeta(b, m.Slot); err != nil {
		return fmt.Errorf("meta page %d of %s would be no valid one: %w", m.Slot, p.name, err)
	}
	if err := p.writeAt(b, int64(m.Slot)*int64(p.pageSize)); err != nil {
		return err
	}
	if err := p.sync(fmt.Sprintf("meta page %d", m.Slot), func() error { return p.file.SyncData() }); err != nil {
		return err
	}
	p.lastMeta = &m
	return nil
}
