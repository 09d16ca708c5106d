package kv_test

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// BenchmarkCompact deletes nine tenths of the rows at random, and compacts the store beside a writer
// that commits for a tenth of the time. It reports the length of the file before and after, in
// multiples of the pages in use, the bytes that Compact moved and the store wrote, in multiples of
// these pages, and the longest commit beside it.
//
//	go test ./kv -run '^$' -bench '^BenchmarkCompact$' -benchtime 1x
func BenchmarkCompact(b *testing.B) {
	const rows, size, batch = 400_000, 200, 1000
	key := func(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i*0x9E3779B97F4A7C15) }
	for range b.N {
		b.StopTimer()
		db := openFile(b, &kv.Options{Durability: kv.NoSync})
		rnd := rand.New(rand.NewPCG(1, 2))
		for at := uint64(0); at < rows; at += batch {
			require.NoError(b, db.Update(func(tx *kv.Tx) error {
				for i := range uint64(batch) {
					if err := tx.Put(key(at+i), make([]byte, size)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		require.NoError(b, db.Checkpoint(b.Context()))
		live := []uint64{}
		for at := uint64(0); at < rows; at += batch {
			require.NoError(b, db.Update(func(tx *kv.Tx) error {
				for i := range uint64(batch) {
					if rnd.IntN(10) == 0 {
						live = append(live, at+i)
					} else if err := tx.Delete(key(at + i)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		stop, longest := make(chan struct{}), time.Duration(0)
		var writer sync.WaitGroup
		writer.Go(func() {
			for n := 0; ; n++ {
				began := time.Now()
				if err := db.Put(key(live[n%len(live)]), make([]byte, size)); err != nil {
					b.Error(err)
				}
				took := time.Since(began)
				longest = max(longest, took)
				select {
				case <-stop:
					return
				case <-time.After(9 * took):
				}
			}
		})
		var r kv.CompactResult
		written := db.Stats().PagesWritten
		b.StartTimer()
		require.NoError(b, db.Compact(b.Context(), kv.CompactOptions{Result: &r}))
		b.StopTimer()
		s := db.Stats()
		close(stop)
		writer.Wait()
		used := float64(s.FileBytes - s.FreeBytes)
		b.ReportMetric(float64(r.BytesBefore)/used, "before/used")
		b.ReportMetric(float64(r.BytesAfter)/used, "after/used")
		b.ReportMetric(float64(r.MovedBytes)/used, "moved/used")
		b.ReportMetric(float64(s.PagesWritten-written)*float64(s.PageSize)/used, "written/used")
		b.ReportMetric(float64(r.BytesAfter)-used*1.1, "B-over-1.1")
		b.ReportMetric(float64(longest.Milliseconds()), "ms-longest-put")
		r = kv.CompactResult{}
		written = s.PagesWritten
		require.NoError(b, db.Compact(b.Context(), kv.CompactOptions{Result: &r}))
		b.ReportMetric(float64(db.Stats().PagesWritten-written), "pages-again")
		require.NoError(b, db.Close())
	}
}
