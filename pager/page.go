package pager

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Pgid is the number of a page: page N is the PageSize bytes at offset N*PageSize of the main file.
type Pgid uint64

// Epoch is the number of the checkpoint that should first write a page, as known when the page is
// allocated. If pages were written by a failed checkpoint, the number of the next one is higher, so
// that those pages do not pass for valid ones.
type Epoch uint32

// Ref is a reference from one page to another. The epoch detects an old, valid page in the place of
// a newer one. The zero Ref refers to no page.
type Ref struct {
	Pgid  Pgid
	Epoch Epoch
}

// IsZero reports whether the reference refers to no page.
func (r Ref) IsZero() bool { return r.Pgid == 0 }

// String is "pgid@epoch".
func (r Ref) String() string { return fmt.Sprintf("%d@%d", r.Pgid, r.Epoch) }

// Kind is the type of a page.
type Kind uint8

// Page kinds. A zero kind is never written, so an empty page is not a valid one.
const (
	KindMeta     Kind = 1
	KindLeaf     Kind = 2
	KindBranch   Kind = 3
	KindOverflow Kind = 4 // first page of an overflow extent; the pages after it have no header
	KindFreeMap  Kind = 5 // the used pages of one group
	KindFreeDir  Kind = 6 // references to the free map pages
)

// String names the kind as docs/format.md does.
func (k Kind) String() string {
	switch k {
	case KindMeta:
		return "meta"
	case KindLeaf:
		return "leaf"
	case KindBranch:
		return "branch"
	case KindOverflow:
		return "overflow"
	case KindFreeMap:
		return "free map"
	case KindFreeDir:
		return "free directory"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Page header. Page N is the PageSize bytes at offset N*PageSize; integers are little-endian.
//
//	0          8          16         20     21      22         24
//	+----------+----------+----------+------+-------+----------+--- ... ---+
//	| checksum | pgid     | epoch    | kind | level | count    | payload   |
//	| u64      | u64      | u32      | u8   | u8    | u16      |           |
//	+----------+----------+----------+------+-------+----------+--- ... ---+
//
// checksum is xxhash64 of bytes [8, PageSize) xor the file's salt (see Salt): it detects torn and
// rotten pages, and pages of another store. In an overflow extent it covers all pages of the
// extent. It is zero while a page is only in memory. pgid repeats the page's own number: it detects
// misdirected reads and writes. epoch is the checkpoint that should write the page first: it
// detects an older page in the place of a newer one. level is the height above the leaves (branch
// >= 1, all others 0). count is the number of cells (leaf, branch). Golden bytes:
// testdata/page-header.hex.
const (
	offChecksum = 0
	offPgid     = 8
	offEpoch    = 16
	offKind     = 20
	offLevel    = 21
	offCount    = 22

	HeaderSize = 24

	MinPageSize = 4096
	MaxPageSize = 65536
)

// Header is the decoded header of a page.
type Header struct {
	Pgid  Pgid
	Epoch Epoch
	Kind  Kind
	Level uint8
	Count uint16
}

// ReadHeader decodes the header without verifying it; b holds at least HeaderSize bytes.
func ReadHeader(b []byte) Header {
	_ = b[HeaderSize-1]
	return Header{
		Pgid:  Pgid(binary.LittleEndian.Uint64(b[offPgid:])),
		Epoch: Epoch(binary.LittleEndian.Uint32(b[offEpoch:])),
		Kind:  Kind(b[offKind]),
		Level: b[offLevel],
		Count: binary.LittleEndian.Uint16(b[offCount:]),
	}
}

// WriteHeader encodes h and zeroes the checksum, which SetChecksum sets when the page is written to
// the file.
func WriteHeader(b []byte, h Header) {
	_ = b[HeaderSize-1]
	binary.LittleEndian.PutUint64(b[offChecksum:], 0)
	binary.LittleEndian.PutUint64(b[offPgid:], uint64(h.Pgid))
	binary.LittleEndian.PutUint32(b[offEpoch:], uint32(h.Epoch))
	b[offKind], b[offLevel] = byte(h.Kind), h.Level
	binary.LittleEndian.PutUint16(b[offCount:], h.Count)
}

// SetRef sets the number and epoch of a copied page, and zeroes the checksum. It is faster than
// ReadHeader and WriteHeader, because a load of bytes just assembled in memory waits for all
// earlier stores, those of the copy.
func SetRef(b []byte, ref Ref) {
	_ = b[HeaderSize-1]
	binary.LittleEndian.PutUint64(b[offChecksum:], 0)
	binary.LittleEndian.PutUint64(b[offPgid:], uint64(ref.Pgid))
	binary.LittleEndian.PutUint32(b[offEpoch:], uint32(ref.Epoch))
}

// SetCount changes the number of cells in the header.
func SetCount(b []byte, n int) { binary.LittleEndian.PutUint16(b[offCount:], uint16(n)) }

// Salt is the part of each page checksum that depends on the store's id.
func Salt(storeID [16]byte) uint64 { return xxhash.Sum64(storeID[:]) }

// SetChecksum sets the checksum of a page or of a whole overflow extent.
func SetChecksum(b []byte, salt uint64) {
	binary.LittleEndian.PutUint64(b[offChecksum:], xxhash.Sum64(b[offPgid:])^salt)
}

// ChecksumMatches reports whether the checksum of a page or of a whole overflow extent is right.
func ChecksumMatches(b []byte, salt uint64) bool {
	return binary.LittleEndian.Uint64(b[offChecksum:]) == xxhash.Sum64(b[offPgid:])^salt
}
