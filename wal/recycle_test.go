package wal

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
)

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
	cut := l.mustRotate()
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

func TestReleaseRecyclesBesideCommits(t *testing.T) {
	d := newDisk(t, 512)
	l := createTest(t, testOptions(d))
	var group sync.WaitGroup
	var lock sync.Mutex
	starts := []LSN{l.start}
	var commits []string
	for g := range 8 {
		group.Go(func() {
			for i := range 60 {
				lock.Lock()
				payload := fmt.Sprintf("%d-%d", g, i)
				if g == 0 && i%10 == 9 {
					next := l.mustRotate()
					starts = append(starts, next)
					commits = commits[:0]
				}
				end := l.mustAppend([]byte(payload), true)
				commits = append(commits, payload)
				last := starts[len(starts)-1]
				lock.Unlock()
				require.NoError(t, l.Wait(end, i%3 == 0))
				if g == 0 && i%10 == 9 {
					require.NoError(t, l.Release(last))
				}
			}
		})
	}
	group.Wait()
	require.NoError(t, l.Sync())
	mustReplay(t, l.opts, starts[len(starts)-1], l.Durable(), commits)
	require.Greater(t, d.count("rename"), 3)
}

func TestReleaseBreaksTheOldChain(t *testing.T) {
	for _, prepared := range []bool{false, true} {
		t.Run(fmt.Sprintf("spare_%v", prepared), func(t *testing.T) {
			d := newDisk(t, 512)
			l := createTest(t, testOptions(d))
			l.commit("a", true)
			next := l.mustRotate()
			l.commit("b", true)
			next2 := l.mustRotate()
			l.commit("c", true)
			if prepared {
				require.NoError(t, l.Prepare())
			}
			require.NoError(t, l.Release(next2))
			_, _, err := replayAll(l.opts, l.start, 0)
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			_, _, err = replayAll(l.opts, next, 0)
			if err == nil {
				mustReplay(t, l.opts, next, 0, []string{"b", "c"})
			}
			mustReplay(t, l.opts, next2, l.Durable(), []string{"c"})
			after := l.opts
			after.FS = d.crash(func() bool { return false })
			_, _, err = replayAll(after, l.start, 0)
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			mustReplay(t, after, next2, l.Durable(), []string{"c"})
		})
	}
}

func TestRecycledSegmentNeverReplaysOldRecords(t *testing.T) {
	forKinds(t, func(t *testing.T, block int) {
		d := newDisk(t, block)
		l := createTest(t, testOptions(d))
		start := l.start
		for life := range 12 {
			first := len(l.commits)
			for i := range 6 {
				l.commit(text(life*100+i, 40+(life*53+i*31)%400), (life+i)%2 == 0)
				mustReplay(t, l.opts, start, l.Durable(), l.commits[first:])
			}
			next := l.mustRotate()
			require.NoError(t, l.Sync())
			require.NoError(t, l.Release(next))
			start = next
			mustReplay(t, l.opts, start, l.Durable(), nil)
		}
		require.Greater(t, d.count("rename"), 8)
		require.LessOrEqual(t, l.Bytes(), int64(6*MinSegmentSize))
	})
}

func TestReleaseKeepsABoundedNumber(t *testing.T) {
	o := testOptions(newDisk(t, 512))
	l := createTest(t, o)
	for range 40 {
		l.mustRotate()
	}
	l.commit("a", true)
	require.NoError(t, l.Release(l.End()))
	require.LessOrEqual(t, l.Bytes(), int64((defaultKeepFree+2)*MinSegmentSize))
	bases, err := o.FS.List("dir")
	require.NoError(t, err)
	require.Equal(t, int64(len(bases)*MinSegmentSize), l.Bytes())
	mustReplay(t, o, o.start(41), l.Durable(), l.commits)
	require.NoError(t, l.Close(true))
	bases, err = o.FS.List("dir")
	if err == nil {
		require.Empty(t, bases)
	}
}

// tooSmall is a log in its second segment, which begins at next, and whose first one is smaller
// than a new one would be.
func tooSmall(t *testing.T) (l *testLog, d *disk, next LSN) {
	t.Helper()
	d = newDisk(t, 512)
	o := testOptions(d)
	o.SegmentSize, o.FirstSegmentBytes = 64<<10, 24<<10
	l = createTest(t, o)
	l.commit(text(0, 13_000), true)
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
		next := l.mustRotate()
		require.NoError(t, l.Release(next))
		l.commits = nil
		l.start = next
	}
	require.Equal(t, []int{64 << 10, 64 << 10}, l.fileSizes())
	require.Equal(t, 2, d.count("create"))
	l.commit("last", true)
	mustReplay(t, o, l.start, l.Durable(), l.commits)
}
