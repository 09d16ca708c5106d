package btree

import (
	"encoding/binary"
	"unsafe"
)

// The loads below read page bytes without a bounds check. They are the only unsafe code of the
// package besides Cursor.ScanRow. Lookups consist of little else: the checks would cost 10 to 20
// percent.
//
// They are safe because of CheckPage: each source of an offset (count, lo, slots, key lengths) is
// verified to lie inside the page before the page is used, and pages that this package writes keep
// the same bounds. The build for the race detector checks each of these loads against its memory
// block.
//
// The conversions through *[n]byte make them independent of alignment and byte order.

func ld16(b []byte, off int) int {
	page := unsafe.Pointer(unsafe.SliceData(b))
	return int(binary.LittleEndian.Uint16((*[2]byte)(unsafe.Add(page, off))[:]))
}

func ld32(b []byte, off int) uint32 {
	return binary.LittleEndian.Uint32((*[4]byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), off))[:])
}

func ld64(b []byte, off int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), off))[:])
}
