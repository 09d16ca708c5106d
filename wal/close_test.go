package wal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWaitOnAClosedLog knows what was durable, and nothing else: the files are gone.
func TestWaitOnAClosedLog(t *testing.T) {
	l := createTest(t, testOptions(newDisk(t, 0)))
	durable := l.commit("durable", true)
	written := l.commit("written", false)
	require.NoError(t, l.Close(true))
	require.NoError(t, l.Wait(durable, true))
	require.ErrorIs(t, l.Wait(written, true), ErrClosed)
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

// TestFinish tells where a log ends and the next one begins, and makes nothing for it.
func TestFinish(t *testing.T) {
	for _, spare := range []bool{true, false} {
		d := newDisk(t, 512)
		l := createTest(t, testOptions(d))
		l.commit("first", true)
		end := l.Durable()
		if spare {
			require.NoError(t, l.Prepare())
		}
		l.mustAppend([]byte("a part without an end"), false)
		before := len(d.ops)
		got, next := l.Finish()
		require.Equal(t, end, got)
		require.Equal(t, First(l.opts.SegmentSize, 2), next)
		require.NoError(t, l.Sync())
		require.Equal(t, end, l.Durable())
		require.Len(t, d.ops, before)
		mustReplay(t, l.opts, l.start, end, l.commits)
		require.NoError(t, l.Close(true))
	}
}
