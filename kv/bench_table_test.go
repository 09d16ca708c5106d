package kv_test

import (
	"math/rand/v2"
	"testing"

	"github.com/ebbkv/ebb/kv"
)

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
