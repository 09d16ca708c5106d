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
