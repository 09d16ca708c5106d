package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

var errBoom = errors.New("boom")

// TestFailureWhileSegmentsAreRetired fails the n-th change that Release makes, with a segment
// prepared and without. The error is final, and what lies behind the cut is all there.
func TestFailureWhileSegmentsAreRetired(t *testing.T) {
	for _, prepared := range []bool{false, true} {
		t.Run(fmt.Sprintf("prepared_%v", prepared), func(t *testing.T) {
			n := 0
			for ; ; n++ {
				d := newDisk(t, 0)
				o := testOptions(d)
				o.KeepFree = 1
				l, err := Create(o, 1, 1)
				require.NoError(t, err)
				for i := range 5 {
					end, err := l.Append([]byte(text(i, 100)), true)
					require.NoError(t, err)
					require.NoError(t, l.Wait(end, true))
					_, err = l.Rotate()
					require.NoError(t, err)
				}
				cut := l.End()
				end, err := l.Append([]byte("kept"), true)
				require.NoError(t, err)
				require.NoError(t, l.Wait(end, true))
				if prepared {
					require.NoError(t, l.Prepare())
				}
				left := n
				d.hook = func(_, _ string, size int) (int, error) {
					if left--; left == -1 {
						return 0, errBoom
					}
					return size, nil
				}
				err = l.Release(cut)
				d.hook = nil
				mustReplay(t, o, cut, 0, []string{"kept"})
				if left >= 0 {
					require.NoError(t, err)
					require.NoError(t, l.Close(false))
					break
				}
				require.ErrorIs(t, err, errBoom, "change %d", n)
				_, err = l.Append(nil, true)
				require.ErrorIs(t, err, ErrFailed, "change %d", n)
				require.ErrorIs(t, l.Release(cut), ErrFailed, "change %d", n)
				require.ErrorIs(t, l.Close(false), errBoom)
			}
			require.Greater(t, n, 4)
		})
	}
}

// TestReleaseOfNothingDoesNothing: the segment that is written is not given up, nor one that was.
func TestReleaseOfNothingDoesNothing(t *testing.T) {
	d := newDisk(t, 0)
	l := createTest(t, testOptions(d))
	l.commit("a", true)
	before := len(d.ops)
	for _, cut := range []LSN{0, l.start, l.End()} {
		require.NoError(t, l.Release(cut))
	}
	require.Len(t, d.ops, before)
}

// TestReleaseWaitsForEndRecords, and a log that has failed never writes them.
func TestReleaseWaitsForEndRecords(t *testing.T) {
	d := newDisk(t, 0)
	l := createTest(t, testOptions(d))
	l.commit("a", false)
	cut, err := l.Rotate()
	require.NoError(t, err)
	d.hook = func(op, _ string, size int) (int, error) {
		if op == "syncdata" {
			return 0, errBoom
		}
		return size, nil
	}
	require.ErrorIs(t, l.Release(cut), errBoom)
	d.hook = nil
	mustReplay(t, l.opts, l.start, 0, l.commits)
}

// TestWaitOnAClosedLog knows what was durable, and nothing else: the files are gone.
func TestWaitOnAClosedLog(t *testing.T) {
	l := createTest(t, testOptions(newDisk(t, 0)))
	durable := l.commit("durable", true)
	written := l.commit("written", false)
	require.NoError(t, l.Close(true))
	require.NoError(t, l.Wait(durable, true))
	require.ErrorIs(t, l.Wait(written, true), ErrClosed)
}

// TestSegmentsAreInTheOrderOfTheirNumbers, which is not that of their names when these grow longer.
func TestSegmentsAreInTheOrderOfTheirNumbers(t *testing.T) {
	o := testOptions(newDisk(t, 0))
	log, err := Create(o, 999_998, 1)
	require.NoError(t, err)
	l := &testLog{Log: log, t: t, opts: o, start: log.End()}
	for i := range 4 {
		l.commit(text(i, 100), true)
		_, err := l.Rotate()
		require.NoError(t, err)
	}
	require.NoError(t, l.Close(false))
	found, err := Scan(o)
	require.NoError(t, err)
	for i, s := range found.Segments() {
		require.EqualValues(t, 999_998+i, s.Number)
	}
	mustReplay(t, o, l.start, l.Durable(), l.commits)
}

