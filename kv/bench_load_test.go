package kv_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ebbkv/ebb/kv"
)

func BenchmarkStoreReopen(b *testing.B) {
	b.Run("clean", func(b *testing.B) {
		db := benchStore(b, nil)
		path := db.Path()
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			db, err := kv.Open(path, nil)
			if err != nil {
				b.Fatal(err)
			}
			if err := db.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("after a kill, 60 MB of log", func(b *testing.B) {
		db := benchStore(b, &kv.Options{CheckpointBytes: 1 << 40})
		load(b, db, 450_000, scattered)
		dir := b.TempDir()
		var took time.Duration
		for b.Loop() {
			b.StopTimer()
			files, err := filepath.Glob(db.Path() + "*")
			if err != nil {
				b.Fatal(err)
			}
			for _, f := range files { // as a killed process leaves them
				copyFile(b, f, filepath.Join(dir, filepath.Base(f)))
			}
			b.StartTimer()
			began := time.Now()
			killed := mustOpen(b, filepath.Join(dir, filepath.Base(db.Path())), nil)
			took += time.Since(began)
			b.StopTimer()
			if err := killed.Close(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		b.ReportMetric(float64(took.Milliseconds())/float64(b.N), "open-ms")
	})
}

// BenchmarkStoreLoad loads a million rows in durable transactions of 1000, and measures the file
// after Close.
func BenchmarkStoreLoad(b *testing.B) {
	for _, c := range []struct {
		name string
		key  func([]byte, int) []byte
	}{{"in order", ascending}, {"at random", scattered}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				path := filepath.Join(b.TempDir(), "l.ebb")
				db := mustOpen(b, path, nil)
				load(b, db, benchRows, c.key)
				if err := db.Close(); err != nil {
					b.Fatal(err)
				}
				info, err := os.Stat(path)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(info.Size())/benchData, "file/data")
				if err := os.Remove(path); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*benchRows/b.Elapsed().Seconds(), "rows/s")
		})
	}
	b.Run("bulk", func(b *testing.B) {
		for b.Loop() {
			db := mustOpen(b, filepath.Join(b.TempDir(), "l.ebb"), nil)
			k, v := make([]byte, 16), make([]byte, 100)
			n, err := db.BulkLoad(context.Background(), "default", func(yield func([]byte, []byte) bool) {
				for i := range benchRows {
					if !yield(ascending(k, i), v) {
						return
					}
				}
			})
			if err != nil || n != benchRows {
				b.Fatal(n, err)
			}
			if err := db.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*benchRows/b.Elapsed().Seconds(), "rows/s")
	})
}
