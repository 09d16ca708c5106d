package wal

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
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
				end, err := l.Append([]byte("in question"), true)
				require.NoError(t, err)
				err = l.Wait(end, true)
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

// TestHasCommitSpaceCountsTheCompensation: what Revocable says yes to is appended, written and
// voided without a new segment, wherever the log stands.
func TestHasCommitSpaceCountsTheCompensation(t *testing.T) {
	racetest.OneGoroutine(t)
	refused := 0
	for filled := 0; filled < 40_000; filled += 509 {
		for _, block := range []int{512, 4096} {
			for _, size := range []int{100, 5000, 20_000} {
				d := newDisk(t, block)
				o := testOptions(d)
				o.SegmentSize = 64 << 10
				l := createTest(t, o)
				l.commit(text(1, filled), true)
				if !l.HasCommitSpace(size) {
					refused++
					continue
				}
				ready := l.appender.spare != nil
				d.hook = func(op, _ string, n int) (int, error) {
					if op == "create" || op == "grow" || op == "rename" {
						return 0, vfs.ErrNoSpace
					}
					return n, nil
				}
				l.commit(text(2, size), true)
				end, err := l.Compensate()
				require.NoError(t, err, "%d filled, spare %v", filled, ready)
				require.NoError(t, l.Wait(end, true))
			}
		}
	}
	require.NotZero(t, refused)
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
	earlier, err := l.Append([]byte("earlier"), true)
	require.NoError(t, err)
	later, err := l.Append([]byte("later"), true)
	require.NoError(t, err)
	require.NoError(t, l.Wait(later, false))
	require.LessOrEqual(t, earlier, l.Written())
	d.hook = func(op, _ string, n int) (int, error) { return 0, errBoom }
	end, err := l.Append([]byte("fails"), true)
	require.NoError(t, err)
	require.ErrorIs(t, l.Wait(end, false), errBoom)
	require.ErrorIs(t, l.Wait(earlier, false), ErrUnknown)
	require.NoError(t, l.Wait(durable, true))
	d.hook = nil
	got, _, err := replayAll(l.opts, l.start, 0)
	require.NoError(t, err)
	require.Subset(t, got, []string{"durable", "earlier", "later"})
}
