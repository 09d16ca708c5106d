package kv_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ebbkv/ebb/kv"
)

// The benchmarks work on a store of a million rows, 16 byte keys and 100 byte values, loaded once
// for all of them.
const (
	benchRows  = 1_000_000
	benchBatch = 1000
	benchData  = benchRows * (16 + 100)
)

// scattered spreads row i over the key space: every order but that of insertion.
func scattered(b []byte, i int) []byte {
	binary.BigEndian.PutUint64(b, uint64(i)*0x9E3779B97F4A7C15)
	binary.BigEndian.PutUint64(b[8:], uint64(i))
	return b
}

func ascending(b []byte, i int) []byte {
	copy(b, fmt.Sprintf("%016d", i))
	return b
}

// load puts n rows in durable transactions of benchBatch.
func load(b testing.TB, db *kv.DB, n int, key func([]byte, int) []byte) {
	b.Helper()
	k, v := make([]byte, 16), make([]byte, 100)
	for i := 0; i < n; i += benchBatch {
		err := db.Update(func(tx *kv.Tx) error {
			for j := i; j < min(i+benchBatch, n); j++ {
				if err := tx.Put(key(k, j), v); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

var benchFile struct {
	once sync.Once
	path string
}

// removeBenchFile is for after the last benchmark: the file is 170 MB.
func removeBenchFile() error {
	if benchFile.path == "" {
		return nil
	}
	return os.RemoveAll(filepath.Dir(benchFile.path))
}

// benchStore opens a copy of the loaded store.
func benchStore(b *testing.B, o *kv.Options) *kv.DB {
	b.Helper()
	benchFile.once.Do(func() {
		dir, err := os.MkdirTemp("", "ebb-bench")
		if err != nil {
			b.Fatal(err)
		}
		benchFile.path = filepath.Join(dir, "rows.ebb") // TestMain removes it
		db := mustOpen(b, benchFile.path, nil)
		load(b, db, benchRows, scattered)
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	})
	path := filepath.Join(b.TempDir(), "b.ebb")
	copyFile(b, benchFile.path, path)
	db := mustOpen(b, path, o)
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return db
}

func mustOpen(b testing.TB, path string, o *kv.Options) *kv.DB {
	b.Helper()
	db, err := kv.Open(path, o)
	if err != nil {
		b.Fatal(err)
	}
	return db
}

func copyFile(b testing.TB, from, to string) {
	b.Helper()
	src, err := os.Open(from)
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(dst, src); err != nil {
		b.Fatal(err)
	}
	if err := dst.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkStoreGet(b *testing.B) {
	db := benchStore(b, nil)
	k := make([]byte, 16)
	b.ReportAllocs()
	b.Run("in one transaction", func(b *testing.B) {
		err := db.View(func(tx *kv.Tx) error {
			for b.Loop() {
				if _, err := tx.Get(scattered(k, rand.Intn(benchRows))); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	})
	b.Run("one-shot", func(b *testing.B) {
		var v []byte
		var err error
		for b.Loop() {
			if v, err = db.GetAppend(v[:0], scattered(k, rand.Intn(benchRows))); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("missing", func(b *testing.B) {
		for b.Loop() {
			if _, err := db.Has(scattered(k, benchRows+rand.Intn(benchRows))); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkStoreGetLarge gets values of a store of 128 MiB at random, each in a transaction of its
// own.
func BenchmarkStoreGetLarge(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%d KiB", size>>10), func(b *testing.B) {
			db := mustOpen(b, filepath.Join(b.TempDir(), "b.ebb"), nil)
			defer db.Close()
			n, v, k := 128<<20/size, make([]byte, size), make([]byte, 16)
			for i := range n {
				if err := db.Put(scattered(k, i), v); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(size))
			var err error
			for b.Loop() {
				if v, err = db.GetAppend(v[:0], scattered(k, rand.Intn(n))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStoreFirstRead reads each value of a store of 128 MiB once after it was opened, which
// proves it, and copies none; bytes a second.
func BenchmarkStoreFirstRead(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%d KiB", size>>10), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "b.ebb")
			db := mustOpen(b, path, nil)
			n, v := 128<<20/size, make([]byte, size)
			for i := range n {
				if err := db.Put(scattered(make([]byte, 16), i), v); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(128 << 20)
			for b.Loop() {
				b.StopTimer()
				if err := db.Close(); err != nil {
					b.Fatal(err)
				}
				db = mustOpen(b, path, nil)
				b.StartTimer()
				read := 0
				err := db.View(func(tx *kv.Tx) error {
					for _, v := range tx.All() {
						read += len(v)
					}
					return nil
				})
				if err != nil || read != 128<<20 {
					b.Fatal(read, err)
				}
			}
			if err := db.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func BenchmarkStorePut(b *testing.B) {
	v := make([]byte, 100)
	b.Run("NoSync", func(b *testing.B) {
		db := benchStore(b, &kv.Options{Durability: kv.NoSync})
		k := make([]byte, 16)
		b.ReportAllocs()
		for b.Loop() {
			if err := db.Put(scattered(k, rand.Intn(benchRows)), v); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, writers := range []int{1, 2, 8, 64, 256} {
		b.Run(fmt.Sprintf("durable, %d writers", writers), func(b *testing.B) {
			db := benchStore(b, nil)
			b.SetParallelism((writers + 1) / 2)
			if writers == 1 {
				k := make([]byte, 16)
				for b.Loop() {
					if err := db.Put(scattered(k, rand.Intn(benchRows)), v); err != nil {
						b.Fatal(err)
					}
				}
				return
			}
			b.ResetTimer() // the store may just have been made
			before := db.Stats()
			defer func() {
				st := db.Stats()
				b.ReportMetric(float64(b.N)/float64(st.Commits-before.Commits), "puts/commit")
				b.ReportMetric(float64(b.N)/float64(st.Groups-before.Groups), "puts/group")
			}()
			b.RunParallel(func(pb *testing.PB) {
				k := make([]byte, 16)
				for pb.Next() {
					if err := db.Put(scattered(k, rand.Intn(benchRows)), v); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkStoreUpdate counts transactions of 1000 puts.
func BenchmarkStoreUpdate(b *testing.B) {
	db := benchStore(b, nil)
	k, v := make([]byte, 16), make([]byte, 100)
	for b.Loop() {
		err := db.Update(func(tx *kv.Tx) error {
			for range benchBatch {
				if err := tx.Put(scattered(k, rand.Intn(benchRows)), v); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*benchBatch/b.Elapsed().Seconds(), "puts/s")
}

// BenchmarkStoreScan counts scans of the whole store, and of some 100 rows that begin anywhere.
func BenchmarkStoreScan(b *testing.B) {
	db := benchStore(b, nil)
	for _, reverse := range []bool{false, true} {
		b.Run(map[bool]string{false: "forward", true: "back"}[reverse], func(b *testing.B) {
			for b.Loop() {
				n, sum := 0, 0
				err := db.View(func(tx *kv.Tx) error {
					for k, v := range tx.Scan(kv.ScanOptions{Reverse: reverse}) {
						n++
						sum += int(k[0]) + int(v[len(v)-1])
					}
					return nil
				})
				if err != nil || n != benchRows || sum == 0 {
					b.Fatal(n, err)
				}
			}
			b.ReportMetric(float64(b.N)*benchRows/b.Elapsed().Seconds(), "rows/s")
		})
	}
	b.Run("cursor", func(b *testing.B) {
		for b.Loop() {
			n, sum := 0, 0
			err := db.View(func(tx *kv.Tx) error {
				c := tx.Cursor()
				for c.Next() {
					n++
					v := c.Value()
					sum += int(c.Key()[0]) + int(v[len(v)-1])
				}
				return c.Err()
			})
			if err != nil || n != benchRows || sum == 0 {
				b.Fatal(n, err)
			}
		}
		b.ReportMetric(float64(b.N)*benchRows/b.Elapsed().Seconds(), "rows/s")
	})
	b.Run("100 rows", func(b *testing.B) {
		lo, hi, n, sum := make([]byte, 16), make([]byte, 8), 0, 0
		err := db.View(func(tx *kv.Tx) error {
			for b.Loop() {
				scattered(lo, rand.Intn(benchRows))
				binary.BigEndian.PutUint64(hi, binary.BigEndian.Uint64(lo)+100*(math.MaxUint64/benchRows))
				for k, v := range tx.Scan(kv.ScanOptions{Lower: lo[:8], Upper: hi}) {
					n++
					sum += int(k[0]) + int(v[len(v)-1])
				}
			}
			return nil
		})
		if err != nil || n == 0 || sum == 0 {
			b.Fatal(n, err)
		}
		b.ReportMetric(float64(n)/float64(b.N), "rows/scan")
	})
}

func BenchmarkGet(b *testing.B) {
	db := openTest(b)
	const n = 100_000
	if _, err := db.BulkLoad(b.Context(), "default", numbered(n)); err != nil {
		b.Fatal(err)
	}
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "k%08d", i*7919%n)
	}
	b.Run("in_a_transaction", func(b *testing.B) {
		_ = db.View(func(tx *kv.Tx) error {
			for i := 0; b.Loop(); i++ {
				_, _ = tx.Get(keys[i%n])
			}
			return nil
		})
	})
	b.Run("one_shot", func(b *testing.B) {
		var buf []byte
		for i := 0; b.Loop(); i++ {
			buf, _ = db.GetAppend(buf[:0], keys[i%n])
		}
	})
	b.Run("view", func(b *testing.B) {
		for b.Loop() {
			_ = db.View(func(*kv.Tx) error { return nil })
		}
	})
	b.Run("range_row", func(b *testing.B) {
		_ = db.View(func(tx *kv.Tx) error {
			for left := b.N; left > 0; {
				for range tx.All() {
					if left--; left == 0 {
						break
					}
				}
			}
			return nil
		})
	})
	b.Run("cursor_row", func(b *testing.B) {
		_ = db.View(func(tx *kv.Tx) error {
			c := tx.Cursor()
			for b.Loop() {
				if !c.Next() {
					c.First()
				}
			}
			return nil
		})
	})
}
