package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestFirstRecordSaysWhatIsMissingBeforeIt. Replay begins where a checkpoint cut the log, so
// nothing says what the first record should follow but where that lies: not behind the beginning,
// and in the segment before, if it is the first of its own.
func TestFirstRecordSaysWhatIsMissingBeforeIt(t *testing.T) {
	t.Run("in_the_segment", func(t *testing.T) {
		l := createTest(t, testOptions(newDisk(t, 512)))
		first := l.commit("first", true)
		for i := range 12 {
			l.commit(text(i, 100), true)
		}
		require.NoError(t, l.Close(false))
		name := l.opts.name(1)
		b := withoutHint(readFile(t, l.opts.FS, name))
		clear(b[int64(first)-MinSegmentSize : firstRecord+pageUnit]) // up to where padding may end
		require.NotZero(t, binary.LittleEndian.Uint64(b[firstRecord+pageUnit:]), "a record begins there")
		writeFile(t, l.opts.FS, name, b)
		_, _, err := replayAll(l.opts, first, 0)
		require.ErrorIs(t, err, badfile.ErrCorrupt, "the record itself says that more was durable")
	})
	t.Run("in_the_segment_before", func(t *testing.T) {
		l, _ := smallLog(t, 512)
		for range 2 {
			l.mustRotate()
		}
		l.commit("in segment 3", true)
		require.NoError(t, l.Close(false))
		start, name := l.opts.start(3), l.opts.name(3)
		mustReplay(t, l.opts, start, 0, []string{"in segment 3"})
		b := withoutHint(readFile(t, l.opts.FS, name))
		at := b[firstRecord:]
		binary.LittleEndian.PutUint64(at[recPrev:], uint64(l.start))
		sealRecord(at, LSN(binary.LittleEndian.Uint64(at[recSynced:])))
		writeFile(t, l.opts.FS, name, b)
		got, _, err := replayAll(l.opts, start, 0)
		require.NoError(t, err, "nothing says that it was durable")
		require.Empty(t, got)
	})
}

// TestHintOfALaterSegmentShowsALostEnd: the end of a segment is gone, and the records of the next
// one, but not its hint.
func TestHintOfALaterSegmentShowsALostEnd(t *testing.T) {
	l, _ := smallLog(t, 512)
	l.mustRotate()
	l.commit("in the next segment", true)
	for number, from := range map[uint64]int{1: firstRecord + 512, 2: firstRecord} {
		b := readFile(t, l.opts.FS, l.opts.name(number))
		if number == 1 {
			b = withoutHint(b)
		}
		clear(b[from:])
		writeFile(t, l.opts.FS, l.opts.name(number), b)
	}
	_, _, err := replayAll(l.opts, l.start, 0)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.ErrorContains(t, err, "hint of segment 2")
}

const smallSegment = 32 << 10

// smallLog builds a log of a few durable and relaxed commits in one segment, and gives the file.
func smallLog(t testing.TB, block int) (*testLog, []byte) {
	o := testOptions(newDisk(t, block))
	o.SegmentSize = smallSegment
	l := createTest(t, o)
	l.commit("first", true)
	l.commit("second", true)
	l.commit(text(3, 600), true)
	l.commit("relaxed", false)
	l.commit("relaxed too", false)
	l.commit("last", true)
	return l, readFile(t, l.opts.FS, l.opts.name(1))
}

// reread replays a log whose only segment holds b. It never fails for other reasons than damage,
// and what it gives is a prefix of what was committed.
func (l *testLog) reread(b []byte, durable LSN) ([]string, Tail, error) {
	l.t.Helper()
	o := l.opts
	o.FS = vfs.NewMemory()
	writeFile(l.t, o.FS, o.name(1), b)
	got, tail, err := replayAll(o, l.start, durable)
	if err != nil {
		require.ErrorIs(l.t, err, badfile.ErrCorrupt)
	}
	require.LessOrEqual(l.t, len(got), len(l.commits))
	require.True(l.t, slices.Equal(got, l.commits[:len(got)]), "replay gives a prefix")
	return got, tail, err
}

// withoutHint cuts the evidence of the hint away.
func withoutHint(b []byte) []byte {
	b = bytes.Clone(b)
	clear(b[hintAt : hintAt+hintLen])
	return b
}

