package pager

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkCopyOfAMegabyte copies values that lie anywhere in memory, from the place in their first
// page where those of extents begin, and from the middle of a line of the processor, where they
// would with nothing between the size and them.
func BenchmarkCopyOfAMegabyte(b *testing.B) {
	const size, values = 1 << 20, 150
	memory, to := make([]byte, values*(size+MinPageSize)), make([]byte, size)
	for i := range memory {
		memory[i] = byte(i)
	}
	for _, offset := range []int{ExtentHeader, HeaderSize + 8} {
		b.Run(fmt.Sprintf("from_%d", offset), func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				from := memory[rand.IntN(values)*(size+MinPageSize)+offset:]
				copy(to, from[:size])
			}
		})
	}
}
