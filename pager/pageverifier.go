package pager

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// A PageVerifier verifies pages and extents as the file holds them, in ascending order and in pieces
// of any number of whole pages. It also sums the references that lead to what it has verified, so
// that a caller with the references can verify that no page is an old one: see RefSum.
type PageVerifier struct {
	p    *mainFile
	sum  uint64
	next Pgid           // the rest of an extent begins here; 0: none is open
	left uint64         // its pages
	hash *xxhash.Digest // of its bytes so far
	want uint64         // its checksum
	head Pgid           // its first page
}

// NewPageVerifier returns a PageVerifier.
func (f *mainFile) NewPageVerifier() *PageVerifier { return &PageVerifier{p: f, hash: xxhash.New()} }

// RefSum is the part of a reference in a sum over many, in any order: two sets of references have
// one sum only if they are the same.
func RefSum(ref Ref) uint64 {
	var b [12]byte
	binary.LittleEndian.PutUint64(b[:], uint64(ref.Pgid))
	binary.LittleEndian.PutUint32(b[8:], uint32(ref.Epoch))
	return xxhash.Sum64(b[:])
}

// Add verifies the pages from id on.
func (v *PageVerifier) Add(id Pgid, b []byte) error {
	size := v.p.pageSize
	for len(b) > 0 {
		if v.left > 0 {
			if id != v.next {
				return v.End()
			}
			n := min(v.left, uint64(len(b)/size))
			if err := v.extend(b[:n*uint64(size)], n); err != nil {
				return err
			}
			id, b = id+Pgid(n), b[n*uint64(size):]
			continue
		}
		h := ReadHeader(b)
		switch {
		case h.Pgid != id:
			return v.p.corrupt(id, "holds page %d: a misdirected write", h.Pgid)
		case h.Kind == KindOverflow:
			if err := v.start(id, h, b); err != nil {
				return err
			}
			continue
		case h.Kind != KindLeaf && h.Kind != KindBranch:
			return v.p.corrupt(id, "%v page where a tree page belongs", h.Kind)
		case !ChecksumMatches(b[:size], v.p.salt):
			return v.p.corrupt(id, "wrong checksum")
		}
		v.sum += RefSum(Ref{id, h.Epoch})
		id, b = id+1, b[size:]
	}
	return nil
}

// start begins the extent whose first page is at the beginning of b.
func (v *PageVerifier) start(id Pgid, h Header, b []byte) error {
	bytes := extentSize(b)
	if bytes > uint64(v.p.end.Load())*uint64(v.p.pageSize) {
		return v.p.corrupt(id, "overflow extent of %d bytes in a file of %d pages", bytes, v.p.end.Load())
	}
	v.head, v.next, v.left = id, id, ExtentPages(int(bytes), v.p.pageSize)
	v.want = binary.LittleEndian.Uint64(b) ^ v.p.salt
	v.hash.Reset()
	v.sum += RefSum(Ref{id, h.Epoch})
	return nil
}

// extend adds the next n pages of the open extent.
func (v *PageVerifier) extend(b []byte, n uint64) error {
	if v.next == v.head {
		b = b[offPgid:]
	}
	_, _ = v.hash.Write(b) // a hash cannot fail
	v.next += Pgid(n)
	if v.left -= n; v.left == 0 && v.hash.Sum64() != v.want {
		return v.p.corrupt(v.head, "wrong checksum")
	}
	return nil
}

// End returns an error if an extent is not complete.
func (v *PageVerifier) End() error {
	if v.left > 0 {
		return v.p.corrupt(v.head, "overflow extent without its last %d pages", v.left)
	}
	return nil
}

// Sum is the sum of RefSum over all pages and extents.
func (v *PageVerifier) Sum() uint64 { return v.sum }
