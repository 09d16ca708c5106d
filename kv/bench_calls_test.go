package kv_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"

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
