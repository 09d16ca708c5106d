package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/vfs"
)

// kinds are the ways in which data reaches a disk.
var kinds = []struct {
	name  string
	block int
}{
	{"direct_512", 512},
	{"direct_4096", 4096},
	{"cached", 0},
}

func forKinds(t *testing.T, fn func(t *testing.T, block int)) {
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) { fn(t, kind.block) })
	}
}

func TestReplayGivesWhatWasAppended(t *testing.T) {
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
		require.Greater(t, d.count("sync dir/app.ebb-wal-000005"), 0, "the log has gone through several segments")
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
		_, err := l.Append([]byte(part), false)
		require.NoError(t, err)
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
		_, err := l.Append(part, false)
		require.NoError(t, err)
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
		_, err := l.Append([]byte("never"), false)
		require.NoError(t, err)
		l.Abort()
		require.Equal(t, end, l.End())
		l.commit("b", true)
		tail := mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
		require.Equal(t, l.End(), tail.End)
	})
	t.Run("behind_a_queued_commit", func(t *testing.T) {
		l := createTest(t, testOptions(newDisk(t, 512)))
		end, err := l.Append([]byte("a"), true)
		require.NoError(t, err)
		_, err = l.Append([]byte("never"), false)
		require.NoError(t, err)
		l.Abort()
		require.NoError(t, l.Wait(end, true))
		mustReplay(t, l.opts, l.start, l.Durable(), []string{"a"})
	})
	t.Run("in_the_file", func(t *testing.T) {
		l := createTest(t, testOptions(newDisk(t, 512)))
		end, err := l.Append([]byte("never"), false)
		require.NoError(t, err)
		require.NoError(t, l.Wait(end, true))
		_, err = l.Append([]byte("never either"), false)
		require.NoError(t, err)
		l.Abort()
		tail := mustReplay(t, l.opts, l.start, l.Durable(), nil)
		require.Equal(t, int64(recHeader+5), tail.Dropped)
		l.commit("b", true)
		mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
	})
	t.Run("in_the_file_before_a_commit_of_parts", func(t *testing.T) {
		l := createTest(t, testOptions(newDisk(t, 512)))
		end, err := l.Append([]byte("never"), false)
		require.NoError(t, err)
		require.NoError(t, l.Wait(end, true))
		l.Abort()
		_, err = l.Append([]byte("one, "), false)
		require.NoError(t, err)
		end, err = l.Append([]byte("two"), true)
		require.NoError(t, err)
		require.NoError(t, l.Wait(end, true))
		mustReplay(t, l.opts, l.start, l.Durable(), []string{"one, two"})
	})
	t.Run("by_rotate", func(t *testing.T) {
		l := createTest(t, testOptions(newDisk(t, 512)))
		_, err := l.Append([]byte("never"), false)
		require.NoError(t, err)
		next, err := l.Rotate()
		require.NoError(t, err)
		l.commit("b", true)
		mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
		mustReplay(t, l.opts, next, l.Durable(), l.commits)
	})
}

func TestRotateBeginsTheNextSegment(t *testing.T) {
	l := createTest(t, testOptions(newDisk(t, 512)))
	l.commit("a", true)
	require.NoError(t, l.Prepare())
	next, err := l.Rotate()
	require.NoError(t, err)
	require.Equal(t, l.opts.start(2), next)
	require.Equal(t, next, l.End())
	again, err := l.Rotate()
	require.NoError(t, err)
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
					next, err := l.Rotate()
					require.NoError(t, err)
					starts = append(starts, next)
					commits = commits[:0]
				}
				end, err := l.Append([]byte(payload), true)
				require.NoError(t, err)
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
			next, err := l.Rotate()
			require.NoError(t, err)
			l.commit("b", true)
			next2, err := l.Rotate()
			require.NoError(t, err)
			l.commit("c", true)
			if prepared {
				require.NoError(t, l.Prepare())
			}
			require.NoError(t, l.Release(next2))
			_, _, err = replayAll(l.opts, l.start, 0)
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
			next, err := l.Rotate()
			require.NoError(t, err)
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
		_, err := l.Rotate()
		require.NoError(t, err)
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

// TestReplayReadsAllSegmentsIntoOneMemory: fresh memory for each costs more than reading it.
func TestReplayReadsAllSegmentsIntoOneMemory(t *testing.T) {
	o := testOptions(newDisk(t, 512))
	o.SegmentSize, o.FirstSegmentBytes = 1<<20, 1<<20 // Each end of a segment cuts a commit, which is copied.
	l := createTest(t, o)
	for i := range 80 {
		l.commit(text(i, 100_000), false)
	}
	found, err := Scan(l.opts)
	require.NoError(t, err)
	require.Equal(t, int64(len(found.segments)-2)<<20, found.MaxBytes(l.start+2<<20))
	require.Greater(t, len(found.segments), 6)
	defer bound.Hold(t, 4<<20)() // one segment, and the commits that are cut in two by the end of one
	tail, err := found.Replay(l.start, l.Durable(), func(Part) error { return nil })
	require.NoError(t, err)
	require.Equal(t, 80, tail.Commits)
}

