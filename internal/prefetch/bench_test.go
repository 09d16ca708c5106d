//go:build amd64 || arm64

package prefetch

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkPages looks at two lines each of sixteen pages that lie anywhere in 128 MiB, in ns a
// page: one after the other, and asked for together before. It tells what asking is worth at best
// on a machine.
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

// BenchmarkCopy copies large pieces that lie anywhere in 128 MiB, as the built-in copy does and as
// Copy does, and one piece again and again.
func BenchmarkCopy(b *testing.B) {
	const pageSize = 4096
	memory := make([]byte, 128<<20)
	for i := range memory {
		memory[i] = byte(i)
	}
	for _, size := range []int{16 << 10, 64 << 10, 1 << 20} {
		pages := size/pageSize + 1
		anywhere := func() int { return rand.IntN(len(memory)/pageSize/pages) * pages * pageSize }
		to := make([]byte, size)
		for name, at := range map[string]func() int{"from anywhere": anywhere,
			"one piece": func() int { return 0 }} {
			for how, do := range map[string]func(to, from []byte) int{"built in": func(to,
				from []byte) int {
				return copy(to, from)
			}, "Copy": Copy} {
				b.Run(fmt.Sprintf("%d KiB, %s/%s", size>>10, name, how), func(b *testing.B) {
					b.SetBytes(int64(size))
					for b.Loop() {
						do(to, memory[at()+line:][:size])
					}
				})
			}
		}
	}
}
