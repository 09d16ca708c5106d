package pager

import (
	"encoding/binary"
	"runtime"

	"github.com/cespare/xxhash/v2"

	"github.com/ebbkv/ebb/internal/invariant"
)

// Overflow extent: contiguous pages that hold one value.
//
//	0             24       32      64          64+size     end of the last page
//	+-------------+--------+-------+--- ... ---+--- ... ---+
//	| page header | size   | zeros | value     | zeros     |
//	| kind 4      | u64    |       |           |           |
//	+-------------+--------+-------+--- ... ---+--- ... ---+
//
// The pages after the first have no header of their own: the checksum in the header covers all of
// them. level and count of the header are zero. size repeats the size in the cell. Golden bytes:
// testdata/overflow.hex.
//
// The value begins at a cache line (64 bytes): some processors copy it 5% faster than from an
// unaligned address (-bench Copy).
const (
	offExtentSize = HeaderSize

	// ExtentHeader is the number of bytes before the value.
	ExtentHeader = 64
)

// ExtentPages is the number of pages of the extent of a value of size bytes.
func ExtentPages(size, pageSize int) uint64 {
	return uint64((ExtentHeader + size + pageSize - 1) / pageSize)
}

func extentSize(b []byte) uint64 { return binary.LittleEndian.Uint64(b[offExtentSize:]) }

// Extent returns the size value bytes of the overflow extent at ref: a slice of the map, valid
// while the snapshot is held, or a copy.
func (r *Reader) Extent(ref Ref, size int) ([]byte, error) {
	n := ExtentPages(size, r.pageSize)
	if err := r.inBounds(ref, n); err != nil {
		return nil, err
	}
	if r.extents != nil {
		if v, ok := r.extents[ref.Pgid]; ok && len(v) == size {
			return v, nil
		}
	}
	if !r.mapped {
		b := make([]byte, n*uint64(r.pageSize)) // inBounds has bounded n by the size of the file
		if err := r.read(ref.Pgid, b); err != nil {
			return nil, err
		}
		if err := r.verifyExtent(ref, b, size); err != nil {
			return nil, err
		}
		return b[ExtentHeader : ExtentHeader+size : ExtentHeader+size], nil
	}
	b, err := r.inFile(ref.Pgid, int(n)*r.pageSize)
	if err != nil {
		return nil, err
	}
	generation := r.verifyGeneration.Load()
	if !r.verified.has(ref.Pgid) {
		r.pagesRead.Add(n)
		if n > 1 {
			r.file.ReadAhead(b) // The checksum reads all of it.
		}
		r.touchBytes(b)
		if err := r.verifyExtent(ref, b, size); err != nil {
			return nil, err
		}
		r.verified.add(ref.Pgid)
		r.recheckGeneration(ref.Pgid, generation)
	} else if err := r.verifyExtentFit(ref, b, size); err != nil {
		return nil, err
	}
	return b[ExtentHeader : ExtentHeader+size : ExtentHeader+size], nil
}

// touchBytes reads a byte of each page, so that all page faults come before the hash: faults in the
// middle of hashing make it 10-20% slower in all (-bench StoreFirstRead ./kv).
func (f *mainFile) touchBytes(b []byte) {
	var all byte
	for at := 0; at < len(b); at += f.pageSize {
		all |= b[at]
	}
	runtime.KeepAlive(all) // else the compiler removes the reads
}

// VerifyExtentSum verifies that the extent at ref has this checksum in its header: an earlier one of
// the same epoch may have been there. The value is verified when it is read.
func (f *mainFile) VerifyExtentSum(ref Ref, sum uint64) error {
	b := make([]byte, HeaderSize)
	if err := f.read(ref.Pgid, b); err != nil {
		return err
	}
	if Checksum(b) != sum {
		return f.corrupt(ref.Pgid, "not the large value that the log refers to")
	}
	return nil
}

func (f *mainFile) verifyExtent(ref Ref, b []byte, size int) error {
	if err := f.verifyHeader(ref, b); err != nil {
		return err
	}
	return f.verifyExtentFit(ref, b, size)
}

// verifyExtentFit checks the extent's kind, epoch and size against the cell on each read: a
// verified page number need not be an extent, and these bytes are next to the value.
func (f *mainFile) verifyExtentFit(ref Ref, b []byte, size int) error {
	if k := ReadHeader(b).Kind; k != KindOverflow {
		return f.corrupt(ref.Pgid, "%v page where an overflow extent belongs", k)
	}
	if epochOf(b) != ref.Epoch {
		return f.otherEpoch(ref, b)
	}
	if n := extentSize(b); n != uint64(size) {
		return f.corrupt(ref.Pgid, "overflow extent of %d bytes where %d belong", n, size)
	}
	return nil
}

