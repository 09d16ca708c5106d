package kv_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/ebbkv/ebb/kv"
)

// openFile opens a store on the real file system: pages are read through the map of the file.
func openFile(b *testing.B, o *kv.Options) *kv.DB {
	b.Helper()
	db, err := kv.Open(filepath.Join(b.TempDir(), "bench.ebb"), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	})
	return db
}

// benchKeys are n keys in random order, 16 bytes each.
func benchKeys(n int) [][]byte {
	rnd := rand.New(rand.NewPCG(7, 7))
	keys := make([][]byte, n)
	for i, j := range rnd.Perm(n) {
		keys[i] = fmt.Appendf(nil, "key/%012d", j)
	}
	return keys
}

// BenchmarkExpiryPut compares Put and PutTTL in batches of 1000; one operation is one key.
func BenchmarkExpiryPut(b *testing.B) {
	keys, value := benchKeys(200_000), make([]byte, 100)
	for _, kind := range []struct {
		name string
		put  func(tx *kv.Tx, i int) error
	}{
		{"put", func(tx *kv.Tx, i int) error { return tx.Put(keys[i], value) }},
		{"put_ttl", func(tx *kv.Tx, i int) error {
			return tx.PutTTL(keys[i], value, time.Hour+time.Duration(i)*time.Millisecond)
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			db := openFile(b, quick)
			i := 0
			for b.Loop() {
				if i%1000 == 0 {
					b.StopTimer()
				}
				if i%len(keys) == 0 { // Every round writes new keys.
					if err := db.Clear(); err != nil {
						b.Fatal(err)
					}
				}
				if i%1000 == 0 {
					b.StartTimer()
					at := i % len(keys)
					if err := db.Update(func(tx *kv.Tx) error {
						for j := range 1000 {
							if err := kind.put(tx, at+j); err != nil {
								return err
							}
						}
						return nil
					}); err != nil {
						b.Fatal(err)
					}
				}
				i++
			}
		})
	}
}

// BenchmarkExpiryApply counts batches of 1000 puts of rows that expire and get another expiry, at
// random among a million, with a sync and without.
func BenchmarkExpiryApply(b *testing.B) {
	const rows, batch = 1_000_000, 1000
	for _, d := range []kv.Durability{kv.NoSync, kv.Sync} {
		b.Run(fmt.Sprint(d), func(b *testing.B) {
			db := openFile(b, &kv.Options{Durability: d})
			some, v := db.NewBatch(), make([]byte, 100)
			k := make([]byte, 16)
			apply := func(key func(i int) []byte) {
				some.Reset()
				for i := range batch {
					some.PutTTL(key(i), v, time.Hour)
				}
				if err := db.Apply(b.Context(), some); err != nil {
					b.Fatal(err)
				}
			}
			for at := 0; at < rows; at += batch {
				apply(func(i int) []byte { return scattered(k, at+i) })
			}
			for b.Loop() {
				apply(func(int) []byte { return scattered(k, rand.IntN(rows)) })
			}
			b.ReportMetric(float64(b.N)*batch/b.Elapsed().Seconds(), "puts/s")
		})
	}
}

