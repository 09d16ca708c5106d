package fuzz

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
)

// TestCrashesAreSurvived is a short campaign; crashtest enumerate runs long ones.
func TestCrashesAreSurvived(t *testing.T) {
	o := Options{Seed: 1, Most: 600, Depth: 3, Workers: runtime.GOMAXPROCS(0)}
	if testing.Short() {
		o.Most = 300
	}
	r := Campaign(t.Context(), o)
	require.Empty(t, r.Failures)
	require.GreaterOrEqual(t, r.Distinct, o.Most)
	require.NotZero(t, r.Crashed)
	t.Log(r)
}

// TestEveryProfileIsSurvived takes samples of each profile from workloads that touch much.
func TestEveryProfileIsSurvived(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	var runs []*Run
	for _, text := range []string{"busy big.0 ckpt.1", "closed+direct rotate.0 drop.1",
		"wide beside.0 relax.1"} {
		w, err := ParseWorkload(text)
		require.NoError(t, err)
		r, err := Do(w)
		require.NoError(t, err)
		runs = append(runs, r)
	}
	for p := crashfs.Kill; p < crashfs.AllProfiles; p <<= 1 {
		t.Run(p.String(), func(t *testing.T) {
			for _, r := range runs {
				j, n, judged := &Judge{run: r}, 0, 0
				for im := range r.Disk.Images(crashfs.ImageOptions{Profiles: p, Random: 2}) {
					if n++; n%5 != 0 || judged > racetest.Sample(16, 8) {
						continue
					}
					judged++
					_, err := j.Image(im)
					require.NoError(t, err, "%s | %d %s", r.Workload, im.Point, im.Desc())
				}
				require.NotZero(t, judged)
			}
		})
	}
}

func TestCampaignDoesTheSameForTheSameSeed(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	o := Options{Seed: 9, Most: 120, Workers: 1}
	first, second := Campaign(t.Context(), o), Campaign(t.Context(), o)
	first.Seconds, second.Seconds = 0, 0
	require.Equal(t, first, second)
}

// TestWorkloadsMakeTheSameTraceEachTime is what replaying rests on.
func TestWorkloadsMakeTheSameTraceEachTime(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, w := range []Workload{Random(5, 80), Random(7, 40), Specials()[1], Sequences(1)[30]} {
		first, err := Do(w)
		require.NoError(t, err)
		parsed, err := ParseWorkload(w.String())
		require.NoError(t, err)
		second, err := Do(parsed)
		require.NoError(t, err)
		a, b := first.Disk.Trace(), second.Disk.Trace()
		require.Equal(t, len(a), len(b), "%s", w)
		for i := range a {
			require.Equal(t, a[i].String(), b[i].String())
			require.Equal(t, a[i].Data, b[i].Data)
			require.Equal(t, a[i].Marks, b[i].Marks)
		}
	}
}

func TestCasesAreSpeltAndReadAlike(t *testing.T) {
	for _, line := range []string{
		"one put.0 big.1", "random:5:200 | 17 reorder keep=1-3",
		"busy+direct ckpt.zz | fault gate 3 | 17 kill all | 4 none keep=",
		"empty | recovery read 4 sticky | 17 kill all",
		"empty | ignore wal.(*syncer).writeGroup#2, fault short-error 2 | 3 none keep=",
	} {
		c, err := ParseCase(line)
		require.NoError(t, err, line)
		require.Equal(t, line, c.String())
	}
	for _, line := range []string{"", "nowhere put.0", "one put",
		"one put.0 | 1 none | what is this", "one nothing.3"} {
		_, err := ParseCase(line)
		require.Error(t, err, line)
	}
	c, err := ParseCase("one put.0 | 9999 none keep=")
	require.NoError(t, err)
	var failure *Failure
	err = Replay(c)
	require.Error(t, err)
	require.NotErrorAs(t, err, &failure)
}

// TestFailuresShrink loses a sync on purpose and finds out with how little that is seen.
func TestFailuresShrink(t *testing.T) {
	racetest.OneGoroutine(t)
	f := Notices(
		"ignore",
		"pager.(*mainFile).WriteMeta#1",
		[]Workload{{Base: "busy", Ops: []Op{{Kind: 0}, {Kind: 3}, {Kind: 8}, {Kind: 1}}}},
	)
	require.NotNil(t, f)
	var again *Failure
	require.ErrorAs(t, Replay(f.Case), &again)
	small := Shrink(f)
	require.ErrorAs(t, Replay(small.Case), &again)
	require.LessOrEqual(t, len(small.Case.String()), len(f.Case.String()))
}

