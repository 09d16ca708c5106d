package wal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// idleFile reads nothing, and does not say why.
type idleFile struct{ vfs.File }

func (idleFile) ReadAt([]byte, int64) (int, error) { return 0, nil }

func TestReadThatMakesNoProgressIsAnError(t *testing.T) {
	_, err := readUpTo(idleFile{}, make([]byte, 10))
	require.Error(t, err)
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
// nothing but its hint to say when the log has been replayed.
func TestSegmentsAreReadOnceAndNotAgain(t *testing.T) {
	const size = 256 << 10
	o := testOptions(newDisk(t, 512))
	o.SegmentSize = size
	l := createTest(t, o)
	for i := range 3 {
		l.commit(text(i, 60_000), true)
		l.mustRotate()
	}
	end := l.commit("last", true)
	require.NoError(t, l.Prepare())
	require.NoError(t, l.Close(false))
	counter := &readBytes{FS: l.opts.FS}
	o = l.opts
	o.FS = counter
	found := mustScan(t, o)
	require.Len(t, found.segments, 5, "four, and a spare")

	reads := func(read func()) int {
		before := counter.n
		read()
		return counter.n - before
	}
	chain := func() { require.NoError(t, found.Chain(l.start)) }
	require.Greater(t, reads(chain), size+2*60_000)
	require.Equal(t, size, reads(chain), "the last segment with a record")
	require.Less(t, reads(func() {
		tail, err := found.Replay(l.start, end, func(Part) error { return nil })
		require.NoError(t, err)
		require.Equal(t, 4, tail.Commits)
	}), 4*size+2*firstRecord)

	require.NoError(t, o.FS.Remove(o.name(3)))
	found = mustScan(t, o)
	for range 2 {
		require.ErrorContains(t, found.Chain(l.start), "segment 3 before it is missing")
	}
}

// TestReplayReadsAllSegmentsIntoOneMemory: fresh memory for each costs more than reading it.
func TestReplayReadsAllSegmentsIntoOneMemory(t *testing.T) {
	racetest.OneGoroutine(t)
	o := testOptions(newDisk(t, 512))
	o.SegmentSize, o.FirstSegmentBytes = 1<<20, 1<<20 // Each end of a segment cuts a commit, which is copied.
	l := createTest(t, o)
	for i := range 80 {
		l.commit(text(i, 100_000), false)
	}
	found := mustScan(t, l.opts)
	require.Equal(t, int64(len(found.segments)-2)<<20, found.MaxBytes(l.start+2<<20))
	require.Greater(t, len(found.segments), 6)
	defer bound.Hold(t, 4<<20)() // one segment, and the commits that are cut in two by the end of one
	tail, err := found.Replay(l.start, l.Durable(), func(Part) error { return nil })
	require.NoError(t, err)
	require.Equal(t, 80, tail.Commits)
}
