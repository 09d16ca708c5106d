package vfs

import (
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resident asks with mincore, which tells of a file that this process could not write that all of
// it is in memory.
func resident(b []byte, unit int) (units uint64) {
	var known [MaxResident]byte
	size := os.Getpagesize()
	whole := wholePages(b)
	n := len(whole) / size
	if n == 0 || n > len(known) {
		return 0
	}
	_, _, err := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&whole[0])),
		uintptr(n*size), uintptr(unsafe.Pointer(&known[0])))
	if err != 0 {
		return 0
	}
	lead := int(uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&whole[0])))
	for i := 0; i*unit < len(b); i++ {
		from, to := lead+i*unit, lead+min((i+1)*unit, len(b))
		absent := func(k byte) bool { return k&1 == 0 }
		if !slices.ContainsFunc(known[from/size:(to+size-1)/size], absent) {
			units |= 1 << i
		}
	}
	return units
}
