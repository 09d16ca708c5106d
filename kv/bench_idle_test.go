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
// of its live rows: after the last commit, and when the store has been idle.
func BenchmarkIdleStore(b *testing.B) {
	const rows, value, batch = 300_000, 100, 100
	for b.Loop() {
		db, err := kv.Open(filepath.Join(b.TempDir(), "a.ebb"), &kv.Options{Durability: kv.NoSync})
		require.NoError(b, err)
		rnd := rand.New(rand.NewPCG(1, 1))
		key, val := make([]byte, 16), make([]byte, value)
		for range 5 * rows / batch {
			var puts kv.Batch
			for range batch {
				binary.BigEndian.PutUint64(key, rnd.Uint64N(rows)*0x9E3779B97F4A7C15)
				binary.BigEndian.PutUint64(val, rnd.Uint64())
				puts.Put(key, val)
			}
			require.NoError(b, db.Apply(b.Context(), &puts))
		}
		live, err := db.Count()
		require.NoError(b, err)
		room := func() float64 {
			s := db.Stats()
			return float64(s.DiskBytes+s.LogBytes) / float64(live*(16+value))
		}
		b.ReportMetric(room(), "x-written")
		time.Sleep(40 * time.Second)
		b.ReportMetric(room(), "x-idle")
		require.NoError(b, db.Close())
	}
}
