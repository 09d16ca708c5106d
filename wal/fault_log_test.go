package wal

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// TestFailedTruncateLeavesCommitUnknown tells the story of a disk that writes a group
// but for its last byte, which is a zero behind the record, and refuses the truncation of the
// group, while a sync succeeds. A log that checked only the sync reported the group's commits as
// lost for certain, and a restart brought them back.
func TestFailedTruncateLeavesCommitUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		failing string // of what takes the group back
		fate    error
		there   bool // the commit, after a restart
	}{
		"taken_back":           {fate: ErrFailed},
		"truncation_fails":     {failing: "truncate", fate: ErrUnknown, there: true},
		"sync_of_that_fails":   {failing: "sync", fate: ErrUnknown},
		"nothing_of_it_can_be": {failing: "truncate sync", fate: ErrUnknown, there: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, block := range []int{0, 512} { // through the cache, and directly
				d := newDisk(t, block)
				o := testOptions(d)
				o.SegmentSize = 4 * MinSegmentSize // no other segment is made meanwhile
				l := createTest(t, o)
				l.commit("before", true)
				boom := errors.New("boom")
				d.hook = func(op, _ string, n int) (int, error) {
					switch op {
					case "write", "direct":
						return n - 1, boom // the record is in the file, a zero behind it is not
					case "truncate", "sync":
						if c.failing == op || c.failing == "truncate sync" {
							return 0, boom
						}
					}
					return n, nil
				}
				end := l.mustAppend([]byte("in question"), true)
				err := l.Wait(end, true)
				require.ErrorIs(t, err, boom)
				require.ErrorIs(t, err, c.fate)
				if c.fate == ErrFailed {
					require.NotErrorIs(t, err, ErrUnknown)
				}
				_, err = l.Append([]byte("after"), true)
				require.ErrorIs(t, err, ErrFailed)
				d.hook = nil
				got, _, err := replayAll(l.opts, l.start, 0)
				require.NoError(t, err)
				require.Contains(t, got, "before")
				require.NotContains(t, got, "after")
				if c.there {
					require.Contains(t, got, "in question")
				} else {
					require.NotContains(t, got, "in question")
				}
			}
		})
	}
}

// TestWaitAfterTheFailure: of two commits that do not wait for the disk and are written
// together, the later one may hear that it is there, and the earlier one, if the log fails before
// it asks, that its fate is unknown. It is there as well. What a commit hears that waits for the
// disk is what is durable, whenever it asks.
func TestWaitAfterTheFailure(t *testing.T) {
	d := newDisk(t, 0)
	o := testOptions(d)
	l := createTest(t, o)
	l.commit("durable", true)
	durable := l.End()
	earlier := l.mustAppend([]byte("earlier"), true)
	later := l.mustAppend([]byte("later"), true)
	require.NoError(t, l.Wait(later, false))
	require.LessOrEqual(t, earlier, l.Written())
	d.hook = func(op, _ string, n int) (int, error) { return 0, errBoom }
	end := l.mustAppend([]byte("fails"), true)
	require.ErrorIs(t, l.Wait(end, false), errBoom)
	require.ErrorIs(t, l.Wait(earlier, false), ErrUnknown)
	require.NoError(t, l.Wait(durable, true))
	d.hook = nil
	got, _, err := replayAll(l.opts, l.start, 0)
	require.NoError(t, err)
	require.Subset(t, got, []string{"durable", "earlier", "later"})
}

// TestFailureWhileSegmentsAreRetired fails the n-th change that Release makes, with a segment
// prepared and without. The error is final, and what lies behind the cut is all there.
func TestFailureWhileSegmentsAreRetired(t *testing.T) {
	for _, prepared := range []bool{false, true} {
		t.Run(fmt.Sprintf("prepared_%v", prepared), func(t *testing.T) {
			n := 0
			for ; ; n++ {
				d := newDisk(t, 0)
				o := testOptions(d)
				o.KeepFree = func() int { return 1 }
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

// TestFailureReachesEveryMember fails each operation on the disk in turn while goroutines commit.
// Afterwards every commit that returned nil is in the log, every one that returned ErrFailed is
// not, and nothing is written any more.
func TestFailureReachesEveryMember(t *testing.T) {
	boom := errors.New("boom")
	for _, sticky := range []bool{false, true} {
		for n := 0; ; n++ {
			d := newDisk(t, 512*(n%2))
			l, err := Create(testOptions(d), 1, 1)
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
			// The spare may be what failed, which is to stick when its goroutine ends.
			l.pool.preparing.Wait()
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
			got, _, err := replayAll(l.opts, start, 0)
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
// finds out before its first segment has records, and writes all through the cache, in whole pages.
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
		require.Greater(t, l.Bytes(), l.opts.SegmentSize)
		require.Equal(t, 1, d.count("direct"), "by the first segment")
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
	end := l.mustAppend([]byte("third"), true)
	err := l.Wait(end, false)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, err, errBoom)
	require.Equal(t, 1, d.count("truncate"))
	mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
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
		l.mustRotate()
		l.commit("in the next one", true)
		mustReplay(t, l.opts, l.start, l.Durable(), l.commits)
		require.NoError(t, l.Close(true))
		names, err := d.List("dir")
		require.NoError(t, err)
		require.Empty(t, names)
	}
}
