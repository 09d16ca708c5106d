package wal

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestBoundHoldsForAppendOnly fills a bounded log: a commit is refused, and what a checkpoint needs
// to make room is not.
func TestBoundHoldsForAppendOnly(t *testing.T) {
	l := createTest(t, testOptions(vfs.NewMemory()))
	l.SetBound(2 * MinSegmentSize)
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		_, err = l.Append([]byte(text(i, MinSegmentSize/8)), true)
	}
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	require.LessOrEqual(t, l.Bytes(), int64(2*MinSegmentSize))
	require.NoError(t, l.Prepare())
	require.EqualValues(t, 3*MinSegmentSize, l.Bytes())
	cut := l.mustRotate()
	require.NoError(t, l.Release(cut))
	l.mustAppend([]byte("room again"), true)
	require.NoError(t, l.Sync())
}

// heldSegment is a file system on which writes to one segment wait.
type heldSegment struct {
	vfs.FS
	suffix string        // of its name
	open   atomic.Int32  // descriptors
	begun  chan struct{} // closed when the first of them is there
	goOn   chan struct{} // closed: they wait no more
}

func (h *heldSegment) Open(name string, flag vfs.Flag) (vfs.File, error) {
	f, err := h.FS.Open(name, flag)
	if err == nil && strings.HasSuffix(name, h.suffix) {
		h.open.Add(1)
		f = &heldFile{f, h}
	}
	return f, err
}

type heldFile struct {
	vfs.File
	h *heldSegment
}

func (f *heldFile) WriteAt(b []byte, off int64) (int, error) {
	if off == 0 {
		close(f.h.begun)
	}
	<-f.h.goOn
	return f.File.WriteAt(b, off)
}

func (f *heldFile) StartWriteAt(p []byte, off int64) vfs.Pending { return vfs.WriteNow(f, p, off) }

func (f *heldFile) Close() error {
	f.h.open.Add(-1)
	return f.File.Close()
}

// TestNoCommitWaitsForAPreparedSegment holds up the making of the next segment: commits go on until
// the one in use is full, and Close waits for it, and closes it too.
func TestNoCommitWaitsForAPreparedSegment(t *testing.T) {
	h := &heldSegment{
		FS:     newDisk(t, 0),
		suffix: "-000002",
		begun:  make(chan struct{}),
		goOn:   make(chan struct{}),
	}
	o := testOptions(h)
	o.SegmentSize, o.Inline = 128<<10, false
	l, err := Create(o, 1, 1)
	require.NoError(t, err)
	var want []string
	commit := func(n int) LSN {
		want = append(want, text(len(want), n))
		end, err := l.Append([]byte(want[len(want)-1]), true)
		require.NoError(t, err)
		require.NoError(t, l.Wait(end, true))
		return end
	}
	commit(64 << 10)
	<-h.begun
	for range 5 {
		end := commit(1000)
		require.LessOrEqual(t, end, l.Durable())
	}
	closed := make(chan error)
	go func() { closed <- l.Close(false) }()
	for closing := false; !closing; runtime.Gosched() {
		closing = errors.Is(l.state.err(), ErrClosed)
	}
	close(h.goOn)
	require.NoError(t, <-closed)
	require.Zero(t, h.open.Load(), "a segment was made after Close")
	found := mustScan(t, o)
	require.Len(t, found.Segments(), 2)
	mustReplay(t, o, found.opts.start(1), 0, want)
}

// TestPrepareFailureIsReportedByTheNextCommit fails the making of the next segment: the commit that asked
// for it stands.
func TestPrepareFailureIsReportedByTheNextCommit(t *testing.T) {
	d := newDisk(t, 0)
	o := testOptions(d)
	o.SegmentSize, o.Inline = 64<<10, false
	l, err := Create(o, 1, 1)
	require.NoError(t, err)
	d.hook = func(op, name string, n int) (int, error) {
		if strings.HasSuffix(name, "-000002") {
			return 0, errBoom
		}
		return n, nil
	}
	end, err := l.Append(make([]byte, 40<<10), true)
	require.NoError(t, err)
	require.NoError(t, l.Wait(end, true))
	l.pool.preparing.Wait()
	_, err = l.Append(nil, true)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, err, errBoom)
	require.Error(t, l.Close(false))
}

