package pager

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// stalledTruncation holds each truncation up.
type stalledTruncation struct {
	vfs.File
	asked chan int64
	goOn  chan error
	over  chan struct{} // closed at the end of the test: nothing is held up
}

func (f *stalledTruncation) Truncate(size int64) error {
	select {
	case f.asked <- size:
		if err := <-f.goOn; err != nil {
			return err
		}
	case <-f.over:
	}
	return f.File.Truncate(size)
}

// truncating is a bed whose file is so many steps longer than its pages, as far as it knows without
// room, and is being truncated to them. The first call to the file system is under way.
func truncating(t *testing.T, steps int64) (*holeBed, *stalledTruncation, int64) {
	b := newFilledBed(t, 3, 600)
	g := &b.p.Alloc.Growth
	size := int64(b.p.Alloc.Pages()) * MinPageSize
	require.NoError(t, g.ensure(size+steps*freeStep, 0))
	require.NoError(t, b.p.file.PunchHole(size, g.length-size))
	g.size = size
	f := &stalledTruncation{
		File: b.p.file, asked: make(chan int64), goOn: make(chan error), over: make(chan struct{}),
	}
	b.p.file = f
	t.Cleanup(func() {
		close(f.over)
		close(f.goOn)
	})
	g.startTruncation(size)
	require.Equal(t, g.cut.at, <-f.asked)
	return b, f, size
}

// end lets a truncation go on to its end.
func (f *stalledTruncation) end(ended <-chan struct{}) {
	for {
		select {
		case f.goOn <- nil:
		case <-f.asked:
		case <-ended:
			return
		}
	}
}

// TestCommitsDoNotWaitForTheEndOfATruncation: after a Compact that cut 200 MB off, a put that needed a
// page behind the end held the writer lock for three seconds, in which the file system freed all of
// them. The truncation leaves room for it instead, with room on the disk.
func TestCommitsDoNotWaitForTheEndOfATruncation(t *testing.T) {
	b, f, size := truncating(t, 16)
	g := &b.p.Alloc.Growth
	require.True(t, g.cutLess(size+MinPageSize), "it has not come that far")
	for g.size < size+2*MinPageSize+g.step() {
		require.True(t, b.put(t, AllocPolicy{})) // with the call under way
	}
	f.end(g.cut.ended)
	g.EndPreallocation()
	length, err := f.Size()
	require.NoError(t, err)
	require.Equal(t, g.length, length)
	require.Less(t, length, size+2*MinPageSize+3*g.step())
	b.p.file = f.File
	b.requireRoom(t)
}

// TestATruncationStopsWhereItIs for an allocation that needs more than it has left, or for a file that
// is being closed.
func TestATruncationStopsWhereItIs(t *testing.T) {
	b, f, size := truncating(t, 4)
	g := &b.p.Alloc.Growth
	at, stop := g.cut.at, &g.cut.stop
	done := make(chan error)
	go func() { done <- g.ensure(at+MinPageSize, 0) }()
	for !stop.Load() {
		runtime.Gosched()
	}
	f.goOn <- nil
	require.NoError(t, <-done)
	require.Nil(t, g.cut)
	require.Greater(t, at, size+2*freeStep, "three steps were to come")
	require.GreaterOrEqual(t, g.size, at+MinPageSize)
	b.p.file = f.File
	for range 100 {
		require.True(t, b.put(t, AllocPolicy{}))
	}
	b.requireRoom(t)
}

// TestTrimTailLowersATruncationThatRuns, and waits for none of its calls: Compact cuts the tail off
// with the writer lock.
func TestTrimTailLowersATruncationThatRuns(t *testing.T) {
	b, f, _ := truncating(t, 4)
	a := &b.p.Alloc
	require.True(t, a.Growth.cutLess(a.leastBytes()+freeStep))
	ended, err := a.TrimTail()
	require.NoError(t, err)
	require.Equal(t, a.leastBytes(), a.FileBytes())
	f.end(ended)
	length, err := f.Size()
	require.NoError(t, err)
	require.Equal(t, a.leastBytes(), length)
	b.p.file = f.File
}
