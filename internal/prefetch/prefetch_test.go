package prefetch

import "testing"

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
