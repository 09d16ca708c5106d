package pager

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/ebbkv/ebb/internal/prefetch"
)

// Reader reads pages: from the buffer pool, the undo log, the map of the file, or the cache. Any
// goroutine may use it at any time between Start and Close.
type Reader struct {
	*mainFile
	pool  *BufferPool
	undo  *UndoLog
	cache cache
	ahead readAhead
	// extents holds the overflow extents that the replay of a read-only store creates. It does not
	// change after the replay.
	extents map[Pgid][]byte
}

// A View reads the pages of one snapshot: see Reader.View.
type View struct {
	r       *Reader
	base    Epoch
	version uint64
}

// View returns the view of a snapshot whose newest checkpoint is base: a page of a later epoch has
// a frame or a delta, unless the file holds it already. Its pages are without in-place changes of
// versions after this one.
func (r *Reader) View(base Epoch, version uint64) View { return View{r, base, version} }

// PageSize is that of the file.
func (v View) PageSize() int { return v.r.pageSize }

// Extent is Reader.Extent.
func (v View) Extent(ref Ref, size int) ([]byte, error) { return v.r.Extent(ref, size) }

// Newest is later than all versions.
const Newest = math.MaxUint64

// Page returns the page at ref. The bytes are read-only and valid while the snapshot is held.
//
// The first read from the file verifies checksum, own number, the epoch of the reference and
// CheckPage; an invalid page is a *badfile.Error.
func (v View) Page(ref Ref) ([]byte, error) {
	b, changes, err := v.Leaf(ref)
	if changes == nil || err != nil {
		return b, err
	}
	return v.r.mergedPage(ref, b, changes)
}

// fromFile returns a page that has no frame and no delta.
func (r *Reader) fromFile(ref Ref) ([]byte, error) {
	if r.mapped && r.accessed.has(ref.Pgid) {
		b, err := r.inFile(ref.Pgid, r.pageSize)
		if err == nil && epochOf(b) != ref.Epoch {
			return nil, r.otherEpoch(ref, b)
		}
		return b, err
	}
	return r.firstRead(ref)
}

// Peek returns the address of the first n bytes of a page, even if the page has not been read; nil
// if it is neither in memory nor mapped. It verifies nothing, and reading the bytes may fault.
func (v View) Peek(ref Ref, n int) []byte {
	if ref.Epoch > v.base {
		if s := v.r.pool.table.peek(ref.Pgid); s != nil {
			if f := atomic.LoadPointer(&s.dirty); f != nil {
				return unsafe.Slice((*byte)(f), n)
			}
			if f := atomic.LoadPointer(&s.delta); f != nil {
				below, _, _ := decodeDelta(f)
				return v.Peek(below, n)
			}
		}
	}
	if !v.r.mapped || v.r.inBounds(ref, 1) != nil {
		return nil
	}
	b, err := v.r.inFile(ref.Pgid, n)
	if err != nil {
		return nil
	}
	return b
}

// PrefetchSlot prefetches the slot of a page, if it has one, into the processor's cache.
func (v View) PrefetchSlot(ref Ref) {
	if s := v.r.pool.table.peek(ref.Pgid); s != nil {
		prefetch.Bytes(unsafe.Slice((*byte)(unsafe.Pointer(s)), slotHotBytes))
	}
}

// firstRead reads a page that is not marked as accessed, or not mapped.
func (r *Reader) firstRead(ref Ref) ([]byte, error) {
	if err := r.inBounds(ref, 1); err != nil {
		return nil, err
	}
	if !r.mapped {
		return r.cached(ref)
	}
	b, err := r.inFile(ref.Pgid, r.pageSize)
	if err != nil {
		return nil, err
	}
	r.readAround(ref.Pgid)
	generation := r.verifyGeneration.Load()
	if !r.verified.has(ref.Pgid) {
		r.pagesRead.Add(1)
		prefetch.Bytes(b) // verify reads all of it
	}
	return b, r.access(ref, b, generation)
}

// access verifies a page that was read in this generation, unless it is verified, and marks it as
// accessed.
func (r *Reader) access(ref Ref, b []byte, generation uint64) error {
	if !r.verified.has(ref.Pgid) {
		if err := r.verify(ref, b); err != nil {
			return err
		}
		r.verified.add(ref.Pgid)
	} else if epochOf(b) != ref.Epoch {
		return r.otherEpoch(ref, b)
	}
	r.accessed.add(ref.Pgid)
	r.recheckGeneration(ref.Pgid, generation)
	return nil
}

