package btree

import (
	"bytes"
	"encoding/binary"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// Overflow extent: contiguous pages that hold one value.
//
//	0             24       32         32+size      end of the last page
//	+-------------+--------+--- ... ---+--- ... ---+
//	| page header | size   | value     | zeros     |
//	| kind 4      | u64    |           |           |
//	+-------------+--------+--- ... ---+--- ... ---+
//
// The pages after the first have no header of their own; the checksum in the header covers all of them. level and count
// of the header are zero. size repeats what the cell says. Golden bytes: testdata/overflow.hex.
const (
	offSize = 24

	// ExtentHeader is the number of bytes before the value.
	ExtentHeader = 32
)

// ExtentPages is the number of pages of the extent of a value of size bytes.
func ExtentPages(size, pageSize int) int { return (ExtentHeader + size + pageSize - 1) / pageSize }

// LayExtent fills b, which is all pages of an extent, with the header h and value. The checksum is left to the pager.
func LayExtent(b []byte, h pager.Header, value []byte) {
	h.Kind, h.Level, h.Count = pager.KindOverflow, 0, 0
	pager.WriteHeader(b, h)
	binary.LittleEndian.PutUint64(b[offSize:], uint64(len(value)))
	n := ExtentHeader + copy(b[ExtentHeader:], value)
	clear(b[n:])
}

// CheckExtent proves that b, whose checksum, pgid and epoch were checked, is the whole extent of a value of size bytes.
func CheckExtent(b []byte, pageSize, size int) error {
	if len(b) < ExtentHeader {
		return badfile.At("", -1, "overflow extent of %d bytes", len(b))
	}
	h := pager.ReadHeader(b)
	bad := func(format string, args ...any) error {
		return badfile.Page("", uint64(h.Pgid), -1, format, args...)
	}
	switch have := binary.LittleEndian.Uint64(b[offSize:]); {
	case h.Kind != pager.KindOverflow:
		return bad("%v page where an overflow extent belongs", h.Kind)
	case h.Level != 0 || h.Count != 0:
		return bad("overflow extent with level %d and count %d", h.Level, h.Count)
	case size < 0 || size > MaxValue || have != uint64(size):
		return bad("overflow extent of %d bytes, its cell says %d", have, size)
	case len(b) != ExtentPages(size, pageSize)*pageSize:
		return bad("overflow extent of %d bytes in %d bytes of pages", size, len(b))
	case !allZero(b[ExtentHeader+size:]):
		return bad("bytes behind the value of an overflow extent are not zero")
	}
	return nil
}

// freeExtent gives back the extent of the cell at off, if it has one.
func (e *editor) freeExtent(b []byte, off int) error {
	info := infoAt(b, off)
	if info&infoOverflow == 0 {
		return nil
	}
	return e.w.FreeExtent(overflowAt(b, off), int(info&infoSize))
}

// allZero is for at most a page.
func allZero(b []byte) bool { return len(b) <= len(zeros) && bytes.Equal(b, zeros[:len(b)]) }

var zeros [pager.MaxPageSize]byte
