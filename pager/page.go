package pager

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Pgid is the number of a page: page N is the PageSize bytes at offset N*PageSize of the main file.
type Pgid uint64

// Epoch is the number of the checkpoint that first writes a page, as it is known when the page is
// born: the checkpoint has a higher one if pages were written in vain meanwhile, which must not
// pass for others.
type Epoch uint32

// Ref names a page wherever one page names another. The epoch is what catches an old, perfectly
// valid page where a newer one belongs. The zero Ref names nothing.
type Ref struct {
	Pgid  Pgid
	Epoch Epoch
}

// IsZero says that the reference names nothing.
func (r Ref) IsZero() bool { return r.Pgid == 0 }

// String is "pgid@epoch".
func (r Ref) String() string { return fmt.Sprintf("%d@%d", r.Pgid, r.Epoch) }

// Kind says what a page holds.
type Kind uint8

// Page kinds. A zero kind is never written, so an empty page is not a valid one.
const (
	KindMeta     Kind = 1
	KindLeaf     Kind = 2
	KindBranch   Kind = 3
	KindOverflow Kind = 4 // first page of an overflow extent; the pages after it have no header
	KindFreeMap  Kind = 5 // which pages of one group are in use
	KindFreeDir  Kind = 6 // where the free map pages are
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
// checksum is xxhash64 of bytes [8, PageSize) xor the file's salt (see Salt): torn and rotten
// pages, pages of another store. In an overflow extent it covers all pages of the extent. While a
// page is only in memory it is zero. pgid repeats the page's own number: reads and writes that went
// to the wrong place. epoch is the checkpoint that was to write it first: an older page where a
// newer one belongs. level is the height above the leaves (branch >= 1, all others 0). count is the
// number of cells (leaf, branch). Golden bytes: testdata/page-header.hex.
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

// ReadHeader decodes the header; b holds at least HeaderSize bytes. It proves nothing.
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

// WriteHeader encodes h and zeroes the checksum, which Seal sets when the page is written to the
// file.
func WriteHeader(b []byte, h Header) {
	_ = b[HeaderSize-1]
	binary.LittleEndian.PutUint64(b[offChecksum:], 0)
	binary.LittleEndian.PutUint64(b[offPgid:], uint64(h.Pgid))
	binary.LittleEndian.PutUint32(b[offEpoch:], uint32(h.Epoch))
	b[offKind], b[offLevel] = byte(h.Kind), h.Level
	binary.LittleEndian.PutUint16(b[offCount:], h.Count)
}

// SetRef gives a copy of a page its own number and epoch, and zeroes the checksum. It is not
// ReadHeader and WriteHeader: what is put together in memory and read at once waits for all stores
// before it, which are those of the copy.
func SetRef(b []byte, ref Ref) {
	_ = b[HeaderSize-1]
	binary.LittleEndian.PutUint64(b[offChecksum:], 0)
	binary.LittleEndian.PutUint64(b[offPgid:], uint64(ref.Pgid))
	binary.LittleEndian.PutUint32(b[offEpoch:], uint32(ref.Epoch))
}

// SetCount changes the number of cells in the header.
func SetCount(b []byte, n int) { binary.LittleEndian.PutUint16(b[offCount:], uint16(n)) }

// Salt is what a store's id adds to each page checksum.
func Salt(storeID [16]byte) uint64 { return xxhash.Sum64(storeID[:]) }

// SetChecksum sets the checksum of a page or of a whole overflow extent.
func SetChecksum(b []byte, salt uint64) {
	binary.LittleEndian.PutUint64(b[offChecksum:], xxhash.Sum64(b[offPgid:])^salt)
}

// ChecksumMatches says whether the checksum of a page or of a whole overflow extent is right.
func ChecksumMatches(b []byte, salt uint64) bool {
	return binary.LittleEndian.Uint64(b[offChecksum:]) == xxhash.Sum64(b[offPgid:])^salt
}
