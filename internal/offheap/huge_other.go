//go:build (darwin || freebsd) && !race

package offheap

import "golang.org/x/sys/unix"

func adviseHuge([]byte) {}

// UseSmallPages does nothing here.
func UseSmallPages([]byte) {}

// Release gives the memory of b, which is a part of what Alloc returned, back to the system. The
// addresses stay: what is read there later is zeros, or what was there before.
func Release(b []byte) { _ = unix.Madvise(b, unix.MADV_FREE) }
