package wal

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// segmentReads counts reads of whole segments.
type segmentReads struct {
	vfs.FS
	n int
}

func (f *segmentReads) Open(name string, flag vfs.Flag) (vfs.File, error) {
	file, err := f.FS.Open(name, flag)
	return &segmentRead{file, f}, err
}

type segmentRead struct {
	vfs.File
	f *segmentReads
}

func (r *segmentRead) ReadAt(b []byte, off int64) (int, error) {
	if off == 0 && len(b) > hintAt {
		r.f.n++
	}
	return r.File.ReadAt(b, off)
}

// commitOfSegments is the log of one commit, of some segments, between two small ones. With end
// the last part is there.
func commitOfSegments(t *testing.T, segmentSize int64, segments int, end bool) *testLog {
	o := testOptions(newDisk(t, 512))
	o.SegmentSize = segmentSize
	l := createTest(t, o)
	l.commit("before", false)
	payload := text(7, segments*int(segmentSize))
	l.mustAppend([]byte(payload), false)
	if end {
		l.commit("end", true)
		l.commits[1] = payload + "end"
	} else {
		require.NoError(t, l.Wait(l.End(), true))
	}
	return l
}

// TestEndOfACommitIsFoundBeforeItsBytesAreKept: all parts of a commit were joined on the heap
// before Replay knew that it had an end: a transaction of 200 MB that was rolled back took more
// than twice that at every open. What a commit takes does not depend on its size now, with an end
// or not.
func TestEndOfACommitIsFoundBeforeItsBytesAreKept(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, end := range []bool{true, false} {
		l := commitOfSegments(t, 2<<20, 16, end)
		found := mustScan(t, l.opts)
		size := 0
		// a quarter of the commit; under the race detector segments are on the heap
		done := bound.Hold(t, 8<<20)
		tail, err := found.Replay(l.start, 0, func(p Part) error {
			size += len(p.Payload)
			return nil
		})
		done()
		require.NoError(t, err)
		require.Len(t, l.commits, tail.Commits)
		want := 0
		for _, c := range l.commits {
			want += len(c)
		}
		require.Equal(t, want, size)
	}
}

// TestSegmentsOfALargeCommitAreReadAgain once, to deliver its parts; not those of one without an end.
func TestSegmentsOfALargeCommitAreReadAgain(t *testing.T) {
	for _, end := range []bool{true, false} {
		l := commitOfSegments(t, smallSegment, 6, end)
		reads := &segmentReads{FS: l.opts.FS}
		o := l.opts
		o.FS = reads
		found := mustScan(t, o)
		var got []string
		_, err := found.Replay(l.start, 0, joined(func(payload []byte, _ LSN) error {
			got = append(got, string(payload))
			return nil
		}))
		require.NoError(t, err)
		require.Equal(t, l.commits, got)
		once := len(found.Segments())
		if end {
			require.InDelta(t, 2*once, reads.n, 1)
		} else {
			require.Equal(t, once, reads.n)
		}
	}
}

// TestCompensatedLargeCommitIsNotDelivered, nor of one that the next commit gives up.
func TestCompensatedLargeCommitIsNotDelivered(t *testing.T) {
	for _, end := range []bool{true, false} {
		l := commitOfSegments(t, smallSegment, 6, end)
		if end {
			lsn, err := l.Compensate()
			require.NoError(t, err)
			require.NoError(t, l.Wait(lsn, true))
		} else {
			l.Abort()
		}
		l.commits = l.commits[:1]
		for i := range 3 {
			l.commit(text(20+i, 50), true)
		}
		mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
	}
}

// TestPartsTellWhereTheirCommitBeginsAndEnds, of commits of every size around a segment.
func TestPartsTellWhereTheirCommitBeginsAndEnds(t *testing.T) {
	o := testOptions(newDisk(t, 512))
	l := createTest(t, o)
	for i := range 40 {
		l.commit(text(i, 1+i*i*20), i%3 == 0)
	}
	found := mustScan(t, l.opts)
	open, at, first := false, 0, LSN(0)
	tail, err := found.Replay(l.start, l.Durable(), func(p Part) error {
		require.Equal(t, !open, p.First)
		if p.First {
			require.Greater(t, p.Commit, first)
			first, at = p.Commit, at+1
		}
		require.Equal(t, first, p.Commit)
		open = !p.Last
		return nil
	})
	require.NoError(t, err)
	require.False(t, open)
	require.Equal(t, 40, at)
	require.Equal(t, 40, tail.Commits)
}

// TestErrorInTheMiddleOfALargeCommitEndsReplay where its parts are read again.
func TestErrorInTheMiddleOfALargeCommitEndsReplay(t *testing.T) {
	l := commitOfSegments(t, smallSegment, 6, true)
	found := mustScan(t, l.opts)
	for range 2 {
		for _, stop := range []error{errors.New("enough"), ErrRefLost} {
			n := 0
			tail, err := found.Replay(l.start, 0, func(p Part) error {
				if n++; n == 4 {
					return stop
				}
				return nil
			})
			require.Equal(t, 4, n)
			require.Equal(t, 1, tail.Commits)
			if errors.Is(stop, ErrRefLost) { // of a commit that is durable
				require.ErrorIs(t, err, badfile.ErrCorrupt)
			} else {
				require.Equal(t, stop, err)
			}
		}
	}
}

// TestLogThatChangesBetweenTwoReadsIsDamage: parts of a commit were handed out, and its end is
// gone.
func TestLogThatChangesBetweenTwoReadsIsDamage(t *testing.T) {
	l := commitOfSegments(t, smallSegment, 6, true)
	found := mustScan(t, l.opts)
	replay := func(fn func(Part) error) error {
		_, err := found.Replay(l.start, 0, fn)
		return err
	}
	whole := readFile(t, l.opts.FS, l.opts.name(4))
	cut := func() { writeFile(t, l.opts.FS, l.opts.name(4), whole[:firstRecord]) }
	n := 0
	err := replay(func(p Part) error {
		if n++; n == 3 {
			cut()
		}
		return nil
	})
	require.ErrorIs(t, err, badfile.ErrCorrupt)
}
