package wal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSmallGroupsAreCopied: of commits without a sync, only those that reach a page for the first
// time cost a call.
func TestSmallGroupsAreCopied(t *testing.T) {
	for _, block := range []int{0, 512, 4096} {
		d := newDisk(t, block)
		o := testOptions(d)
		o.SegmentSize = 64 << 10
		var groups, bytes int64
		o.OnGroup = func(_ int, n int64, _ time.Duration) { groups++; bytes += n }
		l := createTest(t, o)
		const commits, size = 200, 100
		before := d.count("write")
		for range commits {
			l.commit(text(len(l.commits), size), false)
		}
		require.Len(t, l.appender.live, 1)
		pages := (commits*(recHeader+size) + pageUnit - 1) / pageUnit
		require.Equal(t, pages, d.count("write")-before)
		require.Equal(t, commits-pages, d.count("copy"))
		require.Equal(t, int64(commits), groups)
		copied := int64(commits-pages) * (recHeader + size)
		require.Greater(t, bytes, copied+int64(pages*pageUnit))
		require.Less(t, bytes, copied+int64(2*pages*pageUnit), "bytes that were not written do not count")
		mustReplay(t, o, l.start, l.Durable(), l.commits)

		l.commit("durable", true)
		o.FS = d.crash(func() bool { return false })
		mustReplay(t, o, l.start, l.Durable(), l.commits)
	}
}

// TestKillDuringACopy: whatever part of a group is there, all before it is found, and nothing is
// taken for damage.
func TestKillDuringACopy(t *testing.T) {
	for _, durable := range []bool{false, true} { // is the commit before it
		for keep := 0; ; keep++ {
			d := newDisk(t, 0)
			l := createTest(t, testOptions(d))
			l.commit("first", durable)
			l.commit("second", false)
			size := 0
			d.hook = func(op, _ string, n int) (int, error) { // After the copy nothing happens any more.
				if op != "copy" {
					return 0, errBoom
				}
				size = n
				return min(keep, n), errBoom
			}
			_, err := l.Append([]byte("third"), true)
			require.NoError(t, err)
			end, err := l.Append([]byte("fourth"), true)
			require.NoError(t, err)
			require.ErrorIs(t, l.Wait(end, false), ErrUnknown)
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
	from := int64(l.appender.pos - LSN(l.appender.live[0].number*uint64(l.appender.live[0].size)))
	l.commit("third", false)
	l.commit("fourth", false)
	whole := readFile(t, d, l.appender.live[0].name)
	for n := int64(1); n < 40; n++ { // of the third
		torn := append([]byte(nil), whole...)
		clear(torn[from : from+n])
		writeFile(t, d.FS, l.appender.live[0].name, torn)
		mustReplay(t, o, l.start, l.Durable(), l.commits[:2])
	}
	writeFile(t, d.FS, l.appender.live[0].name, whole)
	mustReplay(t, o, l.start, l.Durable(), l.commits)
}

// TestFailedCopyIsTruncated, as a write that failed in part is.
func TestFailedCopyIsTruncated(t *testing.T) {
	d := newDisk(t, 0)
	l := createTest(t, testOptions(d))
	l.commit("first", false)
	l.commit("second", false)
	d.hook = func(op, _ string, n int) (int, error) {
		if op == "copy" {
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
