package wal

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// whileGathering has fn done once by whoever runs while a leader gathers.
func whileGathering(t *testing.T, fn func()) {
	yield = func() { fn() }
	t.Cleanup(func() { yield = runtime.Gosched })
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

// TestLeaderTakesThoseAlongWhoCommitMeanwhile: one sync does for both.
func TestLeaderTakesThoseAlongWhoCommitMeanwhile(t *testing.T) {
	l, _, end := crowdedLog(t)
	groups, yields := l.Groups(), 0
	var third LSN
	whileGathering(t, func() {
		yields++
		var err error
		third, err = l.Append([]byte("another"), true)
		require.NoError(t, err)
	})
	require.NoError(t, l.Wait(end, true))
	require.Equal(t, 2, yields, "until there are as many as before")
	require.Equal(t, third, l.Durable())
	require.Equal(t, groups+1, l.Groups())
}

// TestLeaderDoesNotWaitForEver for those who do not come.
func TestLeaderDoesNotWaitForEver(t *testing.T) {
	l, _, end := crowdedLog(t)
	yields := 0
	whileGathering(t, func() { yields++ })
	require.NoError(t, l.Wait(end, true))
	require.Equal(t, maxYields, yields)
	end, err := l.Append([]byte("alone"), true)
	require.NoError(t, err)
	require.NoError(t, l.Wait(end, true))
	require.Equal(t, maxYields, yields, "there was one in the last group, and there is one now")
}

// TestThoseWhoCameDuringASyncAreCompany: the next leader expects them and those of the group before, who are told only then.
func TestThoseWhoCameDuringASyncAreCompany(t *testing.T) {
	d := newDisk(t, 512)
	l := createTest(t, testOptions(d))
	appended := func(what string) LSN {
		end, err := l.Append([]byte(what), true)
		require.NoError(t, err)
		return end
	}
	first := appended("first")
	var second LSN
	d.hook = func(_, _ string, n int) (int, error) {
		if second == 0 {
			second = appended("second")
		}
		return n, nil
	}
	require.NoError(t, l.Wait(first, true))
	d.hook = nil
	require.Greater(t, second, l.Durable())
	var again LSN
	groups := l.Groups()
	whileGathering(t, func() { again = appended("first again") })
	require.NoError(t, l.Wait(second, true))
	require.Equal(t, again, l.Durable())
	require.Equal(t, groups+1, l.Groups())
}

// TestLogThatFailsWhileALeaderGathersIsWrittenNoMore: the leader lets go of the lock before it writes, and must look again.
func TestLogThatFailsWhileALeaderGathersIsWrittenNoMore(t *testing.T) {
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

// TestNobodyWaitsForCompanyWhoWasAlone: a lone writer's commits go at once.
func TestNobodyWaitsForCompanyWhoWasAlone(t *testing.T) {
	l := createTest(t, testOptions(newDisk(t, 512)))
	whileGathering(t, func() { t.Error("it waits") })
	for range 3 {
		end, err := l.Append([]byte("alone"), true)
		require.NoError(t, err)
		require.NoError(t, l.Wait(end, true))
	}
}
