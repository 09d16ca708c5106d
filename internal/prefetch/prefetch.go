//go:build amd64 || arm64

package prefetch

import "unsafe"

// line is the size of a cache line in bytes.
const line = 64

// Bytes asks for the lines of b, which should be few: a processor has about twenty on their way at once.
func Bytes(b []byte) {
	if len(b) > 0 {
		lines(unsafe.Pointer(unsafe.SliceData(b)), (len(b)+line-1)/line)
	}
}

// lines asks for n lines from p on, n at least 1. It is in assembly because the compiler has no words for it.
//
//go:noescape
func lines(p unsafe.Pointer, n int)
