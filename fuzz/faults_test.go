package fuzz

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// TestFailingCallsAreSurvived takes samples of every fault; crashtest faults goes through all of
// them.
func TestFailingCallsAreSurvived(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	most := 12
	if testing.Short() {
		most = 6
	}
	for _, kind := range FaultKinds() {
		t.Run(kind, func(t *testing.T) {
			r, err := Faults(t.Context(), Options{Seed: 2, Most: most, Thin: 12,
				Workers: runtime.GOMAXPROCS(0)}, kind)
			require.NoError(t, err)
			require.Empty(t, r.Failures)
			require.GreaterOrEqual(t, r.Kinds[kind], most)
		})
	}
}

// TestFullDiskAtEachCallOfCompactAndBackup: each write, growth, segment and hole of them is refused in
// turn, once or from then on. The store goes on, or has failed, and has all rows when it is opened again.
func TestFullDiskAtEachCallOfCompactAndBackup(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, w := range spelt(
		"holed+groups compact.1a", // to its end, with a fill pass
		"holed+groups compact.48", // cancelled at its last step
		"holed+groups backup.0 put.1 backup.2",
	) {
		r := newRun(w)
		require.NoError(t, r.all())
		n := 0
		for _, op := range r.Disk.Trace()[:r.OpEnds[0]] {
			if op.Kind&spaceKinds != 0 {
				n++
			}
		}
		refused := 0
		for fired := true; fired; n += racetest.Sample(1, 7) {
			r := newRun(w)
			var err error
			fired, err = r.faulty(crashfs.Fault{Kinds: spaceKinds, Err: vfs.ErrNoSpace, N: n,
				Sticky: n%3 == 0})
			require.NoError(t, err, "%s: space %d", w, n)
			if fired {
				refused++
			}
		}
		require.Greater(t, refused, racetest.Sample(10, 1), "%s", w)
	}
}

// TestFaultsThatWereCutShortAreNotComplete bounds the last task, after which there is none to begin
// with.
func TestFaultsThatWereCutShortAreNotComplete(t *testing.T) {
	racetest.OneGoroutine(t)
	w, err := ParseWorkload("empty put.0")
	require.NoError(t, err)
	for most, complete := range map[int]bool{1: false, 0: true} {
		c := &faultCampaign{
			ctx:    t.Context(),
			o:      Options{Most: most},
			groups: map[string]int{},
			seen:   map[uint64]struct{}{},
		}
		c.report.Kinds = map[string]int{}
		c.tasks = []faultTask{{w: w, kind: faultKind{"rename", crashfs.Fault{Kinds: crashfs.KindRename}}}}
		c.work()
		require.Equal(t, complete, c.complete())
		require.NotZero(t, c.report.Runs)
		require.Empty(t, c.report.Failures)
	}
}

// TestFailedSyncsLoseNothingThatWasShown is F8 at every sync of some workloads: the store is opened
// again in the same boot, and what it shows then survives every crash.
func TestFailedSyncsLoseNothingThatWasShown(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	workloads := []string{
		"closed put.0",
		"one big.0 relax.1",
		"busy ckpt.0",
		"closed+direct bulk.0",
		"wide beside.0 over.1",
	}
	if testing.Short() {
		workloads = workloads[:2]
	}
	for _, text := range workloads {
		t.Run(text, func(t *testing.T) {
			w, err := ParseWorkload(text)
			require.NoError(t, err)
			c := &faultCampaign{
				ctx:    t.Context(),
				o:      Options{Seed: 1, Thin: 160},
				groups: map[string]int{},
				seen:   map[uint64]struct{}{},
			}
			c.report.Kinds = map[string]int{}
			for _, k := range faultKinds {
				if k.name == "gate" {
					c.run(faultTask{w: w, kind: k})
				}
			}
			require.Empty(t, c.report.Failures)
			require.Greater(t, c.report.Runs, 10)
		})
	}
}

// TestReopeningThatSyncsNothingIsSeen has every sync after the failed one say yes and do nothing.
// What the store shows when it is opened again is then in memory only, and a power cut leaves the
// bytes that were there before it was shown: the same bytes, of which more is asked by now.
func TestReopeningThatSyncsNothingIsSeen(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, text := range []string{"one relax.1", "closed relax.0 relax.1"} {
		w, err := ParseWorkload(text)
		require.NoError(t, err)
		var ignored *crashfs.Injection
		failed := false
		for n := 0; !failed; n++ {
			r := newRun(w)
			ignored = r.Disk.Inject(
				crashfs.Fault{Do: crashfs.Ignore, Kinds: crashfs.KindSyncs, Phase: "reopen", Sticky: true},
			)
			fired, err := r.faulty(crashfs.Fault{Do: crashfs.Gate, Kinds: crashfs.KindSyncs, N: n})
			require.NoError(t, err)
			require.True(t, fired, "no crash shows it")
			c := &faultCampaign{
				ctx:    t.Context(),
				o:      Options{Seed: 1, Profiles: crashfs.None},
				groups: map[string]int{},
				seen:   map[uint64]struct{}{},
			}
			c.crash(r, "fault gate")
			failed = len(c.report.Failures) > 0
		}
		require.NotZero(t, ignored.Fired())
	}
}

