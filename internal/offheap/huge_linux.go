//go:build linux && !race

package offheap

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages: fewer misses when the tree's pages are looked up. A refusal costs
// nothing.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

// Release gives the memory of b, which is a part of what Alloc returned, back to the system. The
// addresses stay: what is read there later is zeros, or what was there before.
func Release(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTNEED) }

// Touch has the system find memory for b, which is a part of what Alloc returned, now and not when
// it is used first. It may be in use: nothing in it changes. Systems before Linux 5.14 refuse, and
// nothing is lost.
func Touch(b []byte) { _ = unix.Madvise(b, unix.MADV_POPULATE_WRITE) }
