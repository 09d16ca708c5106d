//go:build linux && !race

package offheap

import (
	"os"

	"golang.org/x/sys/unix"
)

// adviseHuge asks for huge pages: fewer misses when the tree's pages are looked up. A refusal costs
// nothing.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

// UseSmallPages splits the huge pages of b, which Alloc returned, and asks for no others. Nothing in b
// changes. Of a huge page that is released in parts, the system frees nothing until it splits the
// page, which it seldom does by itself: it does at once where a part is said to be cold (since 5.4).
func UseSmallPages(b []byte) {
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE)
	for at, size := 0, os.Getpagesize(); at+size <= len(b); at += HugePage {
		_ = unix.Madvise(b[at:at+size], unix.MADV_COLD)
	}
}

// Release gives the memory of b, which is a part of what Alloc returned, back to the system. The
// addresses stay: what is read there later is zeros, or what was there before.
func Release(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTNEED) }
