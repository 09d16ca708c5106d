package kv_test

import (
	"context"
	"encoding/binary"
	"fmt"
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

// BenchmarkValuesOfAPart of a page: 50,000 rows are put at random, in batches of a thousand, and put
// again. It reports the size of the closed file in bytes for each byte of the rows, a get at random and
// a row of a scan. One turn is enough: -benchtime 1x.
func BenchmarkValuesOfAPart(b *testing.B) {
	for _, size := range []int{300, 1000, 1400, 1900} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			for b.Loop() {
				valuesOfAPart(b, size)
			}
		})
	}
}

func valuesOfAPart(b *testing.B, size int) {
	const rows = 50_000
	path := b.TempDir() + "/a.ebb"
	db, err := kv.Open(path, &kv.Options{Durability: kv.NoSync})
	if err != nil {
		b.Fatal(err)
	}
	keys := make([][]byte, rows)
	for i, at := range rand.New(rand.NewSource(1)).Perm(rows) {
		keys[i] = binary.BigEndian.AppendUint64(nil, uint64(at)*0x9E3779B97F4A7C15)
	}
	for at := 0; at < 2*rows; at += 1000 {
		var batch kv.Batch
		for _, key := range keys[at%rows : at%rows+1000] {
			batch.Put(key, make([]byte, size))
		}
		if err := db.Apply(b.Context(), &batch); err != nil {
			b.Fatal(err)
		}
	}
	began := time.Now()
	for i := range keys {
		if v, err := db.Get(keys[i*7919%rows]); err != nil || len(v) != size {
			b.Fatal(len(v), err)
		}
	}
	b.ReportMetric(float64(time.Since(began).Nanoseconds())/rows, "ns/get")
	began = time.Now()
	err = db.View(func(tx *kv.Tx) error {
		for range tx.All() {
		}
		return tx.Err()
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(began).Nanoseconds())/rows, "ns/row")
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	file, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(file.Size())/float64(rows*(size+8)), "file/data")
}
