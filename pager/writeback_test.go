package pager

import (
	"bytes"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

func TestLargeExtentsAreWrittenInPieces(t *testing.T) {
	forBeds(t, func(t *testing.T, b bed) {
		p := b.newPager(t, MinPageSize)
		rnd := rand.New(rand.NewSource(1))
		for _, size := range []int{0, 1, MinPageSize - ExtentHeader, MinPageSize,
			stagingBytes - ExtentHeader - 1,
			stagingBytes - ExtentHeader, stagingBytes - ExtentHeader + 1, stagingBytes, 2*stagingBytes + 5} {
			value := make([]byte, size)
			rnd.Read(value)
			ref := newExtent(t, p, value)
			require.NoError(t, p.Reader.VerifyExtent(ref, 1, size), "the file holds it before any checkpoint")
			got, err := p.Reader.Extent(ref, size)
			require.NoError(t, err)
			require.True(t, bytes.Equal(value, got))
			require.Equal(t, len(got), cap(got))
		}
	})
}

// TestCheckpointWritesBackInSteps: the sync at its end has little to write.
func TestCheckpointWritesBackInSteps(t *testing.T) {
	p := memoryBed().newPager(t, 65536)
	for range 20 {
		newPage(t, p, 1)
	}
	c, err := p.CaptureState(2)
	require.NoError(t, err)
	f := &writeBackFile{File: p.file}
	p.file = f
	for _, hurry := range []bool{false, true} {
		f.ranges, f.started = nil, nil
		require.NoError(t, p.Write(c, throttled(!hurry)))
		most, times := int64(pacedChunk), 11
		if hurry {
			most, times = fastChunk, 1
			require.Len(t, f.started, 2)
			require.Equal(
				t,
				f.started[:1],
				f.ranges,
				"the second was begun with before the first was waited for, and is left to the sync",
			)
		}
		require.Len(t, f.ranges, times, "22 pages of 64 KiB")
		for _, r := range f.ranges {
			require.LessOrEqual(t, r[1], most)
		}
	}
	f.ranges, f.started = nil, nil
	require.NoError(t, p.Write(c, nil))
	require.Empty(t, f.ranges, "without a caller that waits")
	require.Empty(t, f.started)
	require.NoError(t, p.Write(c, &laterThrottled{}))
	require.Equal(
		t,
		[][2]int64{{2 * 65536, 18 * 65536}, {20 * 65536, 2 * 65536}, {22 * 65536, 2 * 65536}},
		f.ranges,
		"what was begun with is waited for with the first calm part",
	)
	f.err = errBroken
	require.ErrorIs(t, p.Write(c, throttled(true)), errBroken)
	f.err = nil
	require.ErrorIs(t, p.Write(c, nil), errBroken, "a failure is final")
}

// frameTaker takes frames as soon as it may.
type frameTaker struct {
	p    *Pager
	then func()
}

func (*frameTaker) Throttle(float64) bool { return false }

func (*frameTaker) Yield() {}

func (b *frameTaker) PagesWritten(ids []Pgid) {
	b.p.Pool.ReturnFrames(b.p.Pool.TakeFrames(ids))
	b.then()
}

// throttled represents commits that matter, or not.
type throttled bool

func (b throttled) Throttle(float64) bool { return bool(b) }

func (throttled) PagesWritten([]Pgid) {}

func (throttled) Yield() {}

// laterThrottled represents commits that matter from the second part on.
type laterThrottled struct{ parts int }

func (b *laterThrottled) Throttle(float64) bool { b.parts++; return b.parts > 1 }

func (*laterThrottled) PagesWritten([]Pgid) {}

func (*laterThrottled) Yield() {}

// writeBackFile notes what it is to write back.
type writeBackFile struct {
	vfs.File
	ranges, started [][2]int64 // offset, length
	err             error
}

func (f *writeBackFile) WriteBack(off, n int64) error {
	f.ranges = append(f.ranges, [2]int64{off, n})
	return f.err
}

func (f *writeBackFile) StartWriteBack(off, n int64) error {
	f.started = append(f.started, [2]int64{off, n})
	return f.err
}
