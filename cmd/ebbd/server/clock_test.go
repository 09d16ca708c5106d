package server

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/kv"
)

// TestExpirySurvivesRestartsAndClockSteps: an expiry is an instant, not the rest of a duration. Time
// that passes while the server is down counts; a clock that was set back meanwhile revives nothing
// that has expired.
func TestExpirySurvivesRestartsAndClockSteps(t *testing.T) {
	clock := newClock()
	o := Options{Clock: clock.now, Dir: t.TempDir()}
	s := start(t, o)
	c := s.client()
	restart := func(step time.Duration) {
		t.Helper()
		s.check()
		s.shutdown()
		clock.advance(step)
		s = start(t, o)
		c = s.client()
	}
	steps(t, c, clock, [][2]string{
		{"SET short v PX 5000", "OK"}, {"SET long v PX 100000", "OK"}, {"HSET h f v g w", "2"},
		{"HPEXPIRE h 5000 FIELDS 1 f", "[1]"}, {"SET stays v", "OK"},
	}...)
	restart(4999 * time.Millisecond)
	steps(t, c, clock, [][2]string{
		{"PTTL short", "1"}, {"PTTL long", "95001"}, {"HPTTL h FIELDS 1 f", "[1]"}, {"DBSIZE", "4"},
	}...)
	restart(time.Millisecond)
	steps(t, c, clock, [][2]string{
		{"GET short", "nil"}, {"PTTL long", "95000"}, {"HGETALL h", `["g" "w"]`}, {"DBSIZE", "3"},
	}...)
	s.settle()
	restart(-30 * time.Second) // within the step during which time stands still
	require.Equal(t, "nil", c.line("GET short"))
	require.Equal(t, "3", c.line("DBSIZE"))
	left := c.line("PTTL long")
	require.LessOrEqual(t, len(left), len("125000"))
	restart(10 * time.Minute)
	steps(t, c, clock, [][2]string{
		{"GET short", "nil"}, {"GET long", "nil"}, {"HGETALL h", `["g" "w"]`}, {"KEYS *", `["h" "stays"]`},
	}...)
}

// TestAClockThatJumpsWhileTheServerRuns: what a clock that is set forward hides is not deleted, and is
// there again when the clock is right; a restart or a command confirms the new time. A clock that
// is set back by seconds makes time stand still.
func TestAClockThatJumpsWhileTheServerRuns(t *testing.T) {
	t.Run("restart", func(t *testing.T) { jumpingClock(t, false) })
	t.Run("accepted", func(t *testing.T) { jumpingClock(t, true) })
}

func jumpingClock(t *testing.T, accept bool) {
	clock, uptime := newClock(), &fakeClock{}
	disk := crashfs.New(crashfs.Options{})
	open := func() *testServer {
		o := Options{Dir: "dir", Clock: clock.now}
		o.openStore = func(path string, o *kv.Options) (*kv.DB, error) {
			monotonic := func() time.Duration { return time.Duration(uptime.ms.Load()) * time.Millisecond }
			return openfs.OpenTuned(disk, path, o, openfs.Tuning{Monotonic: monotonic})
		}
		s, err := Open(o)
		require.NoError(t, err)
		return serve(t, s)
	}
	s := open()
	c := s.client()
	steps(t, c, clock, [][2]string{
		{"SET k v PX 3600000", "OK"}, {"HSET h f v", "1"}, {"HPEXPIRE h 3600000 FIELDS 1 f", "[1]"},
	}...)
	clock.advance(time.Second) // as it does between jumps
	uptime.advance(time.Second)
	clock.advance(2 * time.Hour)
	steps(t, c, clock, [][2]string{{"GET k", "nil"}, {"DBSIZE", "0"}, {"SET new v", "OK"}}...)
	require.NoError(t, s.exec.do(func(tx *kv.Tx) error {
		purged, more, err := s.store.Purge(tx, purgeStep, false)
		require.Zero(t, purged)
		require.False(t, more)
		return err
	}))
	require.Contains(t, c.line("INFO ebb"), "ebb_clock_jumped:1")
	clock.advance(-2 * time.Hour)
	steps(t, c, clock, [][2]string{
		{"GET k", `"v"`}, {"PTTL k", "3599000"}, {"HGET h f", `"v"`}, {"DBSIZE", "3"},
	}...)
	require.Contains(t, c.line("INFO ebb"), "ebb_clock_steps:1")
	clock.advance(-30 * time.Second)
	require.Equal(t, "3599000", c.line("PTTL k"))
	clock.advance(2*time.Hour + 30*time.Second)
	require.Equal(t, "nil", c.line("GET k"))
	require.Contains(t, c.line("INFO ebb"), "ebb_clock_jumped:1")
	if accept {
		require.Equal(t, "OK", c.line("DEBUG ACCEPT-CLOCK"))
		require.Eventually(t, func() bool { return strings.Contains(c.line("INFO stats"), "expired_keys:2") },
			20*time.Second, 10*time.Millisecond)
	} else {
		s.shutdown()
		s = open()
		c = s.client()
	}
	require.Equal(t, "1", c.line("DBSIZE"))
	s.settle()
	require.Contains(t, c.line("INFO ebb"), "ebb_clock_jumped:0")
	clock.advance(-2 * time.Hour)
	require.Equal(t, "1", c.line("DBSIZE"), "they are deleted")
	s.shutdown()
}
