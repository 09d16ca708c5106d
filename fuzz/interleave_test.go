package fuzz

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

// TestInterleavings plays a sample of every pair of roles. crashtest interleave plays all.
func TestInterleavings(t *testing.T) {
	racetest.NotQuick(t)
	sample := 25
	if testing.Short() {
		sample = 3
	}
	r := Interleave(t.Context(), InterleaveOptions{Sample: sample, Seed: 1, Workers: runtime.GOMAXPROCS(0)})
	require.Empty(t, r.Failures)
	require.Len(t, r.Pairs, len(roles)*(len(roles)+1)/2)
	require.Equal(t, sample*len(r.Pairs), r.Played)
}

// TestGateSeesADeadlock: two goroutines that take two locks in different order wait for each other
// in one interleaving, and the gate says so instead of waiting with them.
func TestGateSeesADeadlock(t *testing.T) {
	seen := 0
	for _, order := range [][]int{{0, 0, 0, 1}, {0, 1, 0, 1}} {
		g := &gate{}
		var locks [2]chan struct{}
		for i := range locks {
			locks[i] = make(chan struct{}, 1)
		}
		give := make(chan struct{})
		take := func(i int) bool {
			select {
			case locks[i] <- struct{}{}:
				return true
			case <-give: // so that the test can end
				return false
			}
		}
		var done sync.WaitGroup
		for me := range 2 {
			g.start("locker", &done, func() {
				take(me)
				g.step("between")
				if take(1 - me) {
					<-locks[1-me]
				}
				<-locks[me]
			})
		}
		for at := 0; ; at++ {
			stopped, err := g.settle()
			if err != nil {
				require.ErrorContains(t, err, "deadlock")
				seen++
				close(give) // both at once: the first one releases the lock that the other one waits for
				break
			}
			if len(stopped) == 0 {
				break
			}
			next := stopped[0]
			if at < len(order) && len(stopped) == 2 {
				next = stopped[order[at]]
			}
			g.let(next)
		}
		done.Wait()
	}
	require.Equal(t, 1, seen)
}

func TestLinesOfInterleavingsReplay(t *testing.T) {
	for _, line := range []string{"commit reader abab", "drop drop bb", "purge switch "} {
		i, err := ParseInterleaving(line)
		require.NoError(t, err)
		require.Equal(t, line, i.String())
		require.NoError(t, ReplayInterleaving(line))
	}
	for _, line := range []string{"", "commit", "commit dance ab", "commit commit abc", "a b c d"} {
		require.Error(t, ReplayInterleaving(line), line)
	}
}

// TestJudgeOfInterleavingsSeesWhatIsMissing gives it a stage whose roles did not do what they are
// taken for.
func TestJudgeOfInterleavingsSeesWhatIsMissing(t *testing.T) {
	files, err := stageFiles()
	require.NoError(t, err)
	fsys, err := specimenDisk(files)
	require.NoError(t, err)
	s := &stage{gate: &gate{}}
	s.db, err = openStage(fsys, 1)
	require.NoError(t, err)
	for _, name := range Roles() {
		s.roles = [2]string{name, name}
		switch name {
		case "checkpoint", "reader":
			require.NoError(t, s.judge())
		default:
			require.ErrorContains(t, s.judge(), "the end is", name)
		}
	}
	require.NoError(t, s.db.Close())
	require.ErrorContains(t, s.whole(map[string]int{"gone": 1, "row": stageRows}), "dropped family")
	s.roles = [2]string{"switch", "switch"}
	require.ErrorContains(t, s.whole(map[string]int{"switch0": 1, "row": stageRows}), "rows of a commit")
}
