package wal

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// launch appends a commit and sends it.
func (l *testLog) launch(payload string) (end LSN, sent *PendingWrite) {
	l.t.Helper()
	end, err := l.Append([]byte(payload), true)
	require.NoError(l.t, err)
	sent = l.SubmitWrite(end)
	require.NotNil(l.t, sent)
	return end, sent
}

// TestSubmitWriteDoesNotWaitForTheDisk: the log reports neither the submitted commit nor a later one
// durable before CompleteWrite, and writes no other group.
func TestSubmitWriteDoesNotWaitForTheDisk(t *testing.T) {
	l, _, tw := towered(t, nil)
	before := l.Durable()
	end, sent := l.launch("submitted")
	one := tw.next()
	beside := l.fly("beside")
	waiting := make(chan error, 1)
	go func() { waiting <- l.Wait(end, true) }()
	l.parked(2)
	tw.land(one)
	unanswered(t, beside, waiting) // the disk is done, CompleteWrite was not called
	tw.noWrite()
	require.Equal(t, before, l.Durable())
	l.CompleteWrite(sent)
	require.NoError(t, errors.Join(<-waiting, l.Wait(end, true)))
	tw.land(tw.next())
	require.NoError(t, <-beside)
	require.Equal(t, l.End(), l.Durable())
	mustReplay(t, l.opts, l.start, l.Durable(), []string{"before", "submitted", "beside"})
}

// TestSubmitWriteIsRefused where it would have to wait, or could not be alone: Wait does what it would
// have done.
func TestSubmitWriteIsRefused(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		block   int
		prepare func(t *testing.T, l *testLog)
		fails   bool
	}{
		"through_the_cache": {0, func(*testing.T, *testLog) {}, false},
		"a_reference":       {512, func(_ *testing.T, l *testLog) { l.AddExternalRef(true) }, false},
		"behind_no_sync": {512, func(_ *testing.T, l *testLog) {
			l.commit("relaxed", false)
			l.commit("relaxed too", false)
		}, false},
		"the_log_has_failed": {512, func(_ *testing.T, l *testLog) {}, true},
		"a_segment_has_ended": {512, func(t *testing.T, l *testLog) {
			l.mustRotate()
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(newDisk(t, c.block))
			o.SegmentSize = 4 * MinSegmentSize
			l := createTest(t, o)
			l.commit("before", true)
			c.prepare(t, l)
			end := l.mustAppend([]byte("after"), true)
			if c.fails {
				l.Fail(boom)
			}
			require.Nil(t, l.SubmitWrite(end))
			err := l.Wait(end, true)
			if c.fails {
				require.ErrorIs(t, err, boom)
				return
			}
			require.NoError(t, err)
			mustReplay(t, l.opts, l.start, l.Durable(), append(l.commits, "after"))
		})
	}
	t.Run("while_others_lead_or_append", func(t *testing.T) {
		l, _, tw := towered(t, nil)
		require.Nil(t, l.SubmitWrite(l.End()), "nothing is queued")
		end := l.mustAppend([]byte("one"), true)
		require.Nil(t, l.SubmitWrite(end-1), "not the end of the log")
		l.mustAppend([]byte("part"), false)
		require.Nil(t, l.SubmitWrite(l.End()), "a commit without an end")
		l.Abort()
		first := make(chan error, 1)
		go func() { first <- l.Wait(end, true) }()
		one := tw.next()
		end = l.mustAppend([]byte("two"), true)
		require.Nil(t, l.SubmitWrite(end), "another goroutine writes")
		tw.land(one)
		require.NoError(t, <-first)
		require.Eventually(
			t,
			func() bool { l.syncer.mu.Lock(); defer l.syncer.mu.Unlock(); return !l.syncer.leading },
			time.Minute,
			time.Millisecond,
		)
		sent := l.SubmitWrite(end)
		require.NotNil(t, sent, "nothing stands in the way any more")
		tw.land(tw.next())
		l.CompleteWrite(sent)
	})
}

// TestSubmittedGroupFails is told of as one that was waited for is, also if it could not be
// taken back.
func TestSubmittedGroupFails(t *testing.T) {
	for name, c := range map[string]struct {
		failing string
		fate    error
	}{
		"taken_back": {fate: ErrFailed},
		"not":        {failing: "truncate", fate: ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t, 512)
			o := testOptions(d)
			o.SegmentSize = 4 * MinSegmentSize
			l := createTest(t, o)
			l.commit("before", true)
			boom := errors.New("boom")
			d.hook = func(op, _ string, n int) (int, error) {
				if op == "direct" || op == c.failing {
					return n / 2, boom
				}
				return n, nil
			}
			end, sent := l.launch("launched")
			l.CompleteWrite(sent)
			err := l.Wait(end, true)
			require.ErrorIs(t, err, boom)
			require.ErrorIs(t, err, c.fate)
			_, err = l.Compensate()
			require.ErrorIs(t, err, ErrFailed)
		})
	}
}

// TestShortSubmittedWriteIsCompleted, as one that was waited for.
func TestShortSubmittedWriteIsCompleted(t *testing.T) {
	d := newDisk(t, 512)
	o := testOptions(d)
	o.SegmentSize = 4 * MinSegmentSize
	l := createTest(t, o)
	l.commit("before", true)
	d.short = 512
	end, sent := l.launch(text(1, 2000))
	l.CompleteWrite(sent)
	require.NoError(t, l.Wait(end, true))
	mustReplay(t, l.opts, l.start, l.Durable(), []string{"before", text(1, 2000)})
}