// An ExtentWriter writes one value into an overflow extent, directly to the file: into free space,
// which is harmless if the transaction never commits. The extent is durable with the next
// checkpoint, like every page, or after SyncExtents. The value may come in pieces; the writer
// buffers less than a page of it.
type ExtentWriter struct {
	Ref   Ref
	Pages uint64
	Sum   uint64 // checksum of the extent, once the value is complete

	p     *Pager
	soon  bool   // start write-back after each write
	first []byte // first page, written last, when its checksum is known
	used  int    // bytes of first
	tail  []byte // unwritten bytes of the value: less than a page
	off   int64  // file offset of tail
	left  int    // bytes of the value that Write has not received
	hash  *xxhash.Digest
}

// StartExtent allocates a new overflow extent, of pages of this epoch, for a value of size bytes,
// which the caller writes afterwards. soon announces an early sync: write-back starts at once.
// Writer lock.
func (p *Pager) StartExtent(epoch Epoch, owner uint64, size int, soon bool, how AllocPolicy) (
	*ExtentWriter, error,
) {
	n := ExtentPages(size, p.pageSize)
	id, err := p.Alloc.allocateExtent(n, how)
	if err != nil {
		return nil, err
	}
	p.Reader.drop(id) // a page of the framed free list has a frame
	p.Pool.SetOwner(id, owner)
	e := &ExtentWriter{Ref: Ref{id, epoch}, Pages: n, p: p, soon: soon, left: size}
	if p.o.ReadOnly {
		delete(p.Reader.extents, id)
		return e, nil
	}
	ends := make([]byte, 2*p.pageSize)
	e.first, e.used, e.tail = ends[:p.pageSize], ExtentHeader, ends[p.pageSize:p.pageSize]
	WriteHeader(e.first, Header{Pgid: id, Epoch: epoch, Kind: KindOverflow})
	putU64(e.first[offExtentSize:], uint64(size))
	e.off = (int64(id) + 1) * int64(p.pageSize)
	return e, nil
}

// extentStep is the size of one write of an extent; its write-back overlaps the copy of the next
// one.
const extentStep = 256 << 10

// Write appends bytes to the value, and writes whole pages without a copy. The last bytes complete
// the extent.
func (e *ExtentWriter) Write(b []byte) error {
	if e.left -= len(b); e.left < 0 {
		invariant.Fail("pager: a value of %d bytes more than its extent", -e.left)
	}
	p := e.p
	if p.o.ReadOnly {
		if p.Reader.extents == nil {
			p.Reader.extents = map[Pgid][]byte{}
		}
		p.Reader.extents[e.Ref.Pgid] = append(p.Reader.extents[e.Ref.Pgid], b...)
		return nil
	}
	n := copy(e.first[e.used:], b)
	if e.used, b = e.used+n, b[n:]; e.hash == nil && (e.used == p.pageSize || e.left == 0) {
		e.hash = xxhash.New()
		_, _ = e.hash.Write(e.first[offPgid:]) // a hash cannot fail
	}
	if len(e.tail) > 0 {
		n = min(p.pageSize-len(e.tail), len(b))
		e.tail, b = append(e.tail, b[:n]...), b[n:]
		if len(e.tail) < p.pageSize && e.left > 0 {
			return nil
		}
		if err := e.pad(); err != nil {
			return err
		}
	}
	for len(b) >= p.pageSize {
		step := b[:min(len(b)/p.pageSize*p.pageSize, extentStep)]
		if err := e.write(step); err != nil {
			return err
		}
		b = b[len(step):]
	}
	if e.tail = append(e.tail, b...); e.left > 0 {
		return nil
	}
	return e.end()
}

// pad writes the page that begins with tail, padded with zeros.
func (e *ExtentWriter) pad() error {
	page := e.tail[:e.p.pageSize]
	clear(page[len(e.tail):])
	e.tail = e.tail[:0]
	return e.write(page)
}

// write appends whole pages to the extent.
func (e *ExtentWriter) write(b []byte) error {
	if err := e.writeAt(b, e.off); err != nil {
		return err
	}
	_, _ = e.hash.Write(b) // overlaps the write-back
	e.off += int64(len(b))
	return nil
}

func (e *ExtentWriter) writeAt(b []byte, off int64) error {
	if err := e.p.writeAt(b, off); err != nil || !e.soon {
		return err
	}
	return e.p.startWriteBack(off, int64(len(b)))
}

// end writes tail and the first page.
func (e *ExtentWriter) end() error {
	if len(e.tail) > 0 {
		if err := e.pad(); err != nil {
			return err
		}
	}
	e.Sum = e.hash.Sum64() ^ e.p.salt
	putU64(e.first[offChecksum:], e.Sum)
	if err := e.writeAt(e.first, int64(e.Ref.Pgid)*int64(e.p.pageSize)); err != nil {
		return err
	}
	e.p.pagesWritten.Add(e.Pages)
	return nil
}
