package kv_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
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

// TestAllocations pins what each call costs the garbage collector.
func TestAllocations(t *testing.T) {
	if racetest.Enabled {
		t.Skip("the race detector allocates")
	}
	db := openTest(t)
	for i := range 1000 {
		fill(t, db, fmt.Sprintf("k%05d", i))
	}
	key, above := []byte("k00500"), []byte("k00501")
	count := func(name string, want float64, fn func()) {
		t.Helper()
		require.LessOrEqual(t, testing.AllocsPerRun(200, fn), want, name)
	}
	buf := make([]byte, 0, 64)
	count("db.GetAppend", 0, func() { buf, _ = db.GetAppend(buf[:0], key) })
	count("db.Has", 0, func() { _, _ = db.Has(key) })
	count("db.Get", 1, func() { _, _ = db.Get(key) })
	view := func(*kv.Tx) error { return nil }
	count("View", 1, func() { _ = db.View(view) })
	family := db.CF("default")
	count("family.GetAppend", 0, func() { buf, _ = family.GetAppend(buf[:0], key) })
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		count("tx.Get", 0, func() { _, _ = tx.Get(key) })
		count("tx.GetAppend", 0, func() { buf, _ = tx.GetAppend(buf[:0], key) })
		count("tx.CF", 0, func() { _, _ = tx.CF("default").Has(key) })
		c := tx.Cursor()
		c.First()
		count("cursor step", 0, func() {
			if !c.Next() {
				c.First()
			}
			_ = c.Value()
		})
		count("cursor seek", 0, func() { c.Seek(key) })
		count("range", 3, func() {
			for range tx.All() {
			}
		})
		count("range within bounds", 4, func() {
			for range tx.Scan(kv.ScanOptions{Lower: key, Upper: above}) {
			}
		})
		return nil
	}))
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		require.NoError(t, tx.Put(key, key))
		count("tx.Put", 0, func() { _ = tx.Put(key, key) })
		return nil
	}))
	b := db.NewBatch()
	for i := range 200 {
		b.Put(fmt.Appendf(nil, "k%05d", i*7919%1000), key)
	}
	count("200 puts in a batch", 5, func() { _ = db.Apply(nil, b) })
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
