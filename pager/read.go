package pager

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/ebbkv/ebb/internal/invariant"
	"github.com/ebbkv/ebb/internal/prefetch"
)

// Page returns the page at ref for a snapshot whose newest checkpoint is base: a page of a later
// epoch has a frame or a delta, unless the file holds it already. The bytes are read-only and valid
// while the snapshot is held.
//
// The first read from the file verifies checksum, own number, the epoch of the reference and
// CheckPage; an invalid page is a *badfile.Error.
func (p *Pager) Page(ref Ref, base Epoch) ([]byte, error) {
	return p.Snapshot(ref, base, newest)
}

// newest is later than all versions.
const newest = math.MaxUint64

// Snapshot is Page for a reader of a version: it returns the page without later in-place changes.
func (p *Pager) Snapshot(ref Ref, base Epoch, version uint64) ([]byte, error) {
	if ref.Epoch > base {
		if s := p.table.peek(ref.Pgid); s != nil {
			invariant.Pause()
			if f := atomic.LoadPointer(&s.dirty); f != nil {
				invariant.Pause()
				if s.changed.Load() > version {
					return p.undo.pageBefore(ref.Pgid, s, version)
				}
				return unsafe.Slice((*byte)(f), p.pageSize), nil
			}
			if f := atomic.LoadPointer(&s.delta); f != nil {
				return p.mergedPage(ref, f, base)
			}
		}
	}
	return p.fromFile(ref)
}

// fromFile returns a page that has no frame and no delta.
func (p *Pager) fromFile(ref Ref) ([]byte, error) {
	if p.mapped && p.accessed.has(ref.Pgid) {
		b, err := p.inFile(ref.Pgid, p.pageSize)
		if err == nil && epochOf(b) != ref.Epoch {
			return nil, p.otherEpoch(ref, b)
		}
		return b, err
	}
	return p.firstRead(ref)
}

// Peek returns the address of the first n bytes of a page, even if the page has not been read; nil
// if it is neither in memory nor mapped. It verifies nothing, and reading the bytes may fault.
func (p *Pager) Peek(ref Ref, base Epoch, n int) []byte {
	if ref.Epoch > base {
		if s := p.table.peek(ref.Pgid); s != nil {
			if f := atomic.LoadPointer(&s.dirty); f != nil {
				return unsafe.Slice((*byte)(f), n)
			}
			if f := atomic.LoadPointer(&s.delta); f != nil {
				below, _, _ := decodeDelta(f)
				return p.Peek(below, base, n)
			}
		}
	}
	if !p.mapped || p.inBounds(ref, 1) != nil {
		return nil
	}
	b, err := p.inFile(ref.Pgid, n)
	if err != nil {
		return nil
	}
	return b
}

// PrefetchSlot prefetches the slot of a page, if it has one, into the processor's cache.
func (p *Pager) PrefetchSlot(ref Ref) {
	if s := p.table.peek(ref.Pgid); s != nil {
		prefetch.Bytes(unsafe.Slice((*byte)(unsafe.Pointer(s)), slotHotBytes))
	}
}

// firstRead reads a page that is not marked as accessed, or not mapped.
func (p *Pager) firstRead(ref Ref) ([]byte, error) {
	if err := p.inBounds(ref, 1); err != nil {
		return nil, err
	}
	if !p.mapped {
		return p.cached(ref)
	}
	b, err := p.inFile(ref.Pgid, p.pageSize)
	if err != nil {
		return nil, err
	}
	p.readAround(ref.Pgid)
	generation := p.verifyGeneration.Load()
	if !p.verified.has(ref.Pgid) {
		p.pagesRead.Add(1)
		prefetch.Bytes(b) // verify reads all of it
		if err := p.verify(ref, b); err != nil {
			return nil, err
		}
		p.verified.add(ref.Pgid)
	} else if epochOf(b) != ref.Epoch {
		return nil, p.otherEpoch(ref, b)
	}
	p.accessed.add(ref.Pgid)
	p.recheckGeneration(ref.Pgid, generation)
	return b, nil
}

// epochOf returns the epoch in a page header. A verified page does not make each reference to it
// right: each read compares the epoch, as it compares the kind.
func epochOf(b []byte) Epoch { return Epoch(binary.LittleEndian.Uint32(b[offEpoch:])) }

