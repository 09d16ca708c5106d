package pager

import (
	"encoding/binary"
	"io"

	"github.com/cespare/xxhash/v2"
)

// copyEpoch is the epoch of all pages of a copied file: it is a new one.
const copyEpoch Epoch = 1

// A CopyWriter writes a store file as a stream, page after page: the pages of a tree that is built
// bottom-up are complete in the order of their numbers. The meta page comes first and has totals, so
// the same trees are built twice: Count only counts.
type CopyWriter struct {
	w     io.Writer  // nil: pages are counted, and not written
	a     *Allocator // has the page size and the salt, and makes the free map
	page  []byte     // current page, written when the next one begins
	ref   Ref        // its number; zero: there is none
	next  Pgid
	gaps  []pageRange // free pages, so that no extent crosses views of the map
	bytes int64
}

// NewCopyWriter returns a CopyWriter of a new file with the id and the page size of m. o has
// SmallGroups.
func NewCopyWriter(o Options, m *Meta) *CopyWriter {
	o.ReadOnly = true // the free map reserves no space: there is no file
	a := &Allocator{
		mainFile: &mainFile{o: o, pageSize: m.PageSize, salt: Salt(m.StoreID)},
		space:    newSpace(m.PageSize),
	}
	a.Holes.Allocator = a
	if o.SmallGroups {
		a.space.perGroup = smallGroup
	}
	return &CopyWriter{a: a, page: make([]byte, m.PageSize), next: 2}
}

// Begin begins the stream with the meta pages. m is complete.
func (c *CopyWriter) Begin(w io.Writer, m Meta) error {
	c.w = w
	return c.write(append(EncodeMeta(m), make([]byte, c.a.pageSize)...))
}

func (c *CopyWriter) write(b []byte) error {
	if c.w == nil {
		return nil
	}
	n, err := c.w.Write(b)
	c.bytes += int64(n)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return err
}

// Bytes is the number of bytes written.
func (c *CopyWriter) Bytes() int64 { return c.bytes }

// PageSize is the same for all pages.
func (c *CopyWriter) PageSize() int { return c.a.pageSize }

// New returns the next page, with undefined content behind its header.
func (c *CopyWriter) New(kind Kind, level uint8) (Ref, []byte, error) {
	if err := c.flush(); err != nil {
		return Ref{}, nil, err
	}
	c.ref = Ref{c.next, copyEpoch}
	c.next++
	WriteHeader(c.page, Header{Pgid: c.ref.Pgid, Epoch: copyEpoch, Kind: kind, Level: level})
	return c.ref, c.page, nil
}

// flush writes the current page.
func (c *CopyWriter) flush() error {
	if c.ref.IsZero() {
		return nil
	}
	c.ref = Ref{}
	if c.w != nil {
		SetChecksum(c.page, c.a.salt)
	}
	return c.write(c.page)
}

// NewExtent writes the extent of a value.
func (c *CopyWriter) NewExtent(value []byte) (Ref, error) {
	if err := c.flush(); err != nil {
		return Ref{}, err
	}
	n := ExtentPages(len(value), c.a.pageSize)
	c.a.space.end = uint64(c.next)
	if gap := c.a.space.gap(n); gap > 0 {
		c.gaps = append(c.gaps, pageRange{c.next, c.next + Pgid(gap)})
		for c.next += Pgid(gap); gap > 0; gap-- {
			if err := c.write(make([]byte, c.a.pageSize)); err != nil {
				return Ref{}, err
			}
		}
	}
	ref := Ref{c.next, copyEpoch}
	c.next += Pgid(n)
	if c.w == nil {
		return ref, nil
	}
	head := make([]byte, ExtentHeader)
	WriteHeader(head, Header{Pgid: ref.Pgid, Epoch: copyEpoch, Kind: KindOverflow})
	putU64(head[offExtentSize:], uint64(len(value)))
	pad := make([]byte, int(n)*c.a.pageSize-ExtentHeader-len(value))
	hash := xxhash.New()
	for _, part := range [][]byte{head[offPgid:], value, pad} {
		_, _ = hash.Write(part) // a hash cannot fail
	}
	binary.LittleEndian.PutUint64(head[offChecksum:], hash.Sum64()^c.a.salt)
	for _, part := range [][]byte{head, value, pad} {
		if err := c.write(part); err != nil {
			return Ref{}, err
		}
	}
	return ref, nil
}

// End ends the stream with the free map, and sets the fields of m that describe it. The gaps are
// neither in use nor available: the free map goes behind all pages.
func (c *CopyWriter) End(m *Meta) error {
	if err := c.flush(); err != nil {
		return err
	}
	a, at := c.a, Pgid(0)
	a.space.end = uint64(c.next)
	a.space.addGroups()
	for _, gap := range append(c.gaps, pageRange{c.next, c.next}) {
		if err := a.space.markUsed(at, uint64(gap.from-at), false); err != nil {
			return err
		}
		at = gap.to
	}
	images, _, err := a.captureFreeMap(copyEpoch)
	if err != nil {
		return err
	}
	for ; uint64(c.next) < a.space.end; c.next++ {
		SetChecksum(images[c.next], a.salt)
		if err := c.write(images[c.next]); err != nil {
			return err
		}
	}
	m.Epoch, m.Clean, m.Pages, m.FreeDir = copyEpoch, true, a.space.end, a.freeDir()
	return nil
}
