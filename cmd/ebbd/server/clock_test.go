package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
