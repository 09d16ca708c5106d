//go:build amd64 || arm64

package prefetch

import "testing"

// TestEveryLineOfAPieceIsAskedFor: a piece that begins in the middle of a line was asked for
// without its last one, which is as slow as if nobody had asked, and shows nowhere else.
func TestEveryLineOfAPieceIsAskedFor(t *testing.T) {
	for at := range uintptr(3 * line) {
		for n := 1; n <= 3*line; n++ {
			first, last := at/line, (at+uintptr(n)-1)/line
			if got := touched(at, n); got != int(last-first)+1 {
				t.Fatalf("%d bytes at %d: %d lines, they lie in %d", n, at, got, last-first+1)
			}
		}
	}
}
