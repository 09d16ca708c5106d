package kv_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// BenchmarkCompact deletes nine tenths of the rows at random, and compacts the store beside a writer
// that commits for a tenth of the time, a millisecond in ten. It reports the length of the file before
// and after, in multiples of the pages in use, the bytes that Compact moved and the store wrote, in
// multiples of these pages, the 99th percentile of commits alone and beside Compact, the longest one,
// how long a cancelled Compact went on, and the pages that a second Compact writes. Commits beside it
// copy pages between two checkpoints: B-over-room is what the file has above 1.1 times the pages in use
// and the room for these copies.
//
//	go test ./kv -run '^$' -bench '^BenchmarkCompact$' -benchtime 1x
func BenchmarkCompact(b *testing.B) {
	for range b.N {
		b.StopTimer()
		db := openFile(b, &kv.Options{Durability: kv.NoSync})
		live := sparseRows(b, db)
		alone := startPuts(b, db, live)
		time.Sleep(time.Second)
		idle := alone()
		beside := startPuts(b, db, live)
		cancelled := time.Duration(0)
		for step := range 4 {
			cancelled = max(cancelled, cancelCompact(b, db, 1+2*step))
		}
		var r kv.CompactResult
		before := db.Stats()
		b.StartTimer()
		require.NoError(b, db.Compact(b.Context(), kv.CompactOptions{Result: &r}))
		b.StopTimer()
		puts := beside()
		require.NoError(b, db.Checkpoint(b.Context()))
		s := db.Stats()
		used := float64(s.FileBytes - s.FreeBytes)
		b.ReportMetric(float64(before.FileBytes)/used, "before/used")
		b.ReportMetric(float64(r.BytesAfter)/used, "after/used")
		b.ReportMetric(float64(r.MovedBytes)/used, "moved/used")
		b.ReportMetric(float64(s.PagesWritten-before.PagesWritten)*float64(s.PageSize)/used, "written/used")
		over := float64(r.BytesAfter) - used*1.1
		b.ReportMetric(float64(len(puts)), "puts")
		b.ReportMetric(float64(p99(idle).Microseconds()), "us-p99-alone")
		b.ReportMetric(float64(p99(puts).Microseconds()), "us-p99-beside")
		b.ReportMetric(float64(p99(puts))/float64(p99(idle)), "p99-ratio")
		b.ReportMetric(float64(puts[len(puts)-1].Milliseconds()), "ms-longest-put")
		b.ReportMetric(float64(cancelled.Microseconds())/1000, "ms-cancel")
		r = kv.CompactResult{}
		require.NoError(b, db.Compact(b.Context(), kv.CompactOptions{Result: &r}))
		b.ReportMetric(float64(db.Stats().PagesWritten-s.PagesWritten), "pages-again")
		room := roomOfCommits(b, db, live)
		b.ReportMetric(room/used, "room/used")
		b.ReportMetric(over-room, "B-over-room")
		require.NoError(b, db.Close())
	}
}

const sparseRowsPut, sparseRowSize = 400_000, 200

func sparseKey(i uint64) []byte { return binary.BigEndian.AppendUint64(nil, i*0x9E3779B97F4A7C15) }

// sparseRows puts rows and deletes nine tenths of them at random. It returns the numbers of the others.
func sparseRows(b *testing.B, db *kv.DB) (live []uint64) {
	const batch = 1000
	rnd := rand.New(rand.NewPCG(1, 2))
	each := func(fn func(tx *kv.Tx, i uint64) error) {
		for at := uint64(0); at < sparseRowsPut; at += batch {
			require.NoError(b, db.Update(func(tx *kv.Tx) error {
				for i := range uint64(batch) {
					if err := fn(tx, at+i); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
	each(func(tx *kv.Tx, i uint64) error { return tx.Put(sparseKey(i), make([]byte, sparseRowSize)) })
	require.NoError(b, db.Checkpoint(b.Context()))
	each(func(tx *kv.Tx, i uint64) error {
		if rnd.IntN(10) == 0 {
			live = append(live, i)
			return nil
		}
		return tx.Delete(sparseKey(i))
	})
	return live
}

const burstTime = time.Millisecond

// startPuts commits for a tenth of the time, until the returned function ends it. That returns how long
// each commit took, in ascending order.
func startPuts(b *testing.B, db *kv.DB, live []uint64) (end func() []time.Duration) {
	stop, all := make(chan struct{}), []time.Duration(nil)
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := 0; ; {
			for burst := time.Now(); time.Since(burst) < burstTime; n++ {
				began := time.Now()
				if err := db.Put(sparseKey(live[n%len(live)]), make([]byte, sparseRowSize)); err != nil {
					b.Error(err)
				}
				all = append(all, time.Since(began))
			}
			select {
			case <-stop:
				return
			case <-time.After(9 * burstTime):
			}
		}
	})
	return func() []time.Duration {
		close(stop)
		writer.Wait()
		slices.Sort(all)
		return all
	}
}

// roomOfCommits returns the bytes of the pages that the same writer dirties between two checkpoints.
func roomOfCommits(b *testing.B, db *kv.DB, live []uint64) float64 {
	end := startPuts(b, db, live)
	defer end()
	var written []uint64
	for last := db.Stats().Checkpoints; len(written) < 3; time.Sleep(time.Millisecond) {
		if s := db.Stats(); s.Checkpoints > last {
			last, written = s.Checkpoints, append(written, s.PagesWritten)
		}
	}
	return float64(written[2]-written[0]) / 2 * float64(db.Stats().PageSize)
}

func p99(sorted []time.Duration) time.Duration { return sorted[len(sorted)*99/100] }

// cancelCompact cancels a Compact in its n-th step, and returns how long it went on.
func cancelCompact(b *testing.B, db *kv.DB, n int) time.Duration {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	began, steps := time.Now(), 0
	err := db.Compact(ctx, kv.CompactOptions{Progress: func(int64, int64) {
		if steps++; steps == n {
			began = time.Now()
			cancel()
		}
	}})
	if err == nil {
		return 0 // it had ended
	}
	require.ErrorIs(b, err, context.Canceled)
	return time.Since(began)
}
