package pager

import (
	"encoding/binary"
	"runtime"

	"github.com/cespare/xxhash/v2"
)

// Overflow extent: contiguous pages that hold one value.
//
//	0             24       32      64          64+size     end of the last page
//	+-------------+--------+-------+--- ... ---+--- ... ---+
//	| page header | size   | zeros | value     | zeros     |
//	| kind 4      | u64    |       |           |           |
//	+-------------+--------+-------+--- ... ---+--- ... ---+
//
// The pages after the first have no header of their own; the checksum in the header covers all of them. level and count
// of the header are zero. size repeats what the cell says. Golden bytes: testdata/overflow.hex.
//
// The value begins at a line of the processor (64 bytes): some copy it a twentieth faster than from the middle of one (-bench Copy).
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

// Extent returns the size value bytes of the overflow extent at ref. From a map they are valid while the snapshot is
// held; else they are a copy.
func (p *Pager) Extent(ref Ref, size int) ([]byte, error) {
	n := ExtentPages(size, p.pageSize)
	if err := p.inBounds(ref, n); err != nil {
		return nil, err
	}
	if p.extents != nil {
		if v, ok := p.extents[ref.Pgid]; ok && len(v) == size {
			return v, nil
		}
	}
	if !p.mapped {
		b := make([]byte, n*uint64(p.pageSize)) // no more than the file holds: inBounds
		if err := p.read(ref.Pgid, b); err != nil {
			return nil, err
		}
		if err := p.proveExtent(ref, b, size); err != nil {
			return nil, err
		}
		return b[ExtentHeader : ExtentHeader+size : ExtentHeader+size], nil
	}
	b, err := p.inFile(ref.Pgid, int(n)*p.pageSize)
	if err != nil {
		return nil, err
	}
	doubts := p.doubts.Load()
	if !p.verified.has(ref.Pgid) {
		p.pagesRead.Add(n)
		p.meet(b)
		if err := p.proveExtent(ref, b, size); err != nil {
			return nil, err
		}
		p.verified.add(ref.Pgid)
		p.doubted(ref.Pgid, doubts)
	} else if err := p.proveFit(ref, b, size); err != nil {
		return nil, err
	}
	return b[ExtentHeader : ExtentHeader+size : ExtentHeader+size], nil
}

// meet looks at a byte of each page, so that the processor and the system find all of them before the hash begins: to be stopped for each page in
// the middle of it takes a tenth to a fifth longer in all (-bench StoreFirstRead ./kv).
func (p *Pager) meet(b []byte) {
	var all byte
	for at := 0; at < len(b); at += p.pageSize {
		all |= b[at]
	}
	runtime.KeepAlive(all) // else nothing would be looked at
}

func (p *Pager) proveExtent(ref Ref, b []byte, size int) error {
	if err := p.proveHeader(ref, b); err != nil {
		return err
	}
	return p.proveFit(ref, b, size)
}

// proveFit checks that the extent is of the kind, epoch and size that the cell says. It is asked each time: what a page number
// was proved to be is not always an extent, and the bytes lie beside the value.
func (p *Pager) proveFit(ref Ref, b []byte, size int) error {
	if k := ReadHeader(b).Kind; k != KindOverflow {
		return p.corrupt(ref.Pgid, "%v page where an overflow extent belongs", k)
	}
	if epochOf(b) != ref.Epoch {
		return p.otherEpoch(ref, b)
	}
	if n := extentSize(b); n != uint64(size) {
		return p.corrupt(ref.Pgid, "overflow extent of %d bytes where %d belong", n, size)
	}
	return nil
}

// NewExtent is for the holder of the writer lock. It writes value into an overflow extent of pages born in epoch, straight to the file: into free space, which
// harms nothing if the transaction never commits. It is durable with the next checkpoint, like every page, or after SyncExtents.
//
// soon says that it is going to be: the disk begins at once.
func (p *Pager) NewExtent(epoch Epoch, owner uint64, value []byte, soon bool) (Ref, uint64, error) {
	n := ExtentPages(len(value), p.pageSize)
	id, err := p.takeExtent(n)
	if err != nil {
		return Ref{}, 0, err
	}
	ref := Ref{id, epoch}
	s := p.table.slot(id)
	s.owner = owner
	p.forget(id, s)
	p.dropFrame(s) // one that a page on the hot stack kept
	if p.o.ReadOnly {
		if p.extents == nil {
			p.extents = map[Pgid][]byte{}
		}
		p.extents[id] = append([]byte(nil), value...)
		return ref, n, nil
	}
	return ref, n, p.writeExtent(ref, n, value, soon)
}

// takeExtent gets the number of the first of n contiguous pages, growing the file if need be.
func (p *Pager) takeExtent(n uint64) (id Pgid, err error) {
	var ok bool
	if n == 1 {
		id, ok, err = p.space.next(false)
	} else {
		id, ok, err = p.space.extent(n)
	}
	if ok || err != nil {
		return id, err
	}
	if err := p.reserve(p.space.gap(n) + n); err != nil {
		return 0, err
	}
	if id, err = p.space.growExtent(n); err != nil {
		return 0, err
	}
	p.end.Store(p.space.end)
	return id, nil
}

// extentStep is how much of an extent is written at a time, and begun to be written to the disk while the next is copied.
const extentStep = 256 << 10

// writeExtent writes the value in steps and in whole pages, without a copy in between, and the first page last: the checksum in its header
// is then known. soon says that it is going to be synced before long.
func (p *Pager) writeExtent(ref Ref, n uint64, value []byte, soon bool) error {
	ends := make([]byte, 2*p.pageSize)
	first, last := ends[:p.pageSize], ends[p.pageSize:]
	WriteHeader(first, Header{Pgid: ref.Pgid, Epoch: ref.Epoch, Kind: KindOverflow})
	putU64(first[offExtentSize:], uint64(len(value)))
	rest := value[copy(first[ExtentHeader:], value):]
	d := xxhash.New()
	_, _ = d.Write(first[offPgid:]) // a hash cannot fail
	write := func(b []byte, off int64) error {
		if err := p.writeAt(b, off); err != nil || !soon {
			return err
		}
		return p.startWriteBack(off, int64(len(b)))
	}
	start := int64(ref.Pgid) * int64(p.pageSize)
	for off := start + int64(p.pageSize); len(rest) > 0; {
		step := rest[:min(len(rest)/p.pageSize*p.pageSize, extentStep)]
		if rest = rest[len(step):]; len(step) == 0 {
			copy(last, rest)
			step, rest = last, nil
		}
		if err := write(step, off); err != nil {
			return err
		}
		_, _ = d.Write(step) // while the disk is at work
		off += int64(len(step))
	}
	putU64(first[offChecksum:], d.Sum64()^p.salt)
	if err := write(first, start); err != nil {
		return err
	}
	p.pagesWritten.Add(n)
	return nil
}
