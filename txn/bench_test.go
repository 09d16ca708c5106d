package txn

import (
	"encoding/binary"
	"math/rand"
	"path/filepath"
	"testing"
	"time"

	"github.com/ebbkv/ebb/internal/vfs"
)

const benchRows = 1_000_000

func benchKey(b []byte, i uint64) []byte {
	binary.BigEndian.PutUint64(b, i*0x9E3779B97F4A7C15)
	binary.BigEndian.PutUint64(b[8:], i)
	return b
}

func benchStore(b *testing.B, rows int) *Store {
	b.Helper()
	s, err := Open(filepath.Join(b.TempDir(), "b.ebb"), Options{FS: vfs.OS})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	key, val := make([]byte, 16), make([]byte, 100)
	for i := 0; i < rows; {
		tx, err := s.Begin(nil, true)
		if err != nil {
			b.Fatal(err)
		}
		for n := 0; n < 1000 && i < rows; n, i = n+1, i+1 {
			if _, err := tx.Put(CatalogTree, benchKey(key, uint64(i)), val, 0); err != nil {
				b.Fatal(err)
			}
		}
		if err := tx.Commit(NoSync); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

func BenchmarkGet(b *testing.B) {
	s := benchStore(b, benchRows)
	_ = s.Checkpoint(nil)
	tx, _ := s.Begin(nil, false)
	defer tx.Rollback()
	key := make([]byte, 16)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if _, _, found, err := tx.Get(CatalogTree, benchKey(key, uint64(rand.Intn(benchRows)))); !found ||
			err != nil {
			b.Fatal(found, err)
		}
	}
}

func BenchmarkBeginRead(b *testing.B) {
	s := benchStore(b, 10)
	var tx Tx
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		_ = s.BeginRead(&tx, time.Now())
		tx.Rollback()
	}
}

func BenchmarkPutNoSync(b *testing.B) {
	s := benchStore(b, benchRows)
	key, val := make([]byte, 16), make([]byte, 100)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		tx, _ := s.Begin(nil, true)
		if _, err := tx.Put(CatalogTree, benchKey(key, uint64(rand.Intn(benchRows))), val, 0); err != nil {
			b.Fatal(err)
		}
		if err := tx.Commit(NoSync); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPutSync(b *testing.B) {
	s := benchStore(b, 1000)
	key, val := make([]byte, 16), make([]byte, 100)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		tx, _ := s.Begin(nil, true)
		if _, err := tx.Put(CatalogTree, benchKey(key, uint64(i)), val, 0); err != nil {
			b.Fatal(err)
		}
		if err := tx.Commit(Sync); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoadRandomBatches(b *testing.B) {
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		s := benchStore(b, benchRows)
		_ = s.Close()
		b.ReportMetric(float64(s.stats.last.FileBytes)/(benchRows*116), "file/data")
	}
}

func BenchmarkScan(b *testing.B) {
	s := benchStore(b, benchRows)
	_ = s.Checkpoint(nil)
	tx, _ := s.Begin(nil, false)
	defer tx.Rollback()
	c := tx.Cursor(CatalogTree)
	b.ResetTimer()
	ok := c.First()
	for i := 0; i < b.N; i++ {
		if !ok {
			ok = c.First()
		} else {
			ok = c.Next()
		}
	}
}