// TestNumbersOfSegmentsEnd: no segment is made that no Scan would take for one.
func TestNumbersOfSegmentsEnd(t *testing.T) {
	d := newDisk(t, 512)
	o := testOptions(d)
	l, err := Create(o, MaxSegment, 2)
	require.NoError(t, err)
	writeFile(t, d, fmt.Sprintf("dir/app.ebb-wal-%d", uint64(maxForeign)+1), []byte("not ours"))
	found, err := Scan(l.opts)
	require.NoError(t, err)
	require.Len(t, found.Segments(), 1)
	require.Empty(t, found.Foreign())
	require.Equal(t, uint64(MaxSegment+1), found.NextNumber())
	require.ErrorIs(t, l.Prepare(), errSegmentNumbers)
	require.Error(t, l.Close(false))
	_, err = Create(o, found.NextNumber(), 2)
	require.ErrorIs(t, err, errSegmentNumbers)
	again, err := Scan(l.opts)
	require.NoError(t, err)
	require.Equal(t, found.Segments(), again.Segments())
}

func TestRemoveLeavesTheNewLog(t *testing.T) {
	d := newDisk(t, 512)
	l := createTest(t, testOptions(d))
	l.commit("old", true)
	require.NoError(t, l.Prepare())
	require.NoError(t, l.Close(false))
	writeFile(t, d, "dir/app.ebb-wal-000009", []byte("no segment"))
	writeFile(t, d, "dir/app.ebb-wal-9", []byte("not our name"))
	writeFile(t, d, "dir/other.ebb-wal-000001", []byte("not our name"))
	found, err := Scan(l.opts)
	require.NoError(t, err)
	require.Equal(t, []string{"dir/app.ebb-wal-000009"}, found.Foreign())
	require.Equal(t, uint64(10), found.NextNumber())
	require.Len(t, found.Segments(), 2)
	require.Equal(t, "dir/app.ebb-wal-000001", found.Segments()[0].File)
	fresh, err := Create(l.opts, found.NextNumber(), 2)
	require.NoError(t, err)
	require.NoError(t, found.Chain(l.start), "the fresh segment is like a spare")
	require.NoError(t, found.Remove(found.Obsolete(fresh.End())))
	bases, err := d.List("dir")
	require.NoError(t, err)
	require.Equal(t, []string{"app.ebb-wal-000010", "app.ebb-wal-9", "other.ebb-wal-000001"}, bases)
	require.NoError(t, fresh.Close(false))
	require.NoError(t, Remove(l.opts))
	bases, err = d.List("dir")
	require.NoError(t, err)
	require.Equal(t, []string{"app.ebb-wal-9", "other.ebb-wal-000001"}, bases)
}

func TestChainNamesWhatIsMissing(t *testing.T) {
	build := func(t *testing.T) (*disk, *testLog, LSN) {
		d := newDisk(t, 512)
		l := createTest(t, testOptions(d))
		for i := range 3 {
			l.commit(text(i, 50), true)
			_, err := l.Rotate()
			require.NoError(t, err)
		}
		end := l.commit("last", true)
		require.NoError(t, l.Prepare())
		require.NoError(t, l.Close(false))
		mustReplay(t, l.opts, l.start, end, l.commits)
		return d, l, end
	}
	for number := uint64(1); number <= 4; number++ {
		t.Run(fmt.Sprintf("segment_%d_is_gone", number), func(t *testing.T) {
			d, l, _ := build(t)
			require.NoError(t, d.FS.Remove(l.opts.name(number)))
			_, _, err := replayAll(l.opts, l.start, 0)
			require.ErrorIs(t, err, badfile.ErrCorrupt)
		})
		t.Run(fmt.Sprintf("segment_%d_is_of_another_store", number), func(t *testing.T) {
			d, l, _ := build(t)
			other := testOptions(newDisk(t, 512))
			other.StoreID[0] = 1
			o, err := Create(other, number, 1)
			require.NoError(t, err)
			require.NoError(t, o.Close(false))
			writeFile(t, d.FS, l.opts.name(number), readFile(t, other.FS, l.opts.name(number)))
			_, _, err = replayAll(l.opts, l.start, 0)
			require.ErrorIs(t, err, badfile.ErrCorrupt)
		})
	}
	t.Run("the_spare_is_gone", func(t *testing.T) {
		d, l, end := build(t)
		require.NoError(t, d.FS.Remove(l.opts.name(5)))
		mustReplay(t, l.opts, l.start, end, l.commits)
	})
	t.Run("a_log_of_its_own_comes_after", func(t *testing.T) {
		_, l, end := build(t)
		found, err := Scan(l.opts)
		require.NoError(t, err)
		fresh, err := Create(l.opts, found.NextNumber(), 2)
		require.NoError(t, err)
		mustReplay(t, l.opts, l.start, end, l.commits)
		lsn, err := fresh.Append([]byte("new"), true)
		require.NoError(t, err)
		require.NoError(t, fresh.Wait(lsn, true))
		_, _, err = replayAll(l.opts, l.start, end)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
		require.NoError(t, fresh.Close(false))
	})
}

