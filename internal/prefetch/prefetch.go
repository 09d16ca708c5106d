//go:build amd64 || arm64

package prefetch

import "unsafe"

// line is the size of a cache line in bytes.
const line = 64

// Bytes asks for the lines of b, which should be few: a processor has about twenty on their way at
// once.
func Bytes(b []byte) {
	if len(b) > 0 {
		p := unsafe.Pointer(unsafe.SliceData(b))
		lines(p, touched(uintptr(p), len(b)))
	}
}

// touched is how many lines n bytes lie in that begin at an address, which may be in the middle of
// one.
func touched(at uintptr, n int) int { return (int(at%line) + n + line - 1) / line }

// Each prefetches the lines of several pieces, the first line of each before the rest of any. A
// processor needs the physical address of a hinted line, which takes about as long as a line of
// memory if the page is not in the TLB; consecutive hints translate their addresses at the same
// time.
func Each(pieces [][]byte) {
	for _, b := range pieces {
		if len(b) > 0 {
			lines(unsafe.Pointer(unsafe.SliceData(b)), 1)
		}
	}
	for _, b := range pieces {
		if len(b) > line {
			Bytes(b[line:])
		}
	}
}

// lines asks for n lines from p on, n at least 1. It is in assembly because the compiler has no
// words for it.
//
//go:noescape
func lines(p unsafe.Pointer, n int)
