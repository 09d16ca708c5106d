package btree

import (
	"encoding/binary"
	"unsafe"
)

// The loads below read page bytes without a bounds check. They are the only unsafe code of the
// package, and are here because the searches of a lookup are made of little else: the checks cost
// 10 to 20 percent of it.
//
// They are right because of CheckPage: whatever an offset is computed from (count, lo, slots, key
// lengths) was proved to lie inside the page before the page came here, and pages that this package
// lays out itself keep the same bounds. The race detector's build checks every one of these loads
// against the memory block that it points into.
//
// The conversions through *[n]byte keep them independent of alignment and byte order.

func ld16(b []byte, off int) int {
	return int(binary.LittleEndian.Uint16((*[2]byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), off))[:]))
}

func ld32(b []byte, off int) uint32 {
	return binary.LittleEndian.Uint32((*[4]byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), off))[:])
}

func ld64(b []byte, off int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), off))[:])
}