func TestTornTailIsCutAtEveryLength(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	forKinds(t, func(t *testing.T, block int) {
		l, file := smallLog(t, block)
		end := int(l.End()) - smallSegment
		bare := withoutHint(file)
		for n := end; n >= firstRecord; n-- {
			if n%sector != 0 && n < end && padding(file, n) {
				continue // like its neighbours
			}
			got, tail, err := l.reread(bare[:n], 0)
			require.NoError(t, err, "a file that ends at %d", n)
			require.GreaterOrEqual(t, tail.Dropped, int64(0))
			if n == end {
				require.Len(t, got, len(l.commits))
			}
			// The same with the rest of the file as zeros: then records behind the cut cannot speak
			// either.
			zeroed := append(bytes.Clone(bare[:n]), make([]byte, len(bare)-n)...)
			same, _, err := l.reread(zeroed, 0)
			require.NoError(t, err)
			require.Equal(t, got, same)

			// And with the hint, or the caller, to say what had been there.
			for _, say := range []struct {
				file    []byte
				durable LSN
			}{{append(bytes.Clone(file[:n]), make([]byte, len(file)-n)...), 0}, {zeroed, l.Durable()}} {
				_, _, err = l.reread(say.file, say.durable)
				if len(got) < len(l.commits) {
					require.ErrorIs(t, err, badfile.ErrCorrupt, "cut at %d", n)
				} else {
					require.NoError(t, err)
				}
			}
		}
	})
}

func TestEveryFlippedBitIsFoundOrHarmless(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, block := range []int{512, 0} {
		l, file := smallLog(t, block)
		end := int(l.End()) - smallSegment
		file = file[:alignUp(end, pageUnit)]
		for at := range file {
			bits := 8
			if padding(file, at) {
				if at%41 != 0 {
					continue // zeros like their neighbours
				}
				bits = 1
			}
			for bit := range bits {
				bad := bytes.Clone(file)
				bad[at] ^= 1 << bit
				got, _, err := l.reread(bad, l.Durable())
				if err == nil {
					require.Len(t, got, len(l.commits), "byte %d bit %d", at, bit)
				}
				if err == nil && at >= firstRecord && at < end {
					// Only padding may change without a word.
					require.Zero(t, file[at], "byte %d bit %d", at, bit)
				}
			}
		}
	}
}

// padding says that byte at is in the middle of nothing but zeros.
func padding(b []byte, at int) bool {
	lo, hi := max(0, at-recHeader), min(len(b), at+recHeader)
	return bytes.Equal(b[lo:hi], make([]byte, hi-lo))
}

func TestDamageInFrontOfEvidenceIsCorrupt(t *testing.T) {
	damage := func(b []byte, at int) []byte {
		b = bytes.Clone(b)
		b[at] ^= 0x40
		return b
	}
	l, file := smallLog(t, 512)
	t.Run("without_evidence_it_is_a_torn_tail", func(t *testing.T) {
		last := int(l.End()) - smallSegment - 1
		got, tail, err := l.reread(withoutHint(damage(file, last)), 0)
		require.NoError(t, err)
		require.Len(t, got, 5)
		require.Equal(t, int64(recHeader+4), tail.Dropped)
	})
	t.Run("a_later_record_tells", func(t *testing.T) {
		_, _, err := l.reread(withoutHint(damage(file, firstRecord+recHeader)), 0)
		var bad *badfile.Error
		require.ErrorAs(t, err, &bad)
		require.Equal(t, l.opts.name(1), bad.File)
		require.Equal(t, int64(firstRecord), bad.Off)
		require.Contains(t, bad.Detail, "says that LSN")
	})
	t.Run("a_zeroed_record_is_no_end", func(t *testing.T) {
		b := withoutHint(file)
		clear(b[firstRecord : firstRecord+512])
		_, _, err := l.reread(b, 0)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
	})
	t.Run("a_later_segment_tells", func(t *testing.T) {
		l, _ := smallLog(t, 512)
		last := int(l.End()) - smallSegment - 1
		l.mustRotate()
		l.commit("in the next segment", false)
		name := l.opts.name(1)
		writeFile(t, l.opts.FS, name, withoutHint(damage(readFile(t, l.opts.FS, name), last)))
		_, _, err := replayAll(l.opts, l.start, 0)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
	})
	t.Run("a_seal_tells", func(t *testing.T) {
		l, _ := smallLog(t, 512)
		l.mustRotate()
		require.NoError(t, l.Close(false))
		mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
		writeFile(t, l.opts.FS, l.opts.name(2), nil)
		_, _, err := replayAll(l.opts, l.start, 0)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
		require.ErrorContains(t, err, "is sealed")
	})
}

// TestReplayNeverStepsOverAGap takes each block out of a log, and moves the rest up: no record that
// follows a lost one is replayed.
func TestReplayNeverStepsOverAGap(t *testing.T) {
	l, file := smallLog(t, 512)
	bare := withoutHint(file)
	for at := firstRecord; at < int(l.End())-smallSegment; at += sector {
		zeroed := bytes.Clone(bare)
		clear(zeroed[at : at+sector])
		_, _, _ = l.reread(zeroed, 0)
		moved := slices.Delete(bytes.Clone(bare), at, at+sector)
		_, _, _ = l.reread(moved, 0)
	}
}

