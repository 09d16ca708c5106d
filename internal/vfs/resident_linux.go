package vfs

import (
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// resident asks with mincore, which tells of a file that this process could not write that all of
// it is in memory.
func resident(b []byte) bool {
	var known [64]byte
	size := os.Getpagesize()
	for b = wholePages(b); len(b) > 0; {
		n := min(len(b)/size, len(known))
		_, _, err := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])),
			uintptr(n*size), uintptr(unsafe.Pointer(&known[0])))
		if err != 0 || slices.ContainsFunc(known[:n], func(k byte) bool { return k&1 == 0 }) {
			return false
		}
		b = b[n*size:]
	}
	return true
}
