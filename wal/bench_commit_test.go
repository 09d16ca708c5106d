package wal

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ebbkv/ebb/internal/vfs"
)

// slowFS is a file system in memory whose direct writes take a millisecond, as synced writes to a
// disk behind a network do; any number of them at a time.
type slowFS struct{ vfs.FS }

type slowFile struct{ vfs.File }

func (s slowFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	f, err := s.FS.Open(name, flag&^vfs.Direct)
	if err == nil && flag&vfs.Direct != 0 {
		f = slowFile{f}
	}
	return f, err
}

func (f slowFile) WriteAt(p []byte, off int64) (int, error) {
	time.Sleep(time.Millisecond)
	return f.File.WriteAt(p, off)
}

func (f slowFile) StartWriteAt(p []byte, off int64) vfs.Pending { return vfs.WriteNow(f, p, off) }

func (f slowFile) BlockSize() int { return 512 }

// BenchmarkCommit appends and waits, with a number of goroutines; the first of the file systems
// costs nothing, so what is left is our own.
func BenchmarkCommit(b *testing.B) {
	for _, where := range []string{"memory", "slow", "disk"} {
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
	switch where {
	case "slow":
		o.FS = slowFS{o.FS}
	case "disk":
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
	b.ReportMetric(float64(b.N)/float64(max(l.Groups(), 1)), "commits/group")
	if err := l.Close(true); err != nil {
		b.Fatal(err)
	}
}
