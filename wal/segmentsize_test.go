package wal

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

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
		require.Len(t, sizes, 4, "each has room for four times what was before")
		require.Equal(t, DefaultSegmentSize, sizes[3])
		sum := 0
		for _, size := range sizes {
			sum += size
		}
		require.EqualValues(t, sum, l.Bytes())
		require.EqualValues(
			t,
			sum-sizes[3],
			l.Volume()-int64(l.End()-l.appender.live[3].start()),
			"what the files have, not what positions say",
		)
		tail := mustReplay(t, o, l.start, l.Durable(), l.commits)
		require.Less(t, tail.Bytes, l.Volume())
		require.Greater(t, tail.Bytes, l.Volume()*9/10)
	}
}

// TestShortSegmentHasSpaceForAnEndRecord: of every size of record, in files with room for one or two.
func TestShortSegmentHasSpaceForAnEndRecord(t *testing.T) {
	for _, block := range []int{0, 512, 4096} {
		for size := 3; size < 6000; size += 97 {
			d := newDisk(t, block)
			o := testOptions(d)
			o.SegmentSize, o.FirstSegmentBytes = 256<<10, 1
			l := createTest(t, o)
			for i := range 6 {
				l.commit(text(i, size), i%2 == 0)
				if i == 3 {
					_, err := l.Rotate()
					require.NoError(t, err)
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

// tooSmall is a log in its second segment, which begins at next, and whose first one is smaller
// than a new one would be.
func tooSmall(t *testing.T) (l *testLog, d *disk, next LSN) {
	t.Helper()
	d = newDisk(t, 512)
	o := testOptions(d)
	o.SegmentSize, o.FirstSegmentBytes = 64<<10, 32<<10
	l = createTest(t, o)
	l.commit(text(0, 12_000), true)
	next, err := l.Rotate()
	require.NoError(t, err)
	return l, d, next
}

// TestSegmentThatIsTooSmallIsNotUsedAgain: it is durably no part of the log before it goes, as one
// that is recycled.
func TestSegmentThatIsTooSmallIsNotUsedAgain(t *testing.T) {
	for _, spare := range []bool{true, false} {
		l, d, next := tooSmall(t)
		if spare {
			require.NoError(t, l.Prepare())
		}
		before := len(d.ops)
		require.NoError(t, l.Release(next))
		var did []string
		for _, op := range d.ops[before:] {
			if strings.HasSuffix(op, "-000001") {
				did = append(did, strings.Fields(op)[0])
			}
		}
		require.Equal(t, []string{"write", "syncdata", "remove"}, did[len(did)-3:])
		require.Empty(t, l.pool.free)
		require.Equal(t, spare, l.appender.spare != nil)
		sum := 0
		for _, size := range l.fileSizes() {
			sum += size
		}
		require.EqualValues(t, sum, l.Bytes())
		l.commits = nil
		l.commit("second", true)
		mustReplay(t, l.opts, next, l.Durable(), l.commits)
	}
}

// TestShortSegmentIsUsedAgain in a log that has had little.
func TestShortSegmentIsUsedAgain(t *testing.T) {
	d := newDisk(t, 512)
	o := testOptions(d)
	o.SegmentSize, o.FirstSegmentBytes = 1<<20, 64<<10
	l := createTest(t, o)
	for range 10 {
		l.commit(text(len(l.commits), 1000), true)
		next, err := l.Rotate()
		require.NoError(t, err)
		require.NoError(t, l.Release(next))
		l.commits = nil
		l.start = next
	}
	require.Equal(t, []int{64 << 10, 64 << 10}, l.fileSizes())
	require.Equal(t, 2, d.count("create"))
	l.commit("last", true)
	mustReplay(t, o, l.start, l.Durable(), l.commits)
}

// TestShortSegmentThatCannotBeRemoved: what becomes of each step of giving it up is final, and no file
// stays open.
func TestShortSegmentThatCannotBeRemoved(t *testing.T) {
	for _, op := range []string{"write", "syncdata", "remove"} {
		l, d, next := tooSmall(t)
		require.NoError(t, l.Sync())
		d.hook = func(did, name string, n int) (int, error) {
			if did == op && strings.HasSuffix(name, "-000001") {
				return 0, errBoom
			}
			return n, nil
		}
		err := l.Release(next)
		require.ErrorIs(t, err, errBoom)
		require.ErrorIs(t, err, ErrFailed)
		_, err = l.Append([]byte("more"), true)
		require.ErrorIs(t, err, ErrFailed)
		require.ErrorIs(t, l.Close(true), ErrFailed)
	}
}

// TestFinish tells where a log ends and the next one begins, and makes nothing for it.
func TestFinish(t *testing.T) {
	for _, spare := range []bool{true, false} {
		d := newDisk(t, 512)
		l := createTest(t, testOptions(d))
		l.commit("first", true)
		end := l.Durable()
		if spare {
			require.NoError(t, l.Prepare())
		}
		_, err := l.Append([]byte("a part without an end"), false)
		require.NoError(t, err)
		before := len(d.ops)
		got, next := l.Finish()
		require.Equal(t, end, got)
		require.Equal(t, First(l.opts.SegmentSize, 2), next)
		require.NoError(t, l.Sync())
		require.Equal(t, end, l.Durable())
		require.Len(t, d.ops, before)
		mustReplay(t, l.opts, l.start, end, l.commits)
		require.NoError(t, l.Close(true))
	}
}

// TestTooManyOpenFilesWhileASegmentIsRecycled: the directory could not be opened to be synced. The
// Append that needed the segment fails, the log does not, and the next Append repeats all steps.
func TestTooManyOpenFilesWhileASegmentIsRecycled(t *testing.T) {
	// then the one that is given up goes to those that are kept, and is recycled later
	for _, spare := range []bool{false, true} {
		d := newDisk(t, 512)
		l := createTest(t, testOptions(d))
		l.commit("first", true)
		next, err := l.Rotate()
		require.NoError(t, err)
		require.NoError(t, l.Sync())
		if spare {
			require.NoError(t, l.Prepare())
		}
		short := true
		d.hook = func(op, _ string, n int) (int, error) {
			if op == "syncdir" && short {
				return 0, vfs.ErrNoFiles
			}
			return n, nil
		}
		require.NoError(t, l.Release(next), "it is durably no part of the log")
		l.start, l.commits = next, nil
		if spare {
			next, err = l.Rotate() // to the spare
			require.NoError(t, err)
			l.start = next
		}
		require.ErrorIs(t, l.Prepare(), vfs.ErrNoFiles)
		require.Nil(t, l.appender.spare)
		_, err = l.Rotate()
		require.ErrorIs(t, err, vfs.ErrNoFiles)
		l.commit("meanwhile", true)
		mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
		short = false
		_, err = l.Rotate()
		require.NoError(t, err)
		l.commit("in the next one", true)
		mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
		require.NoError(t, l.Close(true))
		names, err := d.List("dir")
		require.NoError(t, err)
		require.Empty(t, names)
	}
}
