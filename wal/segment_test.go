package wal

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/golden"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestGoldenCompensation pins the record that takes a commit back.
func TestGoldenCompensation(t *testing.T) {
	b := appendRecord(nil, 7, record{lsn: 40960, prev: 40900, kind: typeCompensation})
	sealRecord(b, 40800)
	golden.Require(
		t,
		"void.hex",
		"record that takes the commit before it back: checksum, salt, lsn, synced, prev, length, type, "+
			"flags, reserved",
		[]golden.Field{{Off: 0, Size: len(b), Remark: "record"}},
		b,
	)
	r, err := decodeRecord(b, 7, 40960)
	require.NoError(t, err)
	require.Equal(t, typeCompensation, r.kind)
}

func TestZeroOptionsAreDefaults(t *testing.T) {
	o, err := Options{}.checked()
	require.NoError(t, err)
	require.EqualValues(t, DefaultSegmentSize, o.SegmentSize)
	require.Equal(t, defaultKeepFree, o.KeepFree())
	require.NotEqual(t, o.Rand(), o.Rand())
}

func TestOptionsAreChecked(t *testing.T) {
	for _, size := range []int64{-1, 4096, MinSegmentSize + 1, MaxSegmentSize * 2} {
		o := testOptions(vfs.NewMemory())
		o.SegmentSize = size
		_, err := Create(o, 1, 1)
		require.Error(t, err)
		_, err = Scan(o)
		require.Error(t, err)
	}
}

// TestGoldenBytes pins the format: offset, bytes and, in the comment above each stretch, what they
// are.
func TestGoldenBytes(t *testing.T) {
	l, _ := smallLog(t, 512)
	l.appender.inCommit = false
	l.mustAppend([]byte("part, "), false)
	l.mustAppend([]byte("last part"), true)
	l.mustRotate()
	require.NoError(t, l.Sync())
	file := readFile(t, l.opts.FS, l.opts.name(1))
	for _, part := range []struct {
		name, title string
		fields      []golden.Field
	}{
		{"segment-header.hex", "header block of a segment", []golden.Field{
			{0, int(hintAt),
				"magic, version, block, store id, number, salt, size, follows, reserved, checksum"}}},
		{"hint.hex", "hint block of a segment", []golden.Field{
			{int(hintAt), int(firstRecord - hintAt), "salt, synced, checksum"},
		}},
		{"records.hex", "records: checksum, salt, lsn, synced, prev, length, type, flags, reserved; " +
			"payload", []golden.Field{
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
