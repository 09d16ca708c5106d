package wal

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ebbkv/ebb/internal/vfs"
)

// BenchmarkCommit appends and waits, with a number of goroutines; the first of the two file systems costs nothing, so
// what is left is our own.
func BenchmarkCommit(b *testing.B) {
	for _, where := range []string{"memory", "disk"} {
		for _, goroutines := range []int{1, 8, 64, 256} {
			for _, sync := range []bool{true, false} {
				b.Run(fmt.Sprintf("%s/goroutines=%d/sync=%v", where, goroutines, sync), func(b *testing.B) {
					benchCommit(b, where, goroutines, sync)
				})
			}
		}
	}
}

func benchCommit(b *testing.B, where string, goroutines int, durable bool) {
	o := Options{FS: vfs.NewMemory(), Path: "dir/app.ebb"}
	if where == "disk" {
		o.FS, o.Path = vfs.OS, b.TempDir()+"/app.ebb"
	}
	l, err := Create(o, 1, 1)
	if err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 120)
	var lock sync.Mutex
	var left atomic.Int64
	left.Store(int64(b.N))
	start := l.End()
	var group sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range goroutines {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				lock.Lock()
				// Now and then a checkpoint, so that segments are recycled.
				if l.End() > start+16*DefaultSegmentSize {
					next, err := l.Rotate()
					if err == nil {
						err = l.Release(next)
					}
					if err != nil {
						b.Error(err)
					}
					start = next
				}
				end, err := l.Append(payload, true)
				lock.Unlock()
				if err == nil {
					err = l.Wait(end, durable)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	if err := l.Close(true); err != nil {
		b.Fatal(err)
	}
}
