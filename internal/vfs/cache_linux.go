package vfs

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is what a processor maps with one entry, and what the page cache of some file systems
// can hold in one piece.
const hugePage = 2 << 20

// cacheAhead reads whole huge pages, all zeros, by a map of its own: the system answers a fault
// with a large piece only where huge pages were asked for. They are not asked for in the map that
// the store is read by, since a read of a page that is only on the disk would bring in two
// megabytes. What is written later goes into the pieces that are there. Systems before Linux 5.14
// refuse.
func cacheAhead(f *os.File, off, n int64) {
	lo, hi := (off+hugePage-1)/hugePage*hugePage, (off+n)/hugePage*hugePage
	if !canMap || off < 0 || lo >= hi {
		return
	}
	_ = control(f, func(fd uintptr) error {
		p, err := unix.MmapPtr(int(fd), lo, nil, uintptr(hi-lo), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		b := unsafe.Slice((*byte)(p), hi-lo)
		// No order is expected: the system would read on past the range.
		if unix.Madvise(b, unix.MADV_HUGEPAGE) == nil && unix.Madvise(b, unix.MADV_RANDOM) == nil {
			_ = unix.Madvise(b, unix.MADV_POPULATE_READ) // an error where the file is shorter, not a signal
		}
		return unix.MunmapPtr(p, uintptr(hi-lo))
	})
}

func dropCache(f *os.File, off, n int64) {
	_ = control(f, func(fd uintptr) error { // A refusal costs memory and no more.
		return unix.Fadvise(int(fd), off, n, unix.FADV_DONTNEED)
	})
}