// Cold reports whether a page is in the file only and has not been read through the map. A
// transaction that will change such a page reads it with ReadCold into the buffer of the change:
// pages that are read through the map stay in the memory of the process.
func (p *Pager) Cold(ref Ref, base Epoch) bool {
	s := p.table.peek(ref.Pgid)
	if ref.Epoch > base && s != nil &&
		(atomic.LoadPointer(&s.dirty) != nil || atomic.LoadPointer(&s.delta) != nil) {
		return false
	}
	if p.mapped {
		return !p.accessed.has(ref.Pgid)
	}
	c := p.cache.pages.peek(ref.Pgid)
	return c == nil || atomic.LoadPointer(&c.page) == nil
}

// ReadCold reads a cold page into b, which is a page long, and verifies it as Page does. The page
// is not cold afterwards: a later read, as after a deletion that found no key, uses the map.
func (p *Pager) ReadCold(ref Ref, b []byte) error {
	if err := p.inBounds(ref, 1); err != nil {
		return err
	}
	generation := p.verifyGeneration.Load()
	if err := p.read(ref.Pgid, b); err != nil {
		return err
	}
	if !p.mapped {
		return p.verify(ref, b)
	}
	if !p.verified.has(ref.Pgid) {
		if err := p.verify(ref, b); err != nil {
			return err
		}
		p.verified.add(ref.Pgid)
	} else if epochOf(b) != ref.Epoch {
		return p.otherEpoch(ref, b)
	}
	p.accessed.add(ref.Pgid)
	p.recheckGeneration(ref.Pgid, generation)
	return nil
}

// verify checks a tree page against its checksum and the reference to it.
func (f *mainFile) verify(ref Ref, b []byte) error {
	if err := f.verifyHeader(ref, b); err != nil {
		return err
	}
	if k := ReadHeader(b).Kind; k != KindLeaf && k != KindBranch {
		return f.corrupt(ref.Pgid, "%v page where a tree page belongs", k)
	}
	if f.o.CheckPage == nil {
		return nil
	}
	if err := f.o.CheckPage(b, f.pageSize); err != nil {
		return f.corrupt(ref.Pgid, "%v", err)
	}
	return nil
}

// verifyHeader checks checksum, own number and epoch of a page or a whole extent.
func (f *mainFile) verifyHeader(ref Ref, b []byte) error {
	if !ChecksumMatches(b, f.salt) {
		return f.corrupt(ref.Pgid, "wrong checksum")
	}
	switch h := ReadHeader(b); {
	case h.Pgid != ref.Pgid:
		return f.corrupt(ref.Pgid, "holds page %d: a misdirected write", h.Pgid)
	case h.Epoch != ref.Epoch:
		return f.otherEpoch(ref, b)
	}
	return nil
}

// Verify reads and verifies a page or extent in the file itself, for Check, even if it is marked as
// verified. size < 0 means a page. It skips pages that are only in memory.
func (p *Pager) Verify(ref Ref, base Epoch, size int) error {
	n := uint64(1)
	if size >= 0 {
		n = ExtentPages(size, p.pageSize)
	}
	if err := p.inBounds(ref, n); err != nil {
		return err
	}
	if ref.Epoch > base && p.unwritten(ref.Pgid) {
		return nil
	}
	if _, ok := p.extents[ref.Pgid]; ok {
		return nil
	}
	b := make([]byte, n*uint64(p.pageSize))
	if err := p.read(ref.Pgid, b); err != nil {
		return err
	}
	if size >= 0 {
		return p.verifyExtent(ref, b, size)
	}
	return p.verify(ref, b)
}

// spacePage reads a page of the free map or its directory.
func (f *mainFile) spacePage(ref Ref, kind Kind) ([]byte, error) {
	b, err := f.readVerified(ref)
	if err != nil {
		return nil, err
	}
	if k := ReadHeader(b).Kind; k != kind {
		return nil, f.corrupt(ref.Pgid, "%v page where a %v page belongs", k, kind)
	}
	return b, nil
}

// readVerified reads a page from the file and verifies its header.
func (f *mainFile) readVerified(ref Ref) ([]byte, error) {
	if err := f.inBounds(ref, 1); err != nil {
		return nil, err
	}
	b := make([]byte, f.pageSize)
	if err := f.read(ref.Pgid, b); err != nil {
		return nil, err
	}
	return b, f.verifyHeader(ref, b)
}