// TestPowerCutLeavesAPrefix stops a disk after a random number of commits, mixed of durable and
// relaxed ones, keeps random sectors of what was not synced, and replays: all durable commits are
// there, and the rest is a prefix.
func TestPowerCutLeavesAPrefix(t *testing.T) {
	forKinds(t, func(t *testing.T, block int) {
		for seed := range uint64(60) {
			rng := rand.New(rand.NewPCG(seed, 1))
			d := newDisk(t, block)
			o := testOptions(d)
			o.SegmentSize, o.FirstSegmentBytes = o.SegmentSize<<(2*(seed%2)), 1 // Then the first ones are short.
			l := createTest(t, o)
			start, durable := l.start, LSN(0)
			acked := 0
			for range 5 + rng.IntN(40) {
				sync := rng.IntN(2) == 0
				l.commit(text(len(l.commits), 3+rng.IntN(700)), sync)
				if sync {
					acked = len(l.commits)
				}
				if rng.IntN(12) == 0 {
					next, err := l.Rotate()
					require.NoError(t, err)
					require.NoError(t, l.Sync())
					require.NoError(t, l.Release(next))
					start, acked, l.commits, durable = next, 0, nil, next
				}
			}
			rate := rng.IntN(4)
			after := l.opts
			after.FS = d.crash(func() bool { return rng.IntN(3) < rate })
			got, _, err := replayAll(after, start, durable)
			require.NoError(t, err, "seed %d", seed)
			require.GreaterOrEqual(t, len(got), acked, "seed %d", seed)
			require.True(t, slices.Equal(got, l.commits[:len(got)]), "seed %d", seed)
		}
	})
}

// TestFailureReachesEveryMember fails each operation on the disk in turn while goroutines commit.
// Afterwards every commit that returned nil is in the log, every one that returned ErrFailed is
// not, and nothing is written any more.
func TestFailureReachesEveryMember(t *testing.T) {
	boom := errors.New("boom")
	for _, sticky := range []bool{false, true} {
		for n := 0; ; n++ {
			d := newDisk(t, 512*(n%2))
			o := testOptions(d)
			l, err := Create(o, 1, 1)
			require.NoError(t, err)
			start := l.End()
			left, failed := n, false
			d.hook = func(op, _ string, size int) (int, error) {
				left--
				if left == -1 || left < -1 && sticky {
					failed = true
					return size / 1024 * 512, boom
				}
				return size, nil
			}
			var lock sync.Mutex
			var group sync.WaitGroup
			fate := map[string]error{}
			for g := range 4 {
				group.Go(func() {
					for i := range 6 {
						payload := text(g*10+i, 300)
						lock.Lock()
						end, err := l.Append([]byte(payload), true)
						lock.Unlock()
						if err == nil {
							err = l.Wait(end, (g+i)%3 != 0)
						}
						lock.Lock()
						fate[payload] = err
						lock.Unlock()
					}
				})
			}
			group.Wait()
			last := l.Sync()
			l.pool.preparing.Wait() // The spare may be what failed, which is to stick when its goroutine ends.
			d.mu.Lock()
			reached := left < 0
			d.hook = nil
			before := len(d.ops)
			d.mu.Unlock()
			if failed {
				_, err := l.Append([]byte("x"), true)
				if err == nil {
					t.Fatalf("op %d: append after a failure, sync gave %v", n, last)
				}
				require.ErrorIs(t, err, ErrFailed)
				require.ErrorIs(t, err, boom)
				require.Error(t, l.Close(false))
				require.Len(t, d.ops, before, "nothing is written after a failure")
			} else {
				require.NoError(t, last)
				require.NoError(t, l.Close(false))
			}
			got, _, err := replayAll(o, start, 0)
			require.NoError(t, err)
			for payload, err := range fate {
				if !failed {
					require.NoError(t, err)
				}
				switch {
				case err == nil:
					require.Contains(t, got, payload)
				case errors.Is(err, ErrUnknown):
					require.ErrorIs(t, err, boom)
				default:
					require.ErrorIs(t, err, ErrFailed)
					require.ErrorIs(t, err, boom)
					require.NotContains(t, got, payload)
				}
			}
			if !reached {
				break
			}
		}
	}
}