// TestSegmentIsFilledUnlessGroupsAreLarge counts what is written to the second segment before a
// record is in it.
func TestSegmentIsFilledUnlessGroupsAreLarge(t *testing.T) {
	for _, test := range []struct {
		group  int
		sync   bool
		filled int
	}{
		{1000, true, 512 << 10}, {48 << 10, true, 512 << 10}, {80 << 10, true, firstRecord},
		{1000, false, 512 << 10}, {12 << 10, false, firstRecord},
	} {
		d := newDisk(t, 0)
		o := testOptions(d)
		o.SegmentSize, o.FirstSegmentBytes = 512<<10, 512<<10
		l := createTest(t, o)
		filled := 0
		d.hook = func(op, name string, n int) (int, error) {
			if op == "write" && strings.HasSuffix(name, "-000002") {
				filled += n
			}
			return n, nil
		}
		for filled == 0 {
			l.commit(text(len(l.commits), test.group), test.sync)
		}
		d.hook = nil
		require.Equal(t, test.filled, filled, "groups of %d bytes", test.group)
		mustReplay(t, o, l.start, 0, l.commits)
	}
}

// TestSegmentIsFilledPieceByPiece: at most one piece waits for writeback, which a commit would wait
// for. An error of a piece's writeback is reported at once, since the system may not report it
// again.
func TestSegmentIsFilledPieceByPiece(t *testing.T) {
	d := newDisk(t, 0)
	o := testOptions(d)
	o.SegmentSize, o.FirstSegmentBytes = 4*zeroChunk, 4*zeroChunk
	l := createTest(t, o)
	left, pieces := 0, 0
	d.hook = func(op, name string, n int) (int, error) {
		if strings.HasSuffix(name, "-000002") {
			switch op {
			case "write":
				left += n
				require.LessOrEqual(t, n, zeroPiece)
				require.LessOrEqual(t, left, zeroChunk)
			case "writeback":
				left -= n
				pieces++
			}
		}
		return n, nil
	}
	for pieces == 0 {
		l.commit(text(len(l.commits), 1000), true)
	}
	require.Equal(t, 3, pieces)
	require.Equal(t, zeroChunk, left, "the sync writes the last piece")

	d = newDisk(t, 0)
	d.hook = func(op, _ string, n int) (int, error) {
		if op == "writeback" {
			return 0, errBoom
		}
		return n, nil
	}
	o = testOptions(d)
	o.SegmentSize, o.FirstSegmentBytes = 2*zeroChunk, 2*zeroChunk
	_, err := Create(o, 1, 1)
	require.ErrorIs(t, err, errBoom)
}

// TestLargeGroupsGetTheNextSegmentEarly: a small log whose next two groups do not fit has a segment
// for many of them ready, which is not filled.
func TestLargeGroupsGetTheNextSegmentEarly(t *testing.T) {
	for _, test := range []struct {
		group int
		sync  bool
		sizes []int
	}{
		{50 << 10, true, []int{firstSegmentBytes}},
		{85 << 10, true, []int{firstSegmentBytes, 680 << 10}},
		{120 << 10, false, []int{firstSegmentBytes, 960 << 10}},
	} {
		d := newDisk(t, 512)
		o := testOptions(d)
		o.SegmentSize = DefaultSegmentSize
		l := createTest(t, o)
		written := 0
		d.hook = func(op, name string, n int) (int, error) {
			if op == "write" && strings.HasSuffix(name, "-000002") {
				written += n
			}
			return n, nil
		}
		l.commit(text(0, test.group), test.sync)
		sizes := l.fileSizes()
		require.Len(t, sizes, len(test.sizes), "groups of %d bytes", test.group)
		for i, size := range sizes {
			require.InDelta(t, test.sizes[i], size, 8*pageUnit)
		}
		require.Equal(t, (len(sizes)-1)*firstRecord, written)
		for range 10 {
			l.commit(text(len(l.commits), test.group), test.sync)
		}
		mustReplay(t, o, l.start, 0, l.commits)
	}
}

// TestLargeSegmentThatDoesNotFitIsSmaller: a disk without the space for eight times the log may have it
// for twice.
func TestLargeSegmentThatDoesNotFitIsSmaller(t *testing.T) {
	d := newDisk(t, 512)
	o := testOptions(d)
	o.SegmentSize = DefaultSegmentSize
	l := createTest(t, o)
	d.hook = func(op, _ string, n int) (int, error) {
		if op == "grow" && n > 512<<10 {
			return 0, vfs.ErrNoSpace
		}
		return n, nil
	}
	l.commit(text(0, 120<<10), true)
	sizes := l.fileSizes()
	require.Len(t, sizes, 2)
	require.Equal(t, firstSegmentBytes, sizes[1])
	mustReplay(t, o, l.start, 0, l.commits)
}