// epochOf returns the epoch in a page header. A verified page does not make each reference to it
// right: each read compares the epoch, as it compares the kind.
func epochOf(b []byte) Epoch { return Epoch(binary.LittleEndian.Uint32(b[offEpoch:])) }

// Cold reports whether a page is in the file only and has not been read through the map. A
// transaction that will change such a page reads it with ReadCold into the buffer of the change:
// pages that are read through the map stay in the memory of the process.
func (v View) Cold(ref Ref) bool {
	s := v.r.pool.table.peek(ref.Pgid)
	if ref.Epoch > v.base && s != nil &&
		(atomic.LoadPointer(&s.dirty) != nil || atomic.LoadPointer(&s.delta) != nil) {
		return false
	}
	if v.r.mapped {
		return !v.r.accessed.has(ref.Pgid)
	}
	c := v.r.cache.pages.peek(ref.Pgid)
	return c == nil || atomic.LoadPointer(&c.page) == nil
}

// ReadCold reads a cold page into b, which is a page long, and verifies it as Page does. The page
// is not cold afterwards: a later read, as after a deletion that found no key, uses the map.
func (r *Reader) ReadCold(ref Ref, b []byte) error {
	if err := r.inBounds(ref, 1); err != nil {
		return err
	}
	generation := r.verifyGeneration.Load()
	if err := r.read(ref.Pgid, b); err != nil {
		return err
	}
	if !r.mapped {
		return r.verify(ref, b)
	}
	return r.access(ref, b, generation)
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
		if allZero(b) {
			return f.corrupt(ref.Pgid, "wrong checksum: all bytes are zero")
		}
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

// VerifyExtent reads and verifies an extent in the file itself, for Check, even if it is marked as
// verified. It skips an extent that is only in memory.
func (r *Reader) VerifyExtent(ref Ref, base Epoch, size int) error {
	n := ExtentPages(size, r.pageSize)
	if err := r.inBounds(ref, n); err != nil {
		return err
	}
	if ref.Epoch > base && r.pool.unwritten(ref.Pgid) {
		return nil
	}
	if _, ok := r.extents[ref.Pgid]; ok {
		return nil
	}
	return r.verifyStoredExtent(ref, n, size)
}

// ReadVerified reads the page in the file into b, or a new buffer if b is nil, and verifies it even if
// it is marked as verified; nil if the page is only in memory.
func (r *Reader) ReadVerified(ref Ref, base Epoch, b []byte) ([]byte, error) {
	if err := r.inBounds(ref, 1); err != nil {
		return nil, err
	}
	if ref.Epoch > base && r.pool.unwritten(ref.Pgid) {
		return nil, nil
	}
	if b == nil {
		b = make([]byte, r.pageSize)
	}
	if err := r.read(ref.Pgid, b); err != nil {
		return nil, err
	}
	return b, r.verify(ref, b)
}

// verifyStoredExtent verifies an extent of n pages in the file, with less memory than a large one has.
func (r *Reader) verifyStoredExtent(ref Ref, n uint64, size int) error {
	b := make([]byte, min(n*uint64(r.pageSize), extentStep))
	v := r.NewPageVerifier()
	for at, end := uint64(ref.Pgid), uint64(ref.Pgid)+n; at < end; {
		b := b[:min(uint64(len(b)), (end-at)*uint64(r.pageSize))]
		if err := r.read(Pgid(at), b); err != nil {
			return err
		}
		if at == uint64(ref.Pgid) {
			if err := r.verifyExtentFit(ref, b, size); err != nil {
				return err
			}
		}
		if err := v.Add(Pgid(at), b); err != nil {
			return err
		}
		at += uint64(len(b) / r.pageSize)
	}
	return v.End()
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

// VerifySpace reads a page of the free map or its directory from the file and verifies its header.
func (f *mainFile) VerifySpace(ref Ref) error {
	_, err := f.readVerified(ref)
	return err
}

// ReadPages fills b with the pages from id on, from the file. It verifies nothing.
func (f *mainFile) ReadPages(id Pgid, b []byte) error {
	if err := f.inBounds(Ref{Pgid: id}, uint64(len(b)/f.pageSize)); err != nil {
		return err
	}
	return f.read(id, b)
}
