package wal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/golden"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
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
		"through_the_cache":   {0, func(*testing.T, *testLog) {}, false},
		"a_reference":         {512, func(_ *testing.T, l *testLog) { l.AddExternalRef(true) }, false},
		"behind_no_sync":      {512, func(_ *testing.T, l *testLog) { l.commit("relaxed", false); l.commit("relaxed too", false) }, false},
		"the_log_has_failed":  {512, func(_ *testing.T, l *testLog) {}, true},
		"a_segment_has_ended": {512, func(t *testing.T, l *testLog) { _, err := l.Rotate(); require.NoError(t, err) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(newDisk(t, c.block))
			o.SegmentSize = 4 * MinSegmentSize
			l := createTest(t, o)
			l.commit("before", true)
			c.prepare(t, l)
			end, err := l.Append([]byte("after"), true)
			require.NoError(t, err)
			if c.fails {
				l.Fail(boom)
			}
			require.Nil(t, l.SubmitWrite(end))
			err = l.Wait(end, true)
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
		end, err := l.Append([]byte("one"), true)
		require.NoError(t, err)
		require.Nil(t, l.SubmitWrite(end-1), "not the end of the log")
		_, err = l.Append([]byte("part"), false)
		require.NoError(t, err)
		require.Nil(t, l.SubmitWrite(l.End()), "a commit without an end")
		l.Abort()
		first := make(chan error, 1)
		go func() { first <- l.Wait(end, true) }()
		one := tw.next()
		end, err = l.Append([]byte("two"), true)
		require.NoError(t, err)
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

// TestCompensationCancelsACommit, whatever became of it before: in memory, on its way, in the file; of
// one part or several; where its segment ends.
func TestCompensationCancelsACommit(t *testing.T) {
	racetest.OneGoroutine(t)
	commits := 40
	if testing.Short() {
		commits = 11
	}
	for name, written := range map[string]func(l *testLog, end LSN) error{
		"queued":  func(*testLog, LSN) error { return nil },
		"written": func(l *testLog, end LSN) error { return l.Wait(end, false) },
		"durable": func(l *testLog, end LSN) error { return l.Wait(end, true) },
		"launched": func(l *testLog, end LSN) error {
			if sent := l.SubmitWrite(end); sent != nil { // not where a segment ends
				l.CompleteWrite(sent)
			}
			return l.Wait(end, true)
		},
	} {
		for _, block := range []int{0, 512} {
			if block == 0 && name == "launched" {
				continue
			}
			// in segments of 16 KiB, the last in one of a megabyte
			for _, size := range []int{10, 5000, 14 << 10, 200 << 10} {
				t.Run(fmt.Sprintf("%s/%d/%d_bytes", name, block, size), func(t *testing.T) {
					o := testOptions(newDisk(t, block))
					if size > 14<<10 {
						o.SegmentSize = 1 << 20
					}
					l := createTest(t, o)
					var kept []string
					for i := range commits {
						if name != "launched" && i%3 == 2 {
							_, err := l.Append([]byte("part"), false)
							require.NoError(t, err)
							l.Abort()
						}
						kept = append(kept, text(i, 100))
						l.commit(kept[i], true)
						end, err := l.Append([]byte(text(1000+i, size)), true)
						require.NoError(t, err)
						require.NoError(t, written(l, end))
						void, err := l.Compensate()
						require.NoError(t, err)
						require.NoError(t, l.Wait(void, true))
						require.Greater(t, void, end)
						if i%10 == 0 {
							mustReplay(t, l.opts, l.start, l.Durable(), kept)
						}
					}
					got, tail, err := replayAll(l.opts, l.start, l.Durable())
					require.NoError(t, err)
					require.Equal(t, kept, got)
					require.Equal(t, len(kept), tail.Commits)
					require.Zero(t, tail.Dropped)
				})
			}
		}
	}
}

// TestCrashBeforeCompensationIsDurable may bring the commit back, one after that may not.
func TestCrashBeforeCompensationIsDurable(t *testing.T) {
	l, d, tw := towered(t, nil)
	_, sent := l.launch("in question")
	tw.land(tw.next())
	l.CompleteWrite(sent)
	void, err := l.Compensate()
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- l.Wait(void, true) }()
	off := tw.next() // written, not durable
	rng, seen := rand.New(rand.NewPCG(1, 9)), map[int]int{}
	look := func() {
		for range 60 {
			o := l.opts
			o.FS = d.crash(func() bool { return rng.IntN(2) > 0 })
			got, _, err := replayAll(o, l.start, 0)
			require.NoError(t, err)
			require.Equal(t, []string{"before", "in question"}[:len(got)], got)
			seen[len(got)]++
		}
	}
	look()
	require.Positive(t, seen[1])
	require.Positive(t, seen[2])
	tw.land(off)
	require.NoError(t, <-done)
	seen = map[int]int{}
	look()
	require.Zero(t, seen[2])
}

// TestCompensationOfNothingIsDamage: of a commit that another one takes back already, of parts, of what was
// before the log begins.
func TestCompensationOfNothingIsDamage(t *testing.T) {
	for name, wrong := range map[string]func(t *testing.T, l *testLog) (start LSN){
		"twice": func(t *testing.T, l *testLog) LSN {
			l.commit("x", true)
			_, err := l.Compensate()
			require.NoError(t, err)
			return l.start
		},
		"a_part": func(t *testing.T, l *testLog) LSN {
			_, err := l.Append([]byte("part"), false)
			require.NoError(t, err)
			l.appender.inCommit = false
			return l.start
		},
		"before_the_beginning": func(_ *testing.T, l *testLog) LSN { return l.commit("x", true) },
	} {
		t.Run(name, func(t *testing.T) {
			l := createTest(t, testOptions(newDisk(t, 512)))
			start := wrong(t, l)
			void, err := l.Compensate()
			require.NoError(t, err)
			require.NoError(t, l.Wait(void, true))
			_, _, err = replayAll(l.opts, start, l.Durable())
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			require.ErrorContains(t, err, "takes back")
		})
	}
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

// TestGoldenCompensation pins the record that takes a commit back.
func TestGoldenCompensation(t *testing.T) {
	b := appendRecord(nil, 7, record{lsn: 40960, prev: 40900, kind: typeCompensation})
	sealRecord(b, 40800)
	golden.Require(
		t,
		"void.hex",
		"record that takes the commit before it back: checksum, salt, lsn, synced, prev, length, type, flags, reserved",
		[]golden.Field{{Off: 0, Size: len(b), Remark: "record"}},
		b,
	)
	r, err := decodeRecord(b, 7, 40960)
	require.NoError(t, err)
	require.Equal(t, typeCompensation, r.kind)
}

// TestHasCommitSpaceBesideALeader: after HasCommitSpace a commit and its compensation record fit also
// where another leader writes the queue meanwhile, which pads it to a page.
func TestHasCommitSpaceBesideALeader(t *testing.T) {
	asked := 0
	for filled := 0; filled < 62_000; filled += racetest.Sample(311, 1511) {
		for _, block := range []int{512, 4096} {
			for _, size := range []int{100, 5000} {
				d := newDisk(t, block)
				o := testOptions(d)
				o.SegmentSize = 64 << 10
				l := createTest(t, o)
				d.hook = func(op, name string, n int) (int, error) { // The disk is full.
					if op == "create" || op == "grow" || op == "rename" || name != o.name(1) {
						return 0, vfs.ErrNoSpace
					}
					return n, nil
				}
				before, err := l.Append([]byte(text(1, filled)), true)
				if err != nil || !l.HasCommitSpace(size) {
					continue
				}
				asked++
				require.NoError(t, l.Wait(before, true))
				end, err := l.Append([]byte(text(2, size)), true)
				require.NoError(t, err)
				require.NoError(t, l.Wait(end, true))
				_, err = l.Compensate()
				require.NoError(t, err, "filled %d, block %d, size %d", filled, block, size)
			}
		}
	}
	require.Greater(t, asked, racetest.Sample(100, 20))
}
