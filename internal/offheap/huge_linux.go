//go:build linux && !race

package offheap

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages: fewer misses when the tree's pages are looked up. A refusal costs nothing.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