// TestRecoveriesOfRecoveriesEndAlike goes through one image with everything that can happen to its
// recovery, to depth 3.
func TestRecoveriesOfRecoveriesEndAlike(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	w, err := ParseWorkload("busy relax.0 put.1")
	require.NoError(t, err)
	r, err := Do(w)
	require.NoError(t, err)
	at := r.OpEnds[len(r.OpEnds)-1]
	c := &campaign{
		ctx:   t.Context(),
		o:     Options{Depth: 3, Profiles: crashfs.AllProfiles, Most: 600},
		seen:  map[uint64]int{},
		kinds: map[string]int{},
	}
	c.report.Profiles = map[string]int{}
	e := &explorer{
		c: c,
		t: task{w: w, pass: pass{keep: 1, deep: 1, inner: 1}, level: 1},
		r: r,
		j: &Judge{run: r},
	}
	e.j.Recovery = func(d *crashfs.Disk, points int, v verdict) error {
		e.d, e.points, e.v = d, points, v
		return nil
	}
	e.images(crashfs.ImageOptions{Profiles: crashfs.None | crashfs.Kill, From: at, To: at + 1})
	for _, f := range c.cases {
		require.NoError(t, f)
	}
	require.NotZero(t, c.report.Crashed)
	require.NotZero(t, c.report.Deeper)
}

// TestEachPassCrashesMoreRecoveries runs one workload in all passes: the last one has no image of
// its own any more, and is there for all the recoveries of which those before took samples. A
// second time there is nothing left to do.
func TestEachPassCrashesMoreRecoveries(t *testing.T) {
	racetest.OneGoroutine(t)
	w, err := ParseWorkload("one put.0")
	require.NoError(t, err)
	c := &campaign{
		ctx:   t.Context(),
		o:     Options{Depth: 2, Profiles: crashfs.None | crashfs.Kill | crashfs.Dirs},
		seen:  map[uint64]int{},
		kinds: map[string]int{},
	}
	c.report.Profiles = map[string]int{}
	crash := func(level int) int {
		c.run(task{w: w, pass: passes[level-1], level: level})
		require.Empty(t, c.cases)
		return c.report.Crashed
	}
	for level := 1; level < len(passes); level++ {
		crash(level)
	}
	samples, distinct := c.report.Crashed, c.report.Distinct-c.report.Crashed
	all := crash(len(passes))
	require.Greater(t, all, 2*samples)
	require.Equal(t, distinct, c.report.Distinct-all)
	require.Equal(t, all, crash(len(passes)))
}

// TestCampaignGoesOnWhereAnotherEnded: what two campaigns have done one after the other is what one
// does.
func TestCampaignGoesOnWhereAnotherEnded(t *testing.T) {
	racetest.OneGoroutine(t)
	plan := func(skip int) (all []string) {
		c := &campaign{ctx: t.Context(), o: Options{Seed: 5, Length: 1, Skip: skip}}
		for next := c.plan(); ; {
			task, ok := next()
			if !ok {
				require.True(t, c.planned)
				return all
			}
			all = append(all, task.w.String())
		}
	}
	all := plan(0)
	require.Greater(t, len(all), 200)
	require.Equal(t, all[150:], plan(150))
	require.Empty(t, plan(len(all)))
	require.Empty(t, plan(len(all)+1))
}

// TestVanishedStoreIsSeen loses a store in which there is nothing yet. What Open then makes holds
// commit 1, as that one did.
func TestVanishedStoreIsSeen(t *testing.T) {
	racetest.OneGoroutine(t)
	r := newRun(Workload{Base: "empty"})
	r.Disk.Inject(crashfs.Fault{Do: crashfs.Ignore, Kinds: crashfs.KindSyncDir, Sticky: true})
	require.NoError(t, r.steps())
	require.EqualValues(t, 1, r.newest())
	f, _ := firstFailure(r, "", crashfs.ImageOptions{Profiles: crashfs.None, From: r.Disk.Len()}, 10)
	require.NotNil(t, f)
	require.Contains(t, f.Reason, errVanished.Error())
	require.NoError(t, r.close())
	require.NoError(t, r.Disk.Remove(path))
	require.ErrorContains(t, r.open(), errVanished.Error())
	r.abandon()
}

// TestVanishedStoreIsSeenInItsRecovery is the same of a crash after the Open that made the store
// had returned; before that it may vanish.
func TestVanishedStoreIsSeenInItsRecovery(t *testing.T) {
	racetest.OneGoroutine(t)
	r, err := Do(Workload{Base: "empty"})
	require.NoError(t, err)
	j := &Judge{run: r}
	for im := range r.Disk.Images(crashfs.ImageOptions{Profiles: crashfs.None, To: 1}) {
		v, err := j.Image(im)
		require.NoError(t, err)
		require.True(t, v.info.Created)
		_, _, err = j.same(im, v, im.Point+1)
		require.NoError(t, err)
		_, _, err = j.same(im, v, im.Point)
		require.ErrorIs(t, err, errVanished)
		v.info.Created = false
		_, _, err = j.same(im, v, im.Point+1)
		require.ErrorIs(t, err, errVanished)
	}
}
