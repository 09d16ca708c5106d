package kv_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// smallStore has rows whose keys count from 0, with values of 100 bytes.
func smallStore(b *testing.B, rows int) *kv.DB {
	b.Helper()
	db, err := kv.OpenMemory(&kv.Options{Durability: kv.NoSync})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	err = db.Update(func(tx *kv.Tx) error {
		for i := range rows {
			key := binary.BigEndian.AppendUint64(make([]byte, 8, 16), uint64(i))
			if err := tx.Put(key, make([]byte, 100)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return db
}

// BenchmarkCalls times what programs write around single rows, in a store of 10,000 rows.
func BenchmarkCalls(b *testing.B) {
	const rows = 10_000
	db := smallStore(b, rows)
	key := make([]byte, 16)
	anyKey := func() []byte {
		binary.BigEndian.PutUint64(key[8:], rand.Uint64N(rows))
		return key
	}
	value := make([]byte, 100)
	run := func(name string, call func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := call(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("view", func() error { return db.View(func(*kv.Tx) error { return nil }) })
	run("view and get", func() error {
		return db.View(func(tx *kv.Tx) error {
			_, err := tx.Get(anyKey())
			return err
		})
	})
	run("get", func() error {
		_, err := db.Get(anyKey())
		return err
	})
	run("put", func() error { return db.Put(anyKey(), value) })
	run("update and put",
		func() error { return db.Update(func(tx *kv.Tx) error { return tx.Put(anyKey(), value) }) })
	batch := db.NewBatch()
	run("batch of 1000 puts", func() error {
		batch.Reset()
		for range 1000 {
			batch.Put(anyKey(), value)
		}
		return db.Apply(context.Background(), batch)
	})
	run("update of 1000 puts", func() error {
		return db.Update(func(tx *kv.Tx) error {
			for range 1000 {
				if err := tx.Put(anyKey(), value); err != nil {
					return err
				}
			}
			return nil
		})
	})
	next := uint64(0)
	inOrder := func() []byte {
		next = (next + 1) % rows
		binary.BigEndian.PutUint64(key[8:], next)
		return key
	}
	run("update of 1000 puts in order", func() error {
		return db.Update(func(tx *kv.Tx) error {
			for range 1000 {
				if err := tx.Put(inOrder(), value); err != nil {
					return err
				}
			}
			return nil
		})
	})
	err := db.View(func(tx *kv.Tx) error {
		run("get in a view", func() error {
			_, err := tx.Get(anyKey())
			return err
		})
		run("range of no row", func() error {
			for range tx.Prefix(append(anyKey()[:15:15], 0xff, 0xff)) {
				break
			}
			return tx.Err()
		})
		run("range of a row", func() error {
			for range tx.Scan(kv.ScanOptions{Lower: anyKey()}) {
				break
			}
			return tx.Err()
		})
		run("range of 100 rows", func() error {
			n := 0
			for range tx.Scan(kv.ScanOptions{Lower: anyKey()}) {
				if n++; n == 100 {
					break
				}
			}
			return tx.Err()
		})
		upper := make([]byte, 16)
		run("range of 100 rows in bounds", func() error {
			lower := anyKey()
			binary.BigEndian.PutUint64(upper[8:], binary.BigEndian.Uint64(lower[8:])+100)
			for range tx.Scan(kv.ScanOptions{Lower: lower, Upper: upper}) {
			}
			return tx.Err()
		})
		c := tx.Cursor()
		run("cursor that seeks", func() error {
			c.Seek(anyKey())
			return c.Err()
		})
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

var getManyRows = flag.Int("getmany-rows", benchRows, "rows of the large store of BenchmarkGetMany")

// BenchmarkGetMany reads random keys, a thousand a call; get is as many calls of Get in the same
// transaction. Both take turns, so that a machine that is busy for a while is so for both: ratio is the
// median of their ratios, get/key and many/key are the medians in ns, without the drawing of the keys.
// The small stores fit the second cache of a processor.
func BenchmarkGetMany(b *testing.B) {
	for _, rows := range []int{100, 2000, 20_000, *getManyRows} {
		b.Run(fmt.Sprintf("%d rows", rows), func(b *testing.B) { benchGetMany(b, rows) })
	}
}

func benchGetMany(b *testing.B, rows int) {
	const together = 1000
	db := mustOpen(b, filepath.Join(b.TempDir(), "b.ebb"), nil)
	defer db.Close()
	bulkLoadScattered(b, db, rows)
	keys, memory := make([][]byte, together), make([]byte, 16*together)
	sum := 0
	took := func(read func() error) time.Duration {
		start := time.Now()
		if err := read(); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	var one, many, ratio []float64
	_ = db.View(func(tx *kv.Tx) error {
		for _, value := range tx.All() { // The first read of a page verifies it.
			sum += int(value[0])
		}
		get := func() error {
			for _, key := range keys {
				value, err := tx.Get(key)
				if err != nil {
					return err
				}
				sum += int(value[0])
			}
			return nil
		}
		getMany := func() error {
			return tx.GetMany(keys, func(_ int, value []byte) bool { sum += int(value[0]); return true })
		}
		draw := func() {
			for i := range keys {
				keys[i] = scattered(memory[16*i:16*i+16], rand.IntN(rows))
			}
		}
		for range b.N {
			draw()
			g := took(get)
			draw()
			m := took(getMany)
			one = append(one, float64(g.Nanoseconds())/together)
			many = append(many, float64(m.Nanoseconds())/together)
			ratio = append(ratio, float64(g)/float64(m))
		}
		return nil
	})
	b.ReportMetric(median(one), "get/key")
	b.ReportMetric(median(many), "many/key")
	b.ReportMetric(median(ratio), "ratio")
	b.ReportMetric(0, "ns/op")
}

// bulkLoadScattered loads the rows whose keys scattered gives.
func bulkLoadScattered(b *testing.B, db *kv.DB, rows int) {
	b.Helper()
	numbers, key, value := make([]int, rows), make([]byte, 16), make([]byte, 100)
	for i := range numbers {
		numbers[i] = i
	}
	first := func(i int) uint64 { return binary.BigEndian.Uint64(scattered(key, i)) }
	slices.SortFunc(numbers, func(i, j int) int { return cmp.Compare(first(i), first(j)) })
	_, err := db.BulkLoad(context.Background(), "default", func(yield func(k, v []byte) bool) {
		for _, i := range numbers {
			if !yield(scattered(key, i), value) {
				return
			}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// asIs is a codec that costs nothing: the value shares memory with the page.
type asIs struct{}

func (asIs) Append(dst, v []byte) ([]byte, error) { return append(dst, v...), nil }
func (asIs) Decode(b []byte) ([]byte, error)      { return b, nil }

// BenchmarkTable compares calls of a typed table with plain calls that encode their keys with the same
// codec. plain looks the family up in each call, handle once. Take the least of several runs.
func BenchmarkTable(b *testing.B) {
	const rows = 100_000
	db, err := kv.OpenMemory(&kv.Options{Durability: kv.NoSync})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	table, value := kv.NewTable("rows", kv.Uint64, kv.Codec[[]byte](asIs{})), make([]byte, 100)
	if err := db.CreateCF("rows", kv.CFOptions{}); err != nil {
		b.Fatal(err)
	}
	err = db.Update(func(tx *kv.Tx) error {
		for i := range uint64(rows) {
			if err := table.Put(tx, i, value); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	type call func(tx *kv.Tx, f *kv.CF, key uint64) error
	run := func(name string, begin func(func(*kv.Tx) error) error, do call) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			err := begin(func(tx *kv.Tx) error {
				f := tx.CF("rows")
				for b.Loop() {
					if err := do(tx, f, rand.Uint64N(rows)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
	k := make([]byte, 0, 8)
	get := func(_ *kv.Tx, f *kv.CF, key uint64) (err error) {
		if k, err = kv.Uint64.Append(k[:0], key); err == nil {
			_, err = f.Get(k)
		}
		return err
	}
	put := func(_ *kv.Tx, f *kv.CF, key uint64) (err error) {
		if k, err = kv.Uint64.Append(k[:0], key); err == nil {
			err = f.Put(k, value)
		}
		return err
	}
	run("get/handle", db.View, get)
	plain := func(do call) call {
		return func(tx *kv.Tx, _ *kv.CF, key uint64) error { return do(tx, tx.CF("rows"), key) }
	}
	run("get/plain", db.View, plain(get))
	run("get/table", db.View, func(tx *kv.Tx, _ *kv.CF, key uint64) error {
		_, err := table.Get(tx, key)
		return err
	})
	run("put/handle", db.Update, put)
	run("put/plain", db.Update, plain(put))
	run("put/table", db.Update, func(tx *kv.Tx, _ *kv.CF, key uint64) error {
		return table.Put(tx, key, value)
	})
	run("all/plain", db.View, func(tx *kv.Tx, f *kv.CF, _ uint64) error {
		for k := range f.All() {
			if _, err := kv.Uint64.Decode(k); err != nil {
				return err
			}
		}
		return nil
	})
	run("all/table", db.View, func(tx *kv.Tx, f *kv.CF, _ uint64) error {
		for range table.All(tx) {
		}
		return nil
	})
}
