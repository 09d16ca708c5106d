package wal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
)

// TestRestartBeginsAnEmptyLog: where Finish has said, with no file more than before; what the old
// log has said is gone, also after a power cut.
func TestRestartBeginsAnEmptyLog(t *testing.T) {
	for _, prepared := range []bool{false, true} {
		forKinds(t, func(t *testing.T, block int) {
			d := newDisk(t, block)
			l := createTest(t, testOptions(d))
			l.commit("a", true)
			l.mustRotate()
			l.commit("b", false)
			_, err := l.Append([]byte("part"), false) // which is void
			require.NoError(t, err)
			if prepared {
				require.NoError(t, l.Prepare())
			}
			before, volume := l.Bytes(), l.Volume()
			_, next := l.Finish()
			require.NoError(t, l.RestartInPlace())
			require.Equal(t, next, l.End())
			require.Equal(t, next, l.Durable())
			require.Equal(t, next, l.Written())
			require.Less(t, l.Bytes(), before)
			require.Len(t, l.fileSizes(), 1)
			require.EqualValues(t, l.fileSizes()[0], l.Bytes())
			require.Greater(t, l.Volume(), volume)
			l.commits = nil
			for i := range 200 { // over several segments
				l.commit(text(i, 900), i%3 == 0)
			}
			l.commit("last", true)
			mustReplay(t, l.opts, next, l.Durable(), l.commits)
			after := l.opts
			after.FS = d.crash(func() bool { return false })
			_, _, err = replayAll(after, l.start, 0)
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			mustReplay(t, after, next, l.Durable(), l.commits)
		})
	}
}

// TestRestartWaitsForTheLeader: the leader that has notified the last group owns the segment until
// it resigns the lead.
func TestRestartWaitsForTheLeader(t *testing.T) {
	d := newDisk(t, 0)
	o := testOptions(d)
	told, goOn := make(chan bool), make(chan bool)
	o.OnGroup = func(int, int64, time.Duration) { told <- true; <-goOn }
	l := createTest(t, o)
	end := l.mustAppend([]byte("a"), true)
	waited, restarted := make(chan error, 1), make(chan error, 1)
	go func() { waited <- l.Wait(end, true) }()
	<-told
	require.Equal(t, end, l.Durable())
	go func() { restarted <- l.RestartInPlace() }()
	for range 50 {
		time.Sleep(time.Millisecond / 10)
		require.Empty(t, restarted)
	}
	close(goOn)
	require.NoError(t, <-waited)
	require.NoError(t, <-restarted)
	l.syncer.mu.Lock()
	defer l.syncer.mu.Unlock()
	require.False(t, l.syncer.leading)
	require.Equal(t, l.appender.live[0].start(), l.syncer.hintedLSN,
		"the hint of the group before went to the segment before")
}

// TestRestartThatFailsIsFinal: the disk may hold any part of the header.
func TestRestartThatFailsIsFinal(t *testing.T) {
	d := newDisk(t, 0)
	o := testOptions(d)
	o.SegmentSize = 64 << 10 // with room for another group: no segment is prepared
	l := createTest(t, o)
	l.commit("a", true)
	number := l.appender.live[0].number
	d.hook = func(op, _ string, n int) (int, error) {
		if op == "sync" {
			return 0, errBoom
		}
		return n, nil
	}
	require.ErrorIs(t, l.RestartInPlace(), ErrFailed)
	require.Equal(t, number, l.appender.live[0].number)
	_, err := l.Append([]byte("b"), true)
	require.ErrorIs(t, err, ErrFailed)
}

// TestRestartEndsTheLogBeforeItIsRemoved: the names that go may come back with a power cut. Nothing
// can be replayed from them then, whatever the log goes on in.
func TestRestartEndsTheLogBeforeItIsRemoved(t *testing.T) {
	for _, prepared := range []bool{false, true} {
		d := newDisk(t, 0)
		l := createTest(t, testOptions(d))
		l.commit("a", true)
		l.mustRotate()
		l.commit("b", true)
		if prepared {
			require.NoError(t, l.Prepare())
		}
		d.hook = func(op, _ string, n int) (int, error) {
			if op == "remove" {
				return 0, errBoom
			}
			return n, nil
		}
		require.ErrorIs(t, l.RestartInPlace(), ErrFailed)
		after := l.opts
		after.FS = d.crash(func() bool { return false })
		_, _, err := replayAll(after, l.start, 0)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
	}
}
