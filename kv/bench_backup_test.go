package kv_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// BenchmarkBackup backs up a store of 600,000 rows of 200 bytes that came at random, to a file, in turns
// with a copy of the store's file by read and write. It reports the rate of the backup as a part of the
// copy's, the median of five turns; the bytes of a full backup, as a multiple of the pages in use, and of
// an increment of 100 changed rows; the bytes of WriteTo as a multiple of the rows; and the memory that a
// backup allocates in all.
//
//	go test ./kv -run '^$' -bench '^BenchmarkBackup$' -benchtime 1x
func BenchmarkBackup(b *testing.B) {
	const rows, size, batch = 600_000, 200, 10_000
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
		require.NoError(b, db.Checkpoint(b.Context()))
		s := db.Stats()
		to := filepath.Join(b.TempDir(), "out")
		ratios, full, allocated := []float64{}, kv.BackupInfo{}, uint64(0)
		for range 5 {
			copied := timeOf(b, to, func(w io.Writer) error {
				f, err := os.Open(db.Path())
				require.NoError(b, err)
				defer f.Close()
				_, err = io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{f}, make([]byte, 128<<10))
				return err
			}) / float64(s.FileBytes)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			backedUp := timeOf(b, to, func(w io.Writer) (err error) {
				full, err = db.Backup(context.Background(), w, kv.BackupOptions{})
				return err
			}) / float64(full.Bytes)
			runtime.ReadMemStats(&after)
			allocated = max(allocated, after.TotalAlloc-before.TotalAlloc)
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
		b.ReportMetric(ratios[2], "rate/copy")
		b.ReportMetric(float64(full.Bytes)/float64(s.FileBytes-s.FreeBytes), "bytes/used")
		b.ReportMetric(float64(increment.Bytes), "B-increment")
		b.ReportMetric(float64(written)/(rows*(size+8)), "writeto/rows")
		b.ReportMetric(float64(allocated)/(1<<20), "MiB-allocated")
	}
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
