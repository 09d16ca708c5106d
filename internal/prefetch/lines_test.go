//go:build amd64 || arm64

package prefetch

import "testing"

// TestEveryLineOfAPieceIsPrefetched: a piece that began in the middle of a line was prefetched
// without its last line, which is as slow as no prefetch, and shows in no other test.
func TestEveryLineOfAPieceIsPrefetched(t *testing.T) {
	for at := range uintptr(3 * line) {
		for n := 1; n <= 3*line; n++ {
			first, last := at/line, (at+uintptr(n)-1)/line
			if got := touched(at, n); got != int(last-first)+1 {
				t.Fatalf("%d bytes at %d: %d lines, they lie in %d", n, at, got, last-first+1)
			}
		}
	}
}
