package kv_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// BenchmarkTable compares gets of a table with the same calls and encodings by hand.
func BenchmarkTable(b *testing.B) {
	const n = 100_000
	db := openTest(b)
	require.NoError(b, db.CreateCF("numbers", kv.CFOptions{}))
	numbers := kv.NewTable("numbers", kv.Uint64, kv.Uint64)
	require.NoError(b, db.Update(func(tx *kv.Tx) error {
		for i := range uint64(n) {
			if err := numbers.Put(tx, i, i); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(b, db.View(func(tx *kv.Tx) error {
		b.Run("by hand", func(b *testing.B) {
			var key [8]byte
			for i := range b.N {
				binary.BigEndian.PutUint64(key[:], uint64(i)*7919%n)
				value, err := tx.CF("numbers").Get(key[:])
				if err != nil || binary.BigEndian.Uint64(value) != uint64(i)*7919%n {
					b.Fatal(err)
				}
			}
		})
		b.Run("table", func(b *testing.B) {
			for i := range b.N {
				value, err := numbers.Get(tx, uint64(i)*7919%n)
				if err != nil || value != uint64(i)*7919%n {
					b.Fatal(err)
				}
			}
		})
		return nil
	}))
}