func TestNoSpaceForASegmentFailsOnlyThatAppend(t *testing.T) {
	d := newDisk(t, 512)
	l := createTest(t, testOptions(d))
	l.commit("a", true)
	d.hook = func(op, name string, n int) (int, error) {
		if name == l.opts.name(2) && op != "remove" {
			return n / 2, vfs.ErrNoSpace
		}
		return n, nil
	}
	_, err := l.Append([]byte(text(1, 20_000)), true)
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	require.NotErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, l.Prepare(), vfs.ErrNoSpace)
	_, err = l.Rotate()
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	l.commit("b", true)
	require.Equal(t, int64(MinSegmentSize), l.Bytes())
	d.hook = nil
	l.commit(text(2, 20_000), true)
	mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
}

// TestAppendRetriesAfterFreeSpace: once for each segment, and not where SetBound says
// no.
func TestAppendRetriesAfterFreeSpace(t *testing.T) {
	d, asked, room := newDisk(t, 512), 0, 1 // how often it was asked, and for how many segments there is room
	l := createTest(t, testOptions(d))
	d.hook = func(op, name string, n int) (int, error) {
		if name > l.opts.name(uint64(room)) && op != "remove" {
			return n / 2, vfs.ErrNoSpace
		}
		return n, nil
	}
	l.Log.opts.FreeSpace = func() bool { asked++; room++; return true }
	l.commit(text(1, 20_000), true)
	require.Positive(t, asked)
	require.Equal(t, 1+asked, room)
	asked = 0
	l.Log.opts.FreeSpace = func() bool { asked++; return false }
	_, err := l.Append([]byte(text(2, 20_000)), true)
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	require.Equal(t, 1, asked)
	l.SetBound(l.Bytes())
	_, err = l.Append([]byte(text(2, 20_000)), true)
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	require.Equal(t, 1, asked, "it is not the disk that has no room")
	l.SetBound(0)
	d.hook = nil
	l.commit(text(3, 20_000), true)
	mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
}

// TestDirectWritesMayBeRefusedLate: a system that opens a file for them may refuse each. The log
// finds out before the segment has records, and writes it through the cache, in whole pages.
func TestDirectWritesMayBeRefusedLate(t *testing.T) {
	for _, block := range []int{512, 4096} {
		d := newDisk(t, block)
		d.hook = func(op, _ string, n int) (int, error) {
			if op == "direct" {
				return 0, vfs.ErrNoDirect
			}
			return n, nil
		}
		l := createTest(t, testOptions(d))
		for i := range 20 {
			l.commit(text(i, 100), true)
		}
		mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
		require.Equal(t, int(l.Bytes()/l.opts.SegmentSize), d.count("direct"), "once for each segment")
	}
}

func TestFailureOfTheFirstDirectWriteLeavesNoSegment(t *testing.T) {
	d, boom := newDisk(t, 512), errors.New("boom")
	d.hook = func(op, _ string, n int) (int, error) {
		if op == "direct" {
			return 0, boom
		}
		return n, nil
	}
	o := testOptions(d)
	_, err := Create(o, 1, 1)
	require.ErrorIs(t, err, boom)
	names, err := d.List("dir")
	require.NoError(t, err)
	require.Empty(t, names)
}

func TestClosedLogRefuses(t *testing.T) {
	l := createTest(t, testOptions(newDisk(t, 512)))
	l.commit("a", false)
	require.NoError(t, l.Close(false))
	require.NoError(t, l.Close(false))
	_, err := l.Append(nil, true)
	require.ErrorIs(t, err, ErrClosed)
	_, err = l.Rotate()
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, l.Prepare(), ErrClosed)
	mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
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

// TestBoundHoldsForAppendOnly fills a bounded log: a commit is refused, and what a checkpoint needs
// to make room is not.
func TestBoundHoldsForAppendOnly(t *testing.T) {
	l := createTest(t, testOptions(vfs.NewMemory()))
	l.SetBound(2 * MinSegmentSize)
	var err error
	for i := 0; err == nil && i < 1000; i++ {
		_, err = l.Append([]byte(text(i, MinSegmentSize/8)), true)
	}
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	require.LessOrEqual(t, l.Bytes(), int64(2*MinSegmentSize))
	require.NoError(t, l.Prepare())
	require.EqualValues(t, 3*MinSegmentSize, l.Bytes())
	cut, err := l.Rotate()
	require.NoError(t, err)
	require.NoError(t, l.Release(cut))
	_, err = l.Append([]byte("room again"), true)
	require.NoError(t, err)
	require.NoError(t, l.Sync())
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
