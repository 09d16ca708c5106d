package kv_test

import (
	"context"
	"encoding/binary"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// BenchmarkStoreApply counts batches of 1000 puts that do not wait for the disk: at random in a
// full store, and in order in one that is cleared now and then. Checkpoints run beside it, and all
// memory that it needs has been used before. Deletions of keys that are not there do nothing but
// find that out. The last part has a cache that most leaves do not fit into: they get patches.
func BenchmarkStoreApply(b *testing.B) {
	db := benchStore(b, &kv.Options{Durability: kv.NoSync})
	k, v, rows := make([]byte, 16), make([]byte, 100), db.NewBatch()
	run := func(b *testing.B, db *kv.DB, key func(i int) []byte) {
		b.Helper()
		rows := db.NewBatch()
		batch := 0
		apply := func() {
			rows.Reset()
			for i := range benchBatch {
				rows.Put(key(batch*benchBatch+i), v)
			}
			batch++
			if err := db.Apply(b.Context(), rows); err != nil {
				b.Fatal(err)
			}
		}
		for range benchRows / benchBatch {
			apply()
		}
		for b.Loop() {
			apply()
		}
		b.ReportMetric(float64(b.N)*benchBatch/b.Elapsed().Seconds(), "puts/s")
	}
	b.Run("at random", func(b *testing.B) {
		run(b, db, func(int) []byte { return scattered(k, rand.Intn(benchRows)) })
	})
	b.Run("of nothing", func(b *testing.B) {
		if err := db.Put([]byte("starts the log"), nil); err != nil { // a batch goes another way before
			b.Fatal(err)
		}
		for b.Loop() {
			b.StopTimer()
			rows.Reset()
			for range benchBatch {
				rows.Delete(append(scattered(k, rand.Intn(benchRows)), 'x'))
			}
			b.StartTimer()
			if err := db.Apply(b.Context(), rows); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("in order", func(b *testing.B) {
		run(b, db, func(i int) []byte {
			if i %= 200_000; i == 0 {
				if err := db.Clear(); err != nil {
					b.Fatal(err)
				}
			}
			binary.BigEndian.PutUint64(k, uint64(i))
			return k
		})
	})
	b.Run("at random beyond the cache", func(b *testing.B) {
		db := benchStore(b, &kv.Options{Durability: kv.NoSync, CacheBytes: 16 << 20})
		run(b, db, func(int) []byte { return scattered(k, rand.Intn(benchRows)) })
	})
}

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