// TestSegmentOfAnotherSizeIsForeign: positions in it would mean something else.
func TestSegmentOfAnotherSizeIsForeign(t *testing.T) {
	l, _ := smallLog(t, 512)
	o := l.opts
	o.SegmentSize *= 2
	found, err := Scan(o)
	require.NoError(t, err)
	require.Empty(t, found.Segments())
	require.Equal(t, []string{o.name(1)}, found.Foreign())
	_, err = found.Replay(l.start, 0, nil)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
}

// TestRecordThatNoVersionWritesIsNone, although its checksum is right.
func TestRecordThatNoVersionWritesIsNone(t *testing.T) {
	const salt, lsn = 7, LSN(40960)
	for _, test := range []struct {
		name   string
		change func(b []byte)
		want   string
	}{
		{"as_it_should_be", func([]byte) {}, ""},
		{"reserved_bytes", func(b []byte) { b[recReserved+1] = 1 }, "reserved"},
		{"type_0", func(b []byte) { b[recType] = 0 }, "type 0"},
		{"type_of_the_future", func(b []byte) { b[recType] = 4 }, "type 4"},
		{"unknown_flag", func(b []byte) { b[recFlags] |= 4 }, "flags 7"},
		{"seal_with_payload", func(b []byte) { b[recType], b[recFlags] = byte(typeSeal), 0 }, "7 payload bytes"},
		{"void_with_payload", func(b []byte) { b[recType], b[recFlags] = byte(typeCompensation), 0 }, "7 payload bytes"},
		{"durable_before_it_is_written", func(b []byte) { binary.LittleEndian.PutUint64(b[recSynced:], uint64(lsn)+1) }, "is durable"},
		{"before_itself", func(b []byte) { binary.LittleEndian.PutUint64(b[recPrev:], uint64(lsn)) }, "is before it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := appendRecord(
				nil,
				salt,
				record{lsn: lsn, kind: typeData, flags: partFirst | partLast, payload: []byte("payload")},
			)
			test.change(b)
			sealRecord(b, LSN(binary.LittleEndian.Uint64(b[recSynced:])))
			r, err := decodeRecord(b, salt, lsn)
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "payload", string(r.payload))
			for n := range len(b) {
				_, err := decodeRecord(b[:n], salt, lsn)
				require.Error(t, err, "%d bytes", n)
			}
		})
	}
}

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
		b := withoutNote(readFile(t, l.opts.FS, name))
		clear(b[int64(first)-MinSegmentSize : firstRecord+pageUnit]) // up to where padding may end
		require.NotZero(t, binary.LittleEndian.Uint64(b[firstRecord+pageUnit:]), "a record begins there")
		writeFile(t, l.opts.FS, name, b)
		_, _, err := replayAll(l.opts, first, 0)
		require.ErrorIs(t, err, badfile.ErrCorrupt, "the record itself says that more was durable")
	})
	t.Run("in_the_segment_before", func(t *testing.T) {
		l, _ := smallLog(t, 512)
		for range 2 {
			_, err := l.Rotate()
			require.NoError(t, err)
		}
		l.commit("in segment 3", true)
		require.NoError(t, l.Close(false))
		start, name := l.opts.start(3), l.opts.name(3)
		mustReplay(t, l.opts, start, 0, []string{"in segment 3"})
		b := withoutNote(readFile(t, l.opts.FS, name))
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
// one, but not its note.
func TestHintOfALaterSegmentShowsALostEnd(t *testing.T) {
	l, _ := smallLog(t, 512)
	_, err := l.Rotate()
	require.NoError(t, err)
	l.commit("in the next segment", true)
	for number, from := range map[uint64]int{1: firstRecord + 512, 2: firstRecord} {
		b := readFile(t, l.opts.FS, l.opts.name(number))
		if number == 1 {
			b = withoutNote(b)
		}
		clear(b[from:])
		writeFile(t, l.opts.FS, l.opts.name(number), b)
	}
	_, _, err = replayAll(l.opts, l.start, 0)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.ErrorContains(t, err, "note of segment 2")
}

// idleFile reads nothing, and does not say why.
type idleFile struct{ vfs.File }

func (idleFile) ReadAt([]byte, int64) (int, error) { return 0, nil }

// noList is a directory that cannot be listed.
type noList struct{ vfs.FS }

func (noList) List(string) ([]string, error) { return nil, errBoom }

func TestReadThatMakesNoProgressIsAnError(t *testing.T) {
	_, err := readUpTo(idleFile{}, make([]byte, 10), 0)
	require.Error(t, err)
}

func TestRemoveNeedsAListOfTheFiles(t *testing.T) {
	l, _ := smallLog(t, 512)
	o := l.opts
	o.FS = noList{l.opts.FS}
	require.ErrorIs(t, Remove(o), errBoom)
}

func TestZeroOptionsAreDefaults(t *testing.T) {
	o, err := Options{}.checked()
	require.NoError(t, err)
	require.EqualValues(t, DefaultSegmentSize, o.SegmentSize)
	require.Equal(t, defaultKeepFree, o.KeepFree)
	require.NotEqual(t, o.Rand(), o.Rand())
}

// readBytes counts what is read from the files of a file system.
type readBytes struct {
	vfs.FS
	n int
}

func (f *readBytes) Open(name string, flag vfs.Flag) (vfs.File, error) {
	file, err := f.FS.Open(name, flag)
	return &readBytesFile{file, f}, err
}

type readBytesFile struct {
	vfs.File
	fs *readBytes
}

func (r *readBytesFile) ReadAt(p []byte, off int64) (int, error) {
	r.fs.n += len(p)
	return r.File.ReadAt(p, off)
}

// TestSegmentsAreReadOnceAndNotAgain: Chain is asked about each meta page, and has to read the
// beginnings of segments once; a segment without a record is read whole once, to know that, and has
// nothing but its note to say when the log has been replayed.
func TestSegmentsAreReadOnceAndNotAgain(t *testing.T) {
	const size = 256 << 10
	o := testOptions(newDisk(t, 512))
	o.SegmentSize = size
	l := createTest(t, o)
	for i := range 3 {
		l.commit(text(i, 60_000), true)
		_, err := l.Rotate()
		require.NoError(t, err)
	}
	end := l.commit("last", true)
	require.NoError(t, l.Prepare())
	require.NoError(t, l.Close(false))
	counter := &readBytes{FS: l.opts.FS}
	o = l.opts
	o.FS = counter
	found, err := Scan(o)
	require.NoError(t, err)
	require.Len(t, found.segments, 5, "four, and a spare")

	reads := func(read func()) int {
		before := counter.n
		read()
		return counter.n - before
	}
	chain := func() { require.NoError(t, found.Chain(l.start)) }
	require.Greater(t, reads(chain), size+2*60_000)
	require.Less(
		t,
		reads(chain),
		2*(firstRecord+pageUnit),
		"the last segment with a record, whose first one is short",
	)
	require.Less(t, reads(func() {
		tail, err := found.Replay(l.start, end, func(Part) error { return nil })
		require.NoError(t, err)
		require.Equal(t, 4, tail.Commits)
	}), 4*size+2*firstRecord)

	require.NoError(t, o.FS.Remove(o.name(3)))
	found, err = Scan(o)
	require.NoError(t, err)
	for range 2 {
		require.ErrorContains(t, found.Chain(l.start), "segment 3 before it is missing")
	}
}
