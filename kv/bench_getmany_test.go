package kv_test

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/ebbkv/ebb/kv"
)

// BenchmarkGetMany reads random keys, a thousand a call, in ns a key; get is as many calls of Get in the
// same transaction. The small store fits the second cache of a processor.
func BenchmarkGetMany(b *testing.B) {
	const together = 1000
	for _, rows := range []int{2000, benchRows} {
		db, err := kv.OpenMemory(nil)
		if err != nil {
			b.Fatal(err)
		}
		if rows == benchRows {
			_ = db.Close()
			db = benchStore(b, nil)
		} else {
			load(b, db, rows, scattered)
		}
		keys, memory := make([][]byte, together), make([]byte, 16*together)
		draw := func() {
			for i := range keys {
				keys[i] = scattered(memory[16*i:16*i+16], rand.Intn(rows))
			}
		}
		sum := 0
		run := func(name string, read func(tx *kv.Tx) error) {
			b.Run(fmt.Sprintf("%d rows/%s", rows, name), func(b *testing.B) {
				b.ReportAllocs()
				err := db.View(func(tx *kv.Tx) error {
					for i := 0; i < b.N; i += together {
						draw()
						if err := read(tx); err != nil {
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
		run("get", func(tx *kv.Tx) error {
			for _, key := range keys {
				value, err := tx.Get(key)
				if err != nil {
					return err
				}
				sum += int(value[0])
			}
			return nil
		})
		run("getmany", func(tx *kv.Tx) error {
			return tx.GetMany(keys, func(_ int, value []byte) bool { sum += int(value[0]); return true })
		})
		if rows != benchRows {
			_ = db.Close()
		}
	}
}
