package vfs_test

import (
	"path/filepath"
	"testing"

	"github.com/ebbkv/ebb/internal/vfs"
)

// BenchmarkMap is what the system takes for a map of 4 GiB over a file of 64 MiB in the page cache, which is what a store is read through: to make it and
// to give it back without a look at it, and for each first look at a place, with what that makes the end dearer.
func BenchmarkMap(b *testing.B) {
	const size, places = 64 << 20, 16
	f, err := vfs.OS.Open(filepath.Join(b.TempDir(), "file"), vfs.Write|vfs.Create)
	if err != nil {
		b.Fatal(err)
	}
	piece := make([]byte, 1<<20)
	for off := int64(0); off < size; off += int64(len(piece)) {
		if err := vfs.WriteFull(f, piece, off); err != nil {
			b.Fatal(err)
		}
	}
	sum := byte(0)
	view := func(looks int) {
		m, err := f.Map(0, 4<<30)
		if err != nil {
			b.Fatal(err)
		}
		for i := range looks {
			sum += m[i*(size/places)]
		}
		if err := f.Unmap(m); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("made and ended", func(b *testing.B) {
		for range b.N {
			view(0)
		}
	})
	b.Run("first look", func(b *testing.B) {
		for range b.N / places {
			view(places)
		}
	})
	if err := f.Close(); err != nil || sum != 0 {
		b.Fatal(sum, err)
	}
}