// BenchmarkExpiryShared counts durable one-shot puts of rows that expire, by many goroutines, at
// random among a million.
func BenchmarkExpiryShared(b *testing.B) {
	const rows = 1_000_000
	for _, writers := range []int{8, 64} {
		b.Run(fmt.Sprintf("%d writers", writers), func(b *testing.B) {
			db := openFile(b, nil)
			some, v := db.NewBatch(), make([]byte, 100)
			for at := 0; at < rows; at += 1000 {
				some.Reset()
				for i := range 1000 {
					some.PutTTL(scattered(make([]byte, 16), at+i), v, time.Hour)
				}
				if err := db.Apply(b.Context(), some); err != nil {
					b.Fatal(err)
				}
			}
			if err := db.Checkpoint(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.SetParallelism(writers / 2)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				k := make([]byte, 16)
				for pb.Next() {
					if err := db.PutTTL(scattered(k, rand.IntN(rows)), v, time.Hour); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
		})
	}
}

// BenchmarkExpiryGet compares a get in a plain family, of a permanent key in a family with 50 %
// keys that expire, and of a live key there that expires.
func BenchmarkExpiryGet(b *testing.B) {
	const n = 100_000
	keys, value := benchKeys(2*n), make([]byte, 100)
	db := openFile(b, quick)
	for _, name := range []string{"plain", "timed"} {
		if err := db.CreateCF(name, kv.CFOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Update(func(tx *kv.Tx) error {
		plain, timed := tx.CF("plain"), tx.CF("timed")
		for i, k := range keys {
			err := plain.Put(k, value)
			if err == nil && i%2 == 0 {
				err = timed.Put(k, value)
			} else if err == nil {
				err = timed.PutTTL(k, value, time.Hour+time.Duration(i)*time.Millisecond)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	if err := db.Checkpoint(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, kind := range []struct {
		name, family string
		first        int
	}{{"plain_family", "plain", 0}, {"permanent_key", "timed", 0}, {"live_ttl_key", "timed", 1}} {
		b.Run(kind.name, func(b *testing.B) {
			_ = db.View(func(tx *kv.Tx) error {
				family := tx.CF(kind.family)
				i := kind.first
				for b.Loop() {
					if _, err := family.Get(keys[i]); err != nil {
						b.Fatal(err)
					}
					if i += 2; i >= len(keys) {
						i = kind.first
					}
				}
				return nil
			})
		})
	}
}

// BenchmarkExpiryPurge purges 100,000 due keys among 1,000,000: each tenth one, which expire in the
// order of their keys, or in none. With OnExpireTx they go one after the other.
func BenchmarkExpiryPurge(b *testing.B) {
	inOrder := make([][]byte, 1_000_000)
	for i := range inOrder {
		inOrder[i] = fmt.Appendf(nil, "key/%012d", i)
	}
	atRandom := benchKeys(len(inOrder))
	for _, kind := range []struct {
		name  string
		keys  [][]byte
		batch int
		call  func(*kv.Tx, string, []byte, []byte) error
	}{
		{"in_order", inOrder, 0, nil}, {"at_random", atRandom, 0, nil},
		{"at_random,_batches_of_16384", atRandom, 16384, nil},
		{"in_order,_OnExpireTx", inOrder, 0, ignoreExpired}, {"at_random,_OnExpireTx", atRandom, 0,
			ignoreExpired},
	} {
		b.Run(kind.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				db, clock := loadExpiring(b, kind.keys, kind.call)
				clock.move(30 * time.Minute)
				b.StartTimer()
				res, err := db.PurgeExpired(b.Context(), kv.PurgeOptions{Batch: kind.batch})
				b.StopTimer()
				if err != nil || res.Purged != int64(len(kind.keys)/10) {
					b.Fatal(res, err)
				}
				if err := db.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.N)*float64(len(kind.keys)/10)/b.Elapsed().Seconds(), "keys/s")
		})
	}
}

func ignoreExpired(*kv.Tx, string, []byte, []byte) error { return nil }

// loadExpiring makes a store of these keys: each tenth one lives for about a minute, the others for
// an hour.
func loadExpiring(
	b *testing.B, keys [][]byte, call func(*kv.Tx, string, []byte, []byte) error,
) (*kv.DB, *testClock) {
	clock, value := newClock(), make([]byte, 20)
	db, err := kv.Open(filepath.Join(b.TempDir(), "bench.ebb"), &kv.Options{
		Durability: kv.NoSync, Clock: clock.now, CacheBytes: 1 << 30, OnExpireTx: call,
	})
	if err != nil {
		b.Fatal(err)
	}
	for at := 0; at < len(keys); at += 10_000 {
		if err := db.Update(func(tx *kv.Tx) error {
			for i := at; i < at+10_000; i++ {
				ttl := time.Hour
				if i%10 == 0 {
					ttl = time.Minute
				}
				if err := tx.PutTTL(keys[i], value, ttl+time.Duration(i)*time.Microsecond); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Checkpoint(b.Context()); err != nil {
		b.Fatal(err)
	}
	return db, clock
}
