package wal

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

func TestReplayGivesWhatWasAppended(t *testing.T) {
	racetest.OneGoroutine(t)
	forKinds(t, func(t *testing.T, block int) {
		d := newDisk(t, block)
		l := createTest(t, testOptions(d))
		for i := range 200 {
			l.commit(text(i, i*7%900), i%3 != 0)
			if i%10 == 0 {
				mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
			}
		}
		require.NoError(t, l.Close(false))
		tail := mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
		require.Zero(t, tail.Dropped)
		require.Greater(t, d.count("sync dir/app.ebb-wal-000005"), 0,
			"the log has gone through several segments")
	})
}

func TestEmptyPayloadIsACommit(t *testing.T) {
	l := createTest(t, testOptions(newDisk(t, 512)))
	l.commit("", true)
	l.commit("a", true)
	l.commit("", false)
	mustReplay(t, l.opts, l.start, 0, l.commits)
}

func TestCommitIsJoinedFromItsParts(t *testing.T) {
	l := createTest(t, testOptions(newDisk(t, 512)))
	l.commit("before", true)
	for _, part := range []string{"one ", "two ", text(3, 30_000)} {
		l.mustAppend([]byte(part), false)
	}
	l.commit("end", true)
	l.commits[1] = "one two " + text(3, 30_000) + "end"
	mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
}

func TestBigPayloadGoesOverManySegments(t *testing.T) {
	forKinds(t, func(t *testing.T, block int) {
		d := newDisk(t, block)
		l := createTest(t, testOptions(d))
		l.commit("small", true)
		l.commit(text(1, 100_000), true)
		l.commit(text(2, 50_000), false)
		l.commit("last", true)
		mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
		require.Greater(t, d.count("create"), 30)
	})
}

func TestQueueIsBounded(t *testing.T) {
	o := testOptions(newDisk(t, 512))
	o.SegmentSize = 1 << 20
	l := createTest(t, o)
	part := []byte(text(1, 100_000))
	for range 100 {
		l.mustAppend(part, false)
		l.appender.mu.Lock()
		require.LessOrEqual(t, l.appender.queuedBytes(), maxQueuedBytes+2*maxPart)
		l.appender.mu.Unlock()
	}
	l.Abort()
	l.commit("after", true)
	mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
}

func TestAbortDiscardsUnfinishedParts(t *testing.T) {
	t.Run("in_memory", func(t *testing.T) {
		l := createTest(t, testOptions(newDisk(t, 512)))
		l.commit("a", true)
		end := l.End()
		l.mustAppend([]byte("never"), false)
		l.Abort()
		require.Equal(t, end, l.End())
		l.commit("b", true)
		tail := mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
		require.Equal(t, l.End(), tail.End)
	})
	t.Run("behind_a_queued_commit", func(t *testing.T) {
		l := createTest(t, testOptions(newDisk(t, 512)))
		end := l.mustAppend([]byte("a"), true)
		l.mustAppend([]byte("never"), false)
		l.Abort()
		require.NoError(t, l.Wait(end, true))
		mustReplay(t, l.opts, l.start, l.Durable(), []string{"a"})
	})
	t.Run("in_the_file", func(t *testing.T) {
		l := createTest(t, testOptions(newDisk(t, 512)))
		end := l.mustAppend([]byte("never"), false)
		require.NoError(t, l.Wait(end, true))
		l.mustAppend([]byte("never either"), false)
		l.Abort()
		tail := mustReplay(t, l.opts, l.start, l.Durable(), nil)
		require.Equal(t, int64(recHeader+5), tail.Dropped)
		l.commit("b", true)
		mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
	})
	t.Run("in_the_file_before_a_commit_of_parts", func(t *testing.T) {
		l := createTest(t, testOptions(newDisk(t, 512)))
		end := l.mustAppend([]byte("never"), false)
		require.NoError(t, l.Wait(end, true))
		l.Abort()
		l.mustAppend([]byte("one, "), false)
		end = l.mustAppend([]byte("two"), true)
		require.NoError(t, l.Wait(end, true))
		mustReplay(t, l.opts, l.start, l.Durable(), []string{"one, two"})
	})
	t.Run("by_rotate", func(t *testing.T) {
		l := createTest(t, testOptions(newDisk(t, 512)))
		l.mustAppend([]byte("never"), false)
		next := l.mustRotate()
		l.commit("b", true)
		mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
		mustReplay(t, l.opts, next, l.Durable(), l.commits)
	})
}

func TestRotateBeginsTheNextSegment(t *testing.T) {
	l := createTest(t, testOptions(newDisk(t, 512)))
	l.commit("a", true)
	require.NoError(t, l.Prepare())
	next := l.mustRotate()
	require.Equal(t, l.opts.start(2), next)
	require.Equal(t, next, l.End())
	again := l.mustRotate()
	require.Equal(t, l.opts.start(3), again, "an empty segment is sealed too")
	require.NoError(t, l.Sync())
	require.Equal(t, again, l.Durable())
	mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
	mustReplay(t, l.opts, next, l.Durable(), nil)
	mustReplay(t, l.opts, again, l.Durable(), nil)
	l.commit("b", true)
	mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
	mustReplay(t, l.opts, again, l.Durable(), []string{"b"})
}

func TestWaitersShareWrites(t *testing.T) {
	forKinds(t, func(t *testing.T, block int) {
		d := newDisk(t, block)
		o := testOptions(d)
		o.SegmentSize = 64 << 10
		l := createTest(t, o)
		var group sync.WaitGroup
		var lock sync.Mutex
		for g := range 32 {
			group.Go(func() {
				for i := range 20 {
					payload := fmt.Sprintf("goroutine %d commit %d", g, i)
					lock.Lock()
					end, err := l.Append([]byte(payload), true)
					l.commits = append(l.commits, payload)
					lock.Unlock()
					if err == nil {
						err = l.Wait(end, (g+i)%4 != 0)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		require.NoError(t, l.Sync())
		mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
		l.syncer.mu.Lock()
		defer l.syncer.mu.Unlock()
		require.False(t, l.syncer.leading)
		require.Empty(t, l.syncer.waiters)
		require.Empty(t, l.appender.queue)
	})
}

// TestSyncMakesWrittenBytesDurable: a relaxed commit is in the file and nothing is queued, so all
// that Sync does is to sync. Without that the power cut takes the commit.
func TestSyncMakesWrittenBytesDurable(t *testing.T) {
	forKinds(t, func(t *testing.T, block int) {
		d := newDisk(t, block)
		l := createTest(t, testOptions(d))
		l.commit("relaxed", false)
		require.Less(t, l.Durable(), l.End())
		require.NoError(t, l.Sync())
		require.Equal(t, l.End(), l.Durable())
		after := l.opts
		after.FS = d.crash(func() bool { return false })
		mustReplay(t, after, l.start, 0, l.commits)
	})
}
