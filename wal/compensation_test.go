package wal

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestCompensationCancelsACommit, whatever became of it before: in memory, on its way, in the file; of
// one part or several; where its segment ends.
func TestCompensationCancelsACommit(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	commits := 20
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
							l.mustAppend([]byte("part"), false)
							l.Abort()
						}
						kept = append(kept, text(i, 100))
						l.commit(kept[i], true)
						end := l.mustAppend([]byte(text(1000+i, size)), true)
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
			l.mustAppend([]byte("part"), false)
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

// TestHasCommitSpaceBesideALeader: after HasCommitSpace a commit and its compensation record fit also
// where another leader writes the queue meanwhile, which pads it to a page.
func TestHasCommitSpaceBesideALeader(t *testing.T) {
	asked := 0
	for filled := 0; filled < 62_000; filled += racetest.Sample(911, 1511) {
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
				end := l.mustAppend([]byte(text(2, size)), true)
				require.NoError(t, l.Wait(end, true))
				_, err = l.Compensate()
				require.NoError(t, err, "filled %d, block %d, size %d", filled, block, size)
			}
		}
	}
	require.Greater(t, asked, racetest.Sample(35, 20))
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
				full := func(op, _ string, n int) (int, error) {
					if op == "create" || op == "grow" || op == "rename" {
						return 0, vfs.ErrNoSpace
					}
					return n, nil
				}
				if filled%2 == 0 { // A large group has the next segment prepared at once.
					d.hook = full
				}
				l.commit(text(1, filled), true)
				if !l.HasCommitSpace(size) {
					refused++
					continue
				}
				ready := l.appender.spare != nil
				d.hook = full
				l.commit(text(2, size), true)
				end, err := l.Compensate()
				require.NoError(t, err, "%d filled, spare %v", filled, ready)
				require.NoError(t, l.Wait(end, true))
			}
		}
	}
	require.NotZero(t, refused)
}
