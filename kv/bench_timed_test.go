package kv_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// BenchmarkAppend compares rows by time with plain puts in order, in transactions of 1,000.
func BenchmarkAppend(b *testing.B) {
	start := time.UnixMilli(1_700_000_000_000)
	ms := int64(0)
	now := func() time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	o := &kv.Options{Durability: kv.NoSync, Clock: now}
	value := make([]byte, 100)
	for _, name := range []string{"put", "append"} {
		b.Run(name, func(b *testing.B) {
			db := openFile(b, o)
			require.NoError(b, db.CreateCF("m", kv.CFOptions{Retention: 1000 * time.Hour, Partition: time.Hour}))
			for i := 0; i < b.N; i += 1000 {
				require.NoError(b, db.Update(func(tx *kv.Tx) error {
					c := tx.CF("default")
					if name == "append" {
						c = tx.CF("m")
					}
					for j := range 1000 {
						ms++
						var err error
						if name == "append" {
							err = c.Append(now(), []byte("series-1"), value)
						} else {
							err = c.Put(fmt.Appendf(nil, "%016d", i+j), value)
						}
						if err != nil {
							return err
						}
					}
					return nil
				}))
			}
		})
	}
}

// BenchmarkManyPartitions measures an open, and a commit of one row, of a store with so many
// partitions.
func BenchmarkManyPartitions(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		now := time.UnixMilli(1_700_000_000_000)
		o := &kv.Options{Durability: kv.NoSync, Clock: func() time.Time { return now }}
		path := b.TempDir() + "/s.ebb"
		db, err := kv.Open(path, o)
		require.NoError(b, err)
		require.NoError(b, db.CreateCF("m", kv.CFOptions{Retention: 1000 * time.Hour, Partition: time.Minute}))
		require.NoError(b, db.Update(func(tx *kv.Tx) error {
			for i := range n {
				if err := tx.CF("m").Append(now.Add(-time.Duration(i)*time.Minute), []byte("k"), []byte("v")); err != nil {
					return err
				}
			}
			return nil
		}))
		require.NoError(b, db.Close())
		b.Run(fmt.Sprint("open/", n), func(b *testing.B) {
			for range b.N {
				db, err := kv.Open(path, o)
				require.NoError(b, err)
				require.NoError(b, db.Close())
			}
		})
		b.Run(fmt.Sprint("commit/", n), func(b *testing.B) {
			db, err := kv.Open(path, o)
			require.NoError(b, err)
			m := db.CF("m")
			for i := range b.N {
				require.NoError(b, m.Append(now, fmt.Append(nil, i%1000), []byte("v")))
			}
			require.NoError(b, db.Close())
		})
		b.Run(fmt.Sprint("put/", n), func(b *testing.B) {
			db, err := kv.Open(path, o)
			require.NoError(b, err)
			for i := range b.N {
				require.NoError(b, db.Put(fmt.Append(nil, i%1000), []byte("v")))
			}
			require.NoError(b, db.Close())
		})
	}
}
