package kv_test

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
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
