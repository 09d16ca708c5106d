package prefetch

import (
	"bytes"
	"testing"
)

// TestHintsChangeNothing: of any length and alignment, and of memory that is not there.
func TestHintsChangeNothing(t *testing.T) {
	b := make([]byte, 1000)
	for i := range b {
		b[i] = byte(i)
	}
	for from := range 130 {
		for _, n := range []int{0, 1, 63, 64, 65, 512} {
			Bytes(b[from : from+n : from+n])
		}
	}
	Bytes(nil)
	Each([][]byte{nil, b[:1], b[990:], {}, b[3:200]})
	Each(nil)
	for i := range b {
		if b[i] != byte(i) {
			t.Fatal("a hint has changed memory")
		}
	}
}

// TestCopyCopies what copy would, of any length and alignment, and nothing beside it.
func TestCopyCopies(t *testing.T) {
	from := make([]byte, 100<<10)
	for i := range from {
		from[i] = byte(i*7 + i>>8)
	}
	to, want := make([]byte, len(from)), make([]byte, len(from))
	for _, n := range []int{0, 1, 2047, 2048, 2049, 16<<10 - 1, 16 << 10, 16<<10 + 1, 18 << 10,
		64<<10 + 100} {
		for _, shorter := range []int{-100, 0, 100} {
			for _, at := range []int{0, 1, 63, 64, 4097} {
				clear(to)
				clear(want)
				a, b := to[at+3:][:max(n+shorter, 0)], from[at:][:n]
				if Copy(a, b) != copy(want[at+3:][:len(a)], b) {
					t.Fatalf("%d of %d bytes: another number", len(a), n)
				}
				if !bytes.Equal(to, want) {
					t.Fatalf("%d of %d bytes from %d on: something else", len(a), n, at)
				}
			}
		}
	}
}