// TestLatePrepareMakesNoSegment: a leader saw that the segment was half full, and runs again when
// the log is in the next one already.
func TestLatePrepareMakesNoSegment(t *testing.T) {
	for _, inline := range []bool{true, false} {
		d := newDisk(t, 0)
		o := testOptions(d)
		o.SegmentSize, o.Inline = 64<<10, inline
		l, err := Create(o, 1, 1)
		require.NoError(t, err)
		_, err = l.Rotate()
		require.NoError(t, err)
		l.pool.preparing.Wait()
		require.Nil(t, l.appender.spare)
		bytes := l.Bytes()
		l.pool.prepareInBackground(false)
		l.pool.preparing.Wait()
		require.Nil(t, l.appender.spare)
		require.Equal(t, bytes, l.Bytes())
		require.NoError(t, l.Close(false))
	}
}

// TestPrepareEarlyIsPrepareWithinTheBound: what it has made Prepare finds, and a refusal is dropped.
func TestPrepareEarlyIsPrepareWithinTheBound(t *testing.T) {
	for _, bound := range []int64{0, MinSegmentSize} {
		l := createTest(t, testOptions(vfs.NewMemory()))
		l.SetBound(bound)
		l.PrepareEarly()
		require.Equal(t, bound == 0, l.appender.spare != nil)
		require.NoError(t, l.Prepare())
		require.EqualValues(t, 2*MinSegmentSize, l.Bytes())
		l.mustRotate()
		require.EqualValues(t, 2*MinSegmentSize, l.Bytes())
	}
}

// fileSizes are those of the segment files, by number.
func (l *testLog) fileSizes() (sizes []int) {
	found, err := Scan(l.opts)
	require.NoError(l.t, err)
	for _, s := range found.Segments() {
		sizes = append(sizes, len(readFile(l.t, l.opts.FS, s.File)))
	}
	return sizes
}

// TestLogBeginsSmall: a log with few records does not fill a whole segment, and one with more has
// whole segments soon.
func TestLogBeginsSmall(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, block := range []int{0, 512} {
		d := newDisk(t, block)
		o := testOptions(d)
		o.SegmentSize = DefaultSegmentSize
		l := createTest(t, o)
		require.Equal(t, []int{firstSegmentBytes}, l.fileSizes())
		require.EqualValues(t, firstSegmentBytes, l.Bytes())
		l.commit("little", true)
		require.Equal(t, []int{firstSegmentBytes}, l.fileSizes())
		for l.appender.live[len(l.appender.live)-1].fileSize < o.SegmentSize {
			l.commit(text(len(l.commits), 5000), len(l.commits)%3 > 0)
		}
		sizes := l.fileSizes()
		require.True(t, slices.IsSorted(sizes), sizes)
		last := len(sizes) - 1
		require.Equal(t, 4, last, "each is made for twice the records of before")
		require.Equal(t, DefaultSegmentSize, sizes[last])
		sum := 0
		for _, size := range sizes {
			sum += size
		}
		require.EqualValues(t, sum, l.Bytes())
		require.EqualValues(
			t,
			sum-sizes[last],
			l.Volume()-int64(l.End()-l.appender.live[last].start()),
			"what the files have, not what positions say",
		)
		tail := mustReplay(t, o, l.start, l.Durable(), l.commits)
		require.Less(t, tail.Bytes, l.Volume())
		require.Greater(t, tail.Bytes, l.Volume()*9/10)
	}
}

// TestShortSegmentHasSpaceForAnEndRecord: of every size of record, in files with room for one or two.
func TestShortSegmentHasSpaceForAnEndRecord(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, block := range []int{0, 512, 4096} {
		for size := 3; size < 6000; size += 97 {
			d := newDisk(t, block)
			o := testOptions(d)
			o.SegmentSize, o.FirstSegmentBytes = 256<<10, 1
			l := createTest(t, o)
			for i := range 6 {
				l.commit(text(i, size), i%2 == 0)
				if i == 3 {
					l.mustRotate()
				}
			}
			require.NoError(t, l.Sync())
			for i, s := range l.appender.live {
				require.EqualValues(t, s.fileSize, l.fileSizes()[i])
			}
			mustReplay(t, o, l.start, l.Durable(), l.commits)
		}
	}
}
