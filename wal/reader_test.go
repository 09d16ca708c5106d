package wal

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/golden"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

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

// withoutNote cuts the evidence of the note away.
func withoutNote(b []byte) []byte {
	b = bytes.Clone(b)
	clear(b[hintAt : hintAt+hintLen])
	return b
}

func TestTornTailIsCutAtEveryLength(t *testing.T) {
	racetest.OneGoroutine(t)
	forKinds(t, func(t *testing.T, block int) {
		l, file := smallLog(t, block)
		end := int(l.End()) - smallSegment
		bare := withoutNote(file)
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

			// And with the note, or the caller, to say what had been there.
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
		got, tail, err := l.reread(withoutNote(damage(file, last)), 0)
		require.NoError(t, err)
		require.Len(t, got, 5)
		require.Equal(t, int64(recHeader+4), tail.Dropped)
	})
	t.Run("a_later_record_tells", func(t *testing.T) {
		_, _, err := l.reread(withoutNote(damage(file, firstRecord+recHeader)), 0)
		var bad *badfile.Error
		require.ErrorAs(t, err, &bad)
		require.Equal(t, l.opts.name(1), bad.File)
		require.Equal(t, int64(firstRecord), bad.Off)
		require.Contains(t, bad.Detail, "says that LSN")
	})
	t.Run("a_zeroed_record_is_no_end", func(t *testing.T) {
		b := withoutNote(file)
		clear(b[firstRecord : firstRecord+512])
		_, _, err := l.reread(b, 0)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
	})
	t.Run("a_later_segment_tells", func(t *testing.T) {
		l, _ := smallLog(t, 512)
		last := int(l.End()) - smallSegment - 1
		_, err := l.Rotate()
		require.NoError(t, err)
		l.commit("in the next segment", false)
		name := l.opts.name(1)
		writeFile(t, l.opts.FS, name, withoutNote(damage(readFile(t, l.opts.FS, name), last)))
		_, _, err = replayAll(l.opts, l.start, 0)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
	})
	t.Run("a_seal_tells", func(t *testing.T) {
		l, _ := smallLog(t, 512)
		_, err := l.Rotate()
		require.NoError(t, err)
		require.NoError(t, l.Close(false))
		mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
		writeFile(t, l.opts.FS, l.opts.name(2), nil)
		_, _, err = replayAll(l.opts, l.start, 0)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
		require.ErrorContains(t, err, "is sealed")
	})
}

