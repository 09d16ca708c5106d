package wal

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// TestSmallGroupsAreCopied: of commits without a sync, only those that reach a page for the first
// time cost a call.
func TestSmallGroupsAreCopied(t *testing.T) {
	for _, block := range []int{0, 512, 4096} {
		t.Run(fmt.Sprint(block), func(t *testing.T) {
			d := newDisk(t, block)
			o := testOptions(d)
			o.SegmentSize = 64 << 10
			var told, bytes int64
			o.OnGroup = func(_ int, n int64, _ time.Duration) { told++; bytes += n }
			l := createTest(t, o)
			const size = 100
			before := d.count("write")
			const commits = 200
			for range commits {
				l.commit(text(len(l.commits), size), false)
			}
			require.Len(t, l.live, 1)
			pages := (commits*(recHeader+size) + pageUnit - 1) / pageUnit
			require.Equal(t, pages, d.count("write")-before)
			require.Equal(t, commits-pages, d.count("copy"))
			require.Equal(t, int64(commits), told)
			copied := int64(commits-pages) * (recHeader + size)
			require.Greater(t, bytes, copied+int64(pages*pageUnit))
			require.Less(t, bytes, copied+int64(2*pages*pageUnit), "bytes that were not written are not told of")
			mustReplay(t, o, l.start, l.Durable(), l.commits)

			l.commit("durable", true)
			d2 := d.crash(func() bool { return false })
			o2 := o
			o2.FS = d2
			mustReplay(t, o2, l.start, l.Durable(), l.commits)
		})
	}
}

// TestWindowIsClosedWithItsSegment: a segment that is removed would keep its room otherwise.
func TestWindowIsClosedWithItsSegment(t *testing.T) {
	for _, block := range []int{0, 512} {
		d := newDisk(t, block)
		l := createTest(t, testOptions(d))
		for range 10 {
			l.commit("relaxed", false)
		}
		require.Equal(t, 1, d.windows)
		for len(l.live) == 1 { // durable ones only, which open none
			l.commit(text(len(l.commits), 1000), true)
		}
		l.commit("in the next segment", true)
		require.Zero(t, d.windows, "block %d", block)
		for range 10 {
			l.commit("relaxed", false)
		}
		require.Equal(t, 1, d.windows)
		require.NoError(t, l.Close(false))
		require.Zero(t, d.windows)
		mustReplay(t, l.opts, l.start, l.start, l.commits)
	}
}

// TestWindowGoesAlong: it covers a part of a large segment.
func TestWindowGoesAlong(t *testing.T) {
	d := newDisk(t, 0)
	o := testOptions(d)
	o.SegmentSize = mmapBytes + mmapBytes/2
	o.FirstSegmentBytes = o.SegmentSize
	l := createTest(t, o)
	for l.pos < l.live[0].start()+mmapBytes+mmapBytes/4 {
		l.commit(text(len(l.commits), 1500), false)
	}
	require.Equal(t, 2, d.count("window"))
	require.Equal(t, 1, d.windows)
	require.Greater(t, d.count("copy"), 50)
	mustReplay(t, o, l.start, l.Durable(), l.commits)
}

// TestGroupThatCannotBeCopiedIsWritten: a fault in a window is no failure of the log unless the
// call fails that comes instead.
func TestGroupThatCannotBeCopiedIsWritten(t *testing.T) {
	for _, keep := range []int{0, 1, 50, 100} { // bytes that were copied before the fault
		for _, op := range []string{"copy", "window"} {
			d := newDisk(t, 512)
			l := createTest(t, testOptions(d))
			faults := 0
			d.hook = func(did, _ string, n int) (int, error) {
				if did == op && len(l.commits) > 5 {
					faults++
					return min(keep, n), vfs.ErrIO
				}
				return n, nil
			}
			if op == "window" {
				l.commits = append(l.commits, "", "", "", "", "", "") // The first one is refused.
			}
			for range 60 {
				l.commit(text(len(l.commits), 100), false)
			}
			require.Equal(t, 1, faults, "nothing is copied any more")
			require.Zero(t, d.windows)
			if op == "window" {
				l.commits = l.commits[6:]
			}
			mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
			l.commit("durable", true)
			mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
		}
	}
}

// TestFaultOfACopyAndOfTheCallBehindIt: the commit failed, and is taken back like one whose write
// had failed in part.
func TestFaultOfACopyAndOfTheCallBehindIt(t *testing.T) {
	d := newDisk(t, 0)
	l := createTest(t, testOptions(d))
	l.commit("first", false)
	l.commit("second", false)
	d.hook = func(op, _ string, n int) (int, error) {
		if op == "copy" || op == "write" {
			return n / 2, errBoom
		}
		return n, nil
	}
	end, err := l.Append([]byte("third"), true)
	require.NoError(t, err)
	err = l.Wait(end, false)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, err, errBoom)
	require.Equal(t, 1, d.count("truncate"))
	mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
}

// TestProcessEndsWhileItCopies: whatever part of a group is there, all before it is found, and
// nothing is taken for damage.
func TestProcessEndsWhileItCopies(t *testing.T) {
	for _, durable := range []bool{false, true} { // is the commit before it
		for keep := 0; ; keep++ {
			d := newDisk(t, 0)
			l := createTest(t, testOptions(d))
			l.commit("first", durable)
			l.commit("second", false)
			size := 0
			d.hook = func(op, _ string, n int) (int, error) { // After the copy nothing happens any more.
				switch op {
				case "window":
					return n, nil
				case "copy":
					size = n
					return min(keep, n), errBoom
				}
				return 0, errBoom
			}
			_, err := l.Append([]byte("third"), true)
			require.NoError(t, err)
			end, err := l.Append([]byte("fourth"), true)
			require.NoError(t, err)
			require.Error(t, l.Wait(end, false))
			require.NotZero(t, size)
			got, tail, err := replayAll(l.opts, l.start, l.Durable())
			require.NoError(t, err, "%d bytes of %d", keep, size)
			all := append(l.commits, "third", "fourth")
			require.LessOrEqual(t, len(l.commits), len(got))
			require.Equal(t, all[:len(got)], got)
			require.Equal(t, len(got), tail.Commits)
			if keep == size {
				require.Len(t, got, 4)
				break
			}
			require.Less(t, len(got), 4)
		}
	}
}

// TestSecondHalfOfACopyAlone: a copy has no order.
func TestSecondHalfOfACopyAlone(t *testing.T) {
	d := newDisk(t, 0)
	o := testOptions(d)
	o.SegmentSize = 64 << 10
	l := createTest(t, o)
	l.commit("first", true)
	l.commit("second", false)
	from := int64(l.pos - LSN(l.live[0].number*uint64(l.live[0].size)))
	l.commit("third", false)
	l.commit("fourth", false)
	whole := readFile(t, d, l.live[0].name)
	for n := int64(1); n < 40; n++ { // of the third
		torn := append([]byte(nil), whole...)
		clear(torn[from : from+n])
		writeFile(t, d.FS, l.live[0].name, torn)
		mustReplay(t, o, l.start, l.Durable(), l.commits[:2])
	}
	writeFile(t, d.FS, l.live[0].name, whole)
	mustReplay(t, o, l.start, l.Durable(), l.commits)
}