// TestKillAndRecoveryWithoutSyncsIsSeen is the same of a process that was killed: what the next one
// shows is durable.
func TestKillAndRecoveryWithoutSyncsIsSeen(t *testing.T) {
	racetest.OneGoroutine(t)
	r := newRun(Workload{Base: "one"})
	require.NoError(t, r.steps())
	relaxed := r.newest() + 1
	require.NoError(t, r.update(kv.NoSync, func(t *tx) error { return t.put(defaultFamily, "k", "v") }))
	in := r.Disk.Inject(crashfs.Fault{Do: crashfs.Ignore, Kinds: crashfs.KindSyncs, Phase: "open",
		Sticky: true})
	require.NoError(t, opKill(r, nil))
	require.NotZero(t, in.Fired())
	in.Disarm()
	f, _ := firstFailure(r, "", crashfs.ImageOptions{Profiles: crashfs.None, From: r.Disk.Len()}, 10)
	require.NotNil(t, f)
	require.Contains(t, f.Reason, fmt.Sprintf("want %d", relaxed))
	r.abandon()
}

// TestFullDiskFailsTheCallAndNothingElse lowers the capacity step by step. Whatever cannot be done
// is ErrNoSpace and not there; with space again, the same store goes on.
func TestFullDiskFailsTheCallAndNothingElse(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, extra := range []int64{0, 4 << 10, 40 << 10, 200 << 10} {
		r := newRun(Workload{Base: "closed"})
		require.NoError(t, r.steps())
		r.Disk.SetCapacity(r.Disk.Used() + extra)
		refused := 0
		for i := range 12 {
			kind, _ := kindOf([]string{"put", "big", "rotate", "ckpt"}[i%4])
			before := r.now()
			err := r.apply(Op{kind, uint32(i)})
			if err == nil {
				continue
			}
			refused++
			require.ErrorIs(t, err, kv.ErrNoSpace)
			require.NotErrorIs(t, err, kv.ErrFailed)
			r.attempt = nil // refused for certain
			got, err := readContents(r.db)
			require.NoError(t, err)
			require.Equal(t, r.now(), got)
			require.GreaterOrEqual(t, got.seq, before.seq)
		}
		require.NotZero(t, refused, "extra %d", extra)
		r.Disk.SetCapacity(0)
		for i := range 12 {
			kind, _ := kindOf([]string{"put", "big", "rotate", "ckpt"}[i%4])
			require.NoError(t, r.apply(Op{kind, uint32(i)}))
		}
		require.NoError(t, r.close())
	}
}

// TestReaderGoesOnAfterAWriteFailed holds a snapshot over a failure: it sees the same, to its end.
func TestReaderGoesOnAfterAWriteFailed(t *testing.T) {
	racetest.OneGoroutine(t)
	r := newRun(Workload{Base: "busy"})
	require.NoError(t, r.steps())
	require.NoError(t, r.hold())
	r.Disk.Inject(crashfs.Fault{Kinds: crashfs.KindSyncs})
	err := r.update(kv.Sync, func(t *tx) error { return t.put(defaultFamily, "k", "v") })
	require.ErrorIs(t, err, crashfs.ErrIO)
	require.True(t, errors.Is(err, kv.ErrCommitUnknown) || errors.Is(err, kv.ErrFailed), "%v", err)
	require.ErrorIs(t, r.db.Close(), kv.ErrTxnsOpen)
	require.ErrorIs(t, r.db.Checkpoint(context.Background()), kv.ErrFailed)
	require.NoError(t, r.release())
	require.ErrorIs(t, r.db.Close(), kv.ErrFailed)
	r.db = nil
}

// TestWrongAnswersAreSeen turns the oracle of faults on stores that lie: it must not pass
// everything.
func TestWrongAnswersAreSeen(t *testing.T) {
	racetest.OneGoroutine(t)
	r := newRun(Workload{Base: "one"})
	r.fault = &crashfs.Fault{}
	require.ErrorIs(t, r.judgeError(errors.New("no cause")), errWrong)
	require.ErrorIs(t, r.judgeError(errors.Join(crashfs.ErrIO, kv.ErrCorrupt)), errWrong)
	require.NoError(t, r.judgeError(crashfs.ErrIO))
	require.NoError(t, r.steps())
	require.NoError(t, r.judgeReads())
	r.States[len(r.States)-1].Stored++
	require.ErrorIs(t, r.judgeReads(), errWrong)
	r.abandon()
}
