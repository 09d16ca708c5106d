package wal

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

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
	found, err := Scan(o)
	require.NoError(t, err)
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
	}{{1000, true, 512 << 10}, {48 << 10, true, 512 << 10}, {80 << 10, true, firstRecord}, {1000, false, 512 << 10}, {12 << 10, false, firstRecord}} {
		d := newDisk(t, 0)
		o := testOptions(d)
		o.SegmentSize = 512 << 10
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
			case "sync":
				require.Zero(t, left)
			}
		}
		return n, nil
	}
	for pieces == 0 {
		l.commit(text(len(l.commits), 1000), true)
	}
	require.Equal(t, 4, pieces)

	d = newDisk(t, 0)
	d.hook = func(op, _ string, n int) (int, error) {
		if op == "writeback" {
			return 0, errBoom
		}
		return n, nil
	}
	_, err := Create(testOptions(d), 1, 1)
	require.ErrorIs(t, err, errBoom)
}

// TestUnsyncedGroupsAreWrittenBackPieceByPiece: the leader starts the writeback of unsynced groups
// piece by piece, each page once, so that a later sync has less than a piece of each segment to
// write.
func TestUnsyncedGroupsAreWrittenBackPieceByPiece(t *testing.T) {
	d := newDisk(t, 0)
	o := testOptions(d)
	o.SegmentSize, o.FirstSegmentBytes = 3*writebackBytes, 3*writebackBytes
	l := createTest(t, o)
	begun, pieces := firstRecord, 0
	d.hook = func(op, name string, n int) (int, error) {
		var off int
		switch _, err := fmt.Sscanf(op, "begin %d", &off); {
		case !strings.HasSuffix(name, "-000001"):
		case err == nil:
			require.Equal(t, begun, off, "where the piece before ended")
			require.GreaterOrEqual(t, n, writebackBytes)
			begun += n
			pieces++
		case op == "syncdata":
			assert.Fail(t, "somebody waits for a sync")
		}
		return n, nil
	}
	for l.syncer.segment.number == 1 {
		l.commit(text(len(l.commits), 5000), false)
	}
	d.hook = nil
	require.Equal(t, 2, pieces)
	require.LessOrEqual(t, begun, int(o.SegmentSize))
	require.Greater(t, begun, int(o.SegmentSize)-writebackBytes)
	l.commit("in the second segment", true)
	mustReplay(t, o, l.start, 0, l.commits)

	// What is synced anyway is left alone.
	before := len(d.ops)
	for range 3 * writebackBytes / 5000 {
		l.commit(text(len(l.commits), 5000), true)
	}
	for _, op := range d.ops[before:] {
		require.False(t, strings.HasPrefix(op, "begin"), op)
	}

	// The system may tell of a failure only here.
	d.hook = func(op, _ string, n int) (int, error) {
		if strings.HasPrefix(op, "begin") {
			return 0, errBoom
		}
		return n, nil
	}
	end, err := l.Append(make([]byte, 2*writebackBytes), true)
	require.NoError(t, err)
	err = l.Wait(end, false)
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorIs(t, err, errBoom)
	_, err = l.Append(nil, true)
	require.ErrorIs(t, err, ErrFailed)
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
		l.pool.prepareInBackground()
		l.pool.preparing.Wait()
		require.Nil(t, l.appender.spare)
		require.Equal(t, bytes, l.Bytes())
		require.NoError(t, l.Close(false))
	}
}
