package kv_test

import (
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// BenchmarkBackup backs up a store of 1 GB, of rows of 200 bytes that came at random, to a file, in turns
// with a copy of the store's file by read and write. It reports the rate of the backup as a part of the
// copy's, the median of five turns; the bytes of a full backup, as a multiple of the pages in use, and of
// an increment of 100 changed rows; the bytes of WriteTo as a multiple of the rows; the most memory on
// the heap while a backup runs; and the 99th percentile of commits alone and beside a full backup, the
// median of three turns. Its files take 3 GB.
//
//	go test ./kv -run '^$' -bench '^BenchmarkBackup$' -benchtime 1x -timeout 30m
func BenchmarkBackup(b *testing.B) {
	const rows, size, batch = 3_600_000, 200, 10_000
	for range b.N {
		b.StopTimer()
		db := openFile(b, &kv.Options{Durability: kv.NoSync})
		for at := uint64(0); at < rows; at += batch {
			require.NoError(b, db.Update(func(tx *kv.Tx) error {
				for i := range uint64(batch) {
					if err := tx.Put(sparseKey(at+i), make([]byte, size)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		require.NoError(b, db.Compact(b.Context(), kv.CompactOptions{})) // a copy reads holes in no time
		s := db.Stats()
		to := filepath.Join(b.TempDir(), "out")
		ratios, full, peak := []float64{}, kv.BackupInfo{}, uint64(0)
		for range 5 {
			copied := timeOf(b, to, func(w io.Writer) error {
				f, err := os.Open(db.Path())
				require.NoError(b, err)
				defer f.Close()
				_, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{f}, make([]byte, 128<<10))
				return err
			}) / float64(s.FileBytes)
			runtime.GC()
			before := heapBytes()
			o := kv.BackupOptions{Progress: func(_, _ int64) { peak = max(peak, heapBytes()-before) }}
			backedUp := timeOf(b, to, func(w io.Writer) (err error) {
				full, err = db.Backup(context.Background(), w, o)
				return err
			}) / float64(full.Bytes)
			ratios = append(ratios, copied/backedUp)
		}
		slices.Sort(ratios)
		for i := range uint64(100) {
			require.NoError(b, db.Put(sparseKey(i*(rows/100)), make([]byte, size)))
		}
		increment, err := db.Backup(b.Context(), io.Discard, kv.BackupOptions{Since: &full})
		require.NoError(b, err)
		written := int64(0)
		require.NoError(b, db.View(func(tx *kv.Tx) (err error) {
			written, err = tx.WriteTo(io.Discard)
			return err
		}))
		alone, beside := commitsBesideBackups(b, db, to, rows)
		b.ReportMetric(float64(alone.Microseconds()), "us-p99-alone")
		b.ReportMetric(float64(beside.Microseconds()), "us-p99-beside")
		b.ReportMetric(float64(beside)/float64(alone), "p99-ratio")
		b.ReportMetric(float64(s.FileBytes)/1e9, "GB-store")
		b.ReportMetric(ratios[2], "rate/copy")
		b.ReportMetric(float64(full.Bytes)/float64(s.FileBytes-s.FreeBytes), "bytes/used")
		b.ReportMetric(float64(increment.Bytes), "B-increment")
		b.ReportMetric(float64(written)/(rows*(size+8)), "writeto/rows")
		b.ReportMetric(float64(peak)/(1<<20), "MiB-heap")
	}
}

// commitsBesideBackups returns the 99th percentile of puts of a writer that commits for a tenth of the
// time: alone for two seconds and beside a full backup, the medians of three turns.
func commitsBesideBackups(b *testing.B, db *kv.DB, to string, rows uint64) (alone, beside time.Duration) {
	rnd, live := rand.New(rand.NewPCG(1, 2)), make([]uint64, 1<<16)
	for i := range live {
		live[i] = rnd.Uint64N(rows)
	}
	var without, with []time.Duration
	for range 3 {
		require.NoError(b, db.Checkpoint(b.Context()))
		end := startPuts(b, db, live)
		time.Sleep(2 * time.Second)
		without = append(without, p99(end()))
		require.NoError(b, db.Checkpoint(b.Context()))
		end = startPuts(b, db, live)
		timeOf(b, to, func(w io.Writer) error {
			_, err := db.Backup(b.Context(), w, kv.BackupOptions{})
			return err
		})
		with = append(with, p99(end()))
	}
	slices.Sort(without)
	slices.Sort(with)
	return without[1], with[1]
}

// heapBytes is the size of the objects on the heap, with those that are garbage.
func heapBytes() uint64 {
	sample := [1]metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample[:])
	return sample[0].Value.Uint64()
}

// timeOf returns the nanoseconds in which fn writes a new file.
func timeOf(b *testing.B, path string, fn func(w io.Writer) error) float64 {
	b.Helper()
	f, err := os.Create(path)
	require.NoError(b, err)
	began := time.Now()
	require.NoError(b, fn(f))
	took := time.Since(began)
	require.NoError(b, f.Close())
	require.NoError(b, os.Remove(path))
	return float64(took)
}

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
