//go:build amd64 || arm64

package prefetch

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkPages looks at two lines each of sixteen pages that lie anywhere in 128 MiB, in ns a page: one after the other, and asked for
// together before. It tells what asking is worth at best on a machine.
func BenchmarkPages(b *testing.B) {
	const pageSize, pages, together = 4096, 32 << 10, 16
	memory := make([]byte, pages*pageSize)
	for i := range memory {
		memory[i] = byte(i)
	}
	anywhere := make([]int, 1<<18)
	for i := range anywhere {
		anywhere[i] = rand.IntN(pages)
	}
	pieces, sum := make([][]byte, together), 0
	piece := func(i int) []byte { return memory[anywhere[i%len(anywhere)]*pageSize:][:2*line] }
	b.Run("one after the other", func(b *testing.B) {
		for i := range b.N {
			// Where the next page is depends on this one, as in a tree.
			p := piece(i + sum&1)
			sum += int(p[0]) + int(p[line])
		}
	})
	b.Run("together", func(b *testing.B) {
		for i := 0; i < b.N; i += together {
			for k := range pieces {
				pieces[k] = piece(i + k)
			}
			Each(pieces)
			for _, p := range pieces {
				sum += int(p[0]) + int(p[line])
			}
		}
	})
	if sum < 0 {
		b.Fatal("no sum")
	}
}
