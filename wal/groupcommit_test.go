package wal

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// whileGathering runs fn once while a leader waits for followers.
func whileGathering(t *testing.T, fn func()) {
	gosched = func() { fn() }
	t.Cleanup(func() { gosched = runtime.Gosched })
}

// crowdedLog is a log whose last group had three commits, with one more appended.
func crowdedLog(t *testing.T) (l *testLog, d *disk, end LSN) {
	d = newDisk(t, 512)
	l = createTest(t, testOptions(d))
	for range 3 {
		var err error
		end, err = l.Append([]byte("before"), true)
		require.NoError(t, err)
	}
	require.NoError(t, l.Wait(end, true))
	end, err := l.Append([]byte("first"), true)
	require.NoError(t, err)
	return l, d, end
}

// TestLeaderWritesConcurrentCommits: one sync does for both.
func TestLeaderWritesConcurrentCommits(t *testing.T) {
	l, _, end := crowdedLog(t)
	groups, yields := l.Groups(), 0
	var second LSN
	whileGathering(t, func() {
		yields++
		var err error
		second, err = l.Append([]byte("second"), true)
		require.NoError(t, err)
	})
	require.NoError(t, l.Wait(end, true))
	require.Equal(t, 1, yields)
	require.Equal(t, second, l.Durable())
	require.Equal(t, groups+1, l.Groups())
}

// TestLogFailedDuringWaitForFollowersIsNotWritten: the leader lets go of the lock before it
// writes, and must look again.
func TestLogFailedDuringWaitForFollowersIsNotWritten(t *testing.T) {
	l, d, end := crowdedLog(t)
	boom := errors.New("boom")
	whileGathering(t, func() { l.Fail(boom) })
	d.hook = func(op, _ string, n int) (int, error) {
		t.Errorf("%s after the failure", op)
		return n, nil
	}
	err := l.Wait(end, true)
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, err, boom)
	require.Less(t, l.Written(), end)
	d.hook = nil
}

// TestSingleCommitterDoesNotWaitForFollowers: a lone writer's commits go at once.
func TestSingleCommitterDoesNotWaitForFollowers(t *testing.T) {
	l := createTest(t, testOptions(newDisk(t, 512)))
	whileGathering(t, func() { t.Error("it waits") })
	for range 3 {
		end, err := l.Append([]byte("alone"), true)
		require.NoError(t, err)
		require.NoError(t, l.Wait(end, true))
	}
}
