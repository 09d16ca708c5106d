package kv_test

import (
	"encoding/binary"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// BenchmarkIdleStore reports what the files of a store take that was overwritten at random, in multiples
// of its live rows: after the last commit, and when the store has been idle. Sessions have an expiry.
func BenchmarkIdleStore(b *testing.B) {
	b.Run("rows", func(b *testing.B) { idleStore(b, 300_000, 100, 0) })
	b.Run("sessions", func(b *testing.B) { idleStore(b, 100_000, 300, time.Hour) })
}

func idleStore(b *testing.B, rows uint64, size int, ttl time.Duration) {
	for b.Loop() {
		db, err := kv.Open(filepath.Join(b.TempDir(), "a.ebb"), &kv.Options{Durability: kv.NoSync})
		require.NoError(b, err)
		rnd := rand.New(rand.NewPCG(1, 1))
		key, value := make([]byte, 16), make([]byte, size)
		var puts kv.Batch
		for i := range 5 * rows {
			binary.BigEndian.PutUint64(key, rnd.Uint64N(rows)*0x9E3779B97F4A7C15)
			binary.BigEndian.PutUint64(value, rnd.Uint64())
			if ttl > 0 {
				puts.PutTTL(key, value, ttl-time.Duration(rnd.Int64N(int64(ttl/2))))
			} else {
				puts.Put(key, value)
			}
			if i%100 == 99 {
				require.NoError(b, db.Apply(b.Context(), &puts))
				puts.Reset()
			}
		}
		live, err := db.Count()
		require.NoError(b, err)
		room := func() float64 {
			s := db.Stats()
			return float64(s.DiskBytes+s.LogBytes) / float64(live*int64(len(key)+size))
		}
		b.ReportMetric(room(), "x-written")
		time.Sleep(40 * time.Second)
		b.ReportMetric(room(), "x-idle")
		require.NoError(b, db.Close())
	}
}
