package vfs_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/ebbkv/ebb/internal/vfs"
)

// BenchmarkMap is what the system takes for a map of 4 GiB over a file of 64 MiB in the page cache,
// which is what a store is read through: to make it and to give it back without a look at it, and
// for each first look, at places far from each other or at one page after the other, with what that
// makes the end dearer.
func BenchmarkMap(b *testing.B) {
	written := mappedFile(b, func(f vfs.File) error { return vfs.WriteFull(f, make([]byte, mappedBytes), 0) })
	for _, run := range []struct {
		name  string
		f     vfs.File
		looks int
	}{
		{"made and ended", written, 0},
		{"first look", written, 16},
		{"first look, every page", written, mappedBytes / 4096},
	} {
		b.Run(run.name, func(b *testing.B) {
			sum := byte(0)
			for range b.N/max(run.looks, 1) + 1 {
				m, err := run.f.Map(0, 4<<30)
				if err != nil {
					b.Fatal(err)
				}
				for i := range run.looks {
					sum += m[i*(mappedBytes/run.looks)]
				}
				if err := run.f.Unmap(m); err != nil || sum != 0 {
					b.Fatal(sum, err)
				}
			}
		})
	}
}

// BenchmarkCopy copies pages of a file that is in the page cache, in any order, each once: by a
// system call, and from an untouched map.
func BenchmarkCopy(b *testing.B) {
	f := mappedFile(b, func(f vfs.File) error { return vfs.WriteFull(f, make([]byte, mappedBytes), 0) })
	order := rand.New(rand.NewPCG(1, 2)).Perm(mappedBytes / 4096)
	to := make([]byte, mappedBytes)
	clear(to)
	b.Run("call", func(b *testing.B) {
		for i := range b.N {
			at := order[i%len(order)]
			if err := vfs.ReadFull(f, to[i%len(order)*4096:][:4096], int64(at)*4096); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("map", func(b *testing.B) {
		for done := 0; done < b.N; done += len(order) {
			m, err := f.Map(0, 4<<30)
			if err != nil {
				b.Fatal(err)
			}
			for i, at := range order[:min(len(order), b.N-done)] {
				copy(to[i*4096:][:4096], m[at*4096:])
			}
			if err := f.Unmap(m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

const mappedBytes = 64 << 20

// mappedFile is a file that fill has given its content.
func mappedFile(b *testing.B, fill func(vfs.File) error) vfs.File {
	f, err := vfs.OS.Open(filepath.Join(b.TempDir(), "file"), vfs.Write|vfs.Create)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	if err := fill(f); err != nil {
		b.Fatal(err)
	}
	return f
}
