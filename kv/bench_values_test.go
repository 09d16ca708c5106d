package kv_test

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"os"
	"testing"
	"time"

	"github.com/ebbkv/ebb/kv"
)

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