// TestReplayNeverStepsOverAGap takes each block out of a log, and moves the rest up: no record that
// follows a lost one is replayed.
func TestReplayNeverStepsOverAGap(t *testing.T) {
	l, file := smallLog(t, 512)
	bare := withoutNote(file)
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
	found, err := Scan(l.opts)
	require.NoError(t, err)
	var first LSN
	_, err = found.Replay(l.start, 0, func(p Part) error {
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
	found, err := Scan(l.opts)
	require.NoError(t, err)
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
	_, err := l.Rotate()
	require.NoError(t, err)
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

// TestGoldenBytes pins the format: offset, bytes and, in the comment above each stretch, what they
// are.
func TestGoldenBytes(t *testing.T) {
	l, _ := smallLog(t, 512)
	l.appender.inCommit = false
	_, err := l.Append([]byte("part, "), false)
	require.NoError(t, err)
	_, err = l.Append([]byte("last part"), true)
	require.NoError(t, err)
	_, err = l.Rotate()
	require.NoError(t, err)
	require.NoError(t, l.Sync())
	file := readFile(t, l.opts.FS, l.opts.name(1))
	for _, part := range []struct {
		name, title string
		fields      []golden.Field
	}{
		{"segment-header.hex", "header block of a segment", []golden.Field{
			{0, int(hintAt), "magic, version, block, store id, number, salt, size, follows, reserved, checksum"}}},
		{"note.hex", "note block of a segment", []golden.Field{{int(hintAt), int(firstRecord - hintAt), "salt, synced, checksum"}}},
		{"records.hex", "records: checksum, salt, lsn, synced, prev, length, type, flags, reserved; payload", []golden.Field{
			{int(firstRecord), len(file) - int(firstRecord), "first record"}}},
	} {
		b := make([]byte, len(file)) // with what the other two have left out
		f := part.fields[0]
		copy(b[f.Off:f.Off+f.Size], file[f.Off:])
		golden.Require(t, part.name, part.title, part.fields, b)
	}
}

func TestNextVersionIsForeign(t *testing.T) {
	l, file := smallLog(t, 512)
	h := l.appender.live[0].segmentHeader
	clear(file[:hintAt])
	putSegmentHeader(file, h)
	_, err := decodeSegmentHeader(file)
	require.NoError(t, err)
	file[segOffVer]++
	_, err = decodeSegmentHeader(file)
	require.Error(t, err)
	_, _, err = l.reread(file, 0)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
}

// FuzzRecord checks that what decodes encodes to the same bytes.
func FuzzRecord(f *testing.F) {
	l, file := smallLog(f, 512)
	salt := l.appender.live[0].salt
	f.Add(file[firstRecord:firstRecord+512], salt, uint64(l.start))
	f.Fuzz(func(t *testing.T, b []byte, salt, lsn uint64) {
		defer bound.Hold(t, uint64(1<<20+8*len(b)))()
		for _, fix := range []bool{false, true} {
			if fix && len(b) >= recHeader {
				// Make the cheap checks pass, as an attacker would.
				b = bytes.Clone(b)
				r := record{
					lsn:     LSN(lsn),
					kind:    recordType(b[recType]),
					flags:   partFlags(b[recFlags]),
					payload: b[recHeader:],
				}
				b = appendRecord(nil, salt, r)
				sealRecord(b, 0)
			}
			r, err := decodeRecord(b, salt, LSN(lsn))
			if err != nil {
				continue
			}
			again := appendRecord(nil, salt, r)
			sealRecord(again, r.synced)
			require.Equal(t, b[:r.size()], again)
		}
	})
}

// FuzzSegment replays any bytes behind a good header: no panic, no hang, and only damage as an
// error.
func FuzzSegment(f *testing.F) {
	l, file := smallLog(f, 512)
	f.Add(file[hintAt:l.End()-smallSegment], uint64(0))
	f.Add(file[hintAt:firstRecord+100], uint64(1))
	header := file[:hintAt]
	o := l.opts
	f.Fuzz(func(t *testing.T, b []byte, durable uint64) {
		defer bound.Hold(t, uint64(16<<20+4*len(b)))()
		o := o
		o.FS = vfs.NewMemory()
		writeFile(t, o.FS, o.name(1), append(bytes.Clone(header), b[:min(len(b), smallSegment)]...))
		_, tail, err := replayAll(o, l.start, LSN(durable))
		if err != nil {
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			return
		}
		require.GreaterOrEqual(t, tail.Dropped, int64(0))
		require.GreaterOrEqual(t, tail.End, l.start)
	})
}

// TestDroppedBytesAreToldWhateverIsWrong damages each byte of the header of the last record,
// without evidence that it was durable: it is dropped, and Tail says how much, although salt or
// place may be what is wrong.
func TestDroppedBytesAreToldWhateverIsWrong(t *testing.T) {
	l, file := smallLog(t, 512)
	bare := withoutNote(file)
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

// TestRecordsOfThePreviousUseAreIgnored: the same segment with another salt, as when a number is used
// again and the disk brings back old blocks. Place and checksum of the records are right, the salt
// alone tells.
func TestRecordsOfThePreviousUseAreIgnored(t *testing.T) {
	l, file := smallLog(t, 512)
	h := l.appender.live[0].segmentHeader
	h.salt++
	clear(file[:hintAt])
	putSegmentHeader(file, h)
	got, _, err := l.reread(file, 0)
	require.NoError(t, err)
	require.Empty(t, got)
}

// TestARecordElsewhereIsNone: salt and checksum of a record that went to the wrong place are right,
// its LSN is not.
func TestARecordElsewhereIsNone(t *testing.T) {
	l, file := smallLog(t, 512)
	salt := l.appender.live[0].salt
	_, err := decodeRecord(file[firstRecord:], salt, l.start)
	require.NoError(t, err)
	for _, lsn := range []LSN{l.start - 512, l.start + 512, l.start + smallSegment} {
		_, err = decodeRecord(file[firstRecord:], salt, lsn)
		require.ErrorContains(t, err, "expected", "LSN %d", lsn)
	}
}

// TestLaterSegmentShowsALostEnd: everything from a record to the end of its segment is gone, the
// seal and the note too. What a record of the next segment says was durable is all that tells.
func TestLaterSegmentShowsALostEnd(t *testing.T) {
	l, _ := smallLog(t, 512)
	_, err := l.Rotate()
	require.NoError(t, err)
	l.commit("in the next segment", false)
	name := l.opts.name(1)
	b := withoutNote(readFile(t, l.opts.FS, name))
	clear(b[firstRecord+512:])
	writeFile(t, l.opts.FS, name, b)
	next := l.opts.name(2)
	writeFile(t, l.opts.FS, next, withoutNote(readFile(t, l.opts.FS, next)))
	_, _, err = replayAll(l.opts, l.start, 0)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.ErrorContains(t, err, "in segment 2, says that LSN")
}