func TestReplayStartsOnlyInsideTheRecords(t *testing.T) {
	l, _ := smallLog(t, 512)
	for _, start := range []LSN{0, 1, l.start - 1, l.opts.start(2)} {
		_, _, err := replayAll(l.opts, start, 0)
		require.ErrorIs(t, err, badfile.ErrCorrupt, "start %d", start)
	}
	// From the end of the first commit on, that one is left out.
	found := mustScan(t, l.opts)
	var first LSN
	_, err := found.Replay(l.start, 0, func(p Part) error {
		if first == 0 && p.Commit != l.start {
			first = p.Commit
		}
		return nil
	})
	require.NoError(t, err)
	mustReplay(t, l.opts, first, l.Durable(), l.commits[1:])
}

func TestReplayStopsWithTheErrorOfItsCaller(t *testing.T) {
	l, _ := smallLog(t, 512)
	found := mustScan(t, l.opts)
	stop := errors.New("enough")
	n := 0
	tail, err := found.Replay(l.start, 0, func(Part) error {
		if n++; n == 3 {
			return stop
		}
		return nil
	})
	require.Equal(t, stop, err)
	require.Equal(t, 2, tail.Commits)
}

// failingReads is a file system whose n-th read, or open, fails.
type failingReads struct {
	vfs.FS
	left int
}

var errRead = errors.New("input/output error")

func (f *failingReads) fail() bool { f.left--; return f.left == -1 }

func (f *failingReads) Open(name string, flag vfs.Flag) (vfs.File, error) {
	if f.fail() {
		return nil, errRead
	}
	file, err := f.FS.Open(name, flag)
	return &failingRead{file, f}, err
}

type failingRead struct {
	vfs.File
	f *failingReads
}

func (r *failingRead) ReadAt(p []byte, off int64) (int, error) {
	if r.f.fail() {
		return r.File.ReadAt(p[:len(p)/2], off)
	}
	if r.f.left == -2 {
		return 0, errRead
	}
	return r.File.ReadAt(p, off)
}

func TestReadErrorIsNoEndOfTheLog(t *testing.T) {
	l, _ := smallLog(t, 512)
	l.mustRotate()
	l.commit("more", true)
	passed := false
	for n := 0; !passed; n++ {
		fsys := &failingReads{l.opts.FS, n}
		o := l.opts
		o.FS = fsys
		_, _, err := replayAll(o, l.start, 0)
		if passed = fsys.left >= 0; passed {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, errRead, "read %d", n)
			require.NotErrorIs(t, err, badfile.ErrCorrupt)
		}
	}
}

func TestJunkBehindTheSegmentIsIgnored(t *testing.T) {
	l, file := smallLog(t, 512)
	got, _, err := l.reread(append(bytes.Clone(file), file...), l.Durable())
	require.NoError(t, err)
	require.Len(t, got, len(l.commits))
}

// TestDroppedBytesAreToldWhateverIsWrong damages each byte of the header of the last record,
// without evidence that it was durable: it is dropped, and Tail says how much, although salt or
// place may be what is wrong.
func TestDroppedBytesAreToldWhateverIsWrong(t *testing.T) {
	l, file := smallLog(t, 512)
	bare := withoutHint(file)
	last := int(l.End()) - smallSegment - recHeader - len("last")
	for at := last; at < last+recHeader; at++ {
		b := bytes.Clone(bare)
		b[at] ^= 1
		got, tail, err := l.reread(b, 0)
		require.NoError(t, err)
		require.Len(t, got, len(l.commits)-1)
		require.NotZero(t, tail.Dropped, "byte %d of the header", at-last)
	}
}

// TestLaterSegmentShowsALostEnd: everything from a record to the end of its segment is gone, the
// seal and the hint too. What a record of the next segment says was durable is all that tells.
func TestLaterSegmentShowsALostEnd(t *testing.T) {
	l, _ := smallLog(t, 512)
	l.mustRotate()
	l.commit("in the next segment", false)
	name := l.opts.name(1)
	b := withoutHint(readFile(t, l.opts.FS, name))
	clear(b[firstRecord+512:])
	writeFile(t, l.opts.FS, name, b)
	next := l.opts.name(2)
	writeFile(t, l.opts.FS, next, withoutHint(readFile(t, l.opts.FS, next)))
	_, _, err := replayAll(l.opts, l.start, 0)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.ErrorContains(t, err, "in segment 2, says that LSN")
}
