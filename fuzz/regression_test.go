package fuzz

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
)

// TestRegressions replays every case that failed once. Where the workload makes another trace by
// now, the crash point that a line meant is not to be found: then every moment of its workload is
// crashed, and its recoveries too.
func TestRegressions(t *testing.T) {
	racetest.OneGoroutine(t)
	text, err := os.ReadFile("testdata/regressions.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		t.Run(line, func(t *testing.T) {
			c, err := ParseCase(line)
			require.NoError(t, err)
			require.Equal(t, line, c.String())
			err = Replay(c)
			if _, failed := err.(*Failure); err != nil && !failed {
				t.Log(err)
				crashEverywhere(t, c)
				return
			}
			require.NoError(t, err)
		})
	}
}

// crashEverywhere crashes the workload of a case, with its trouble, at every moment; of recoveries
// it takes a sample if the case has a crash in one.
func crashEverywhere(t *testing.T, c Case) {
	r := newRun(c.Workload)
	require.NoError(t, r.trouble(c.Trouble))
	var inner *crashfs.Disk
	var points int
	var v verdict
	j := &Judge{run: r, Recovery: func(d *crashfs.Disk, n int, found verdict) error {
		inner, points, v = d, n, found
		return nil
	}}
	const profiles = crashfs.None | crashfs.Kill | crashfs.Dirs | crashfs.Size | crashfs.Prefix |
		crashfs.Shorn
	judged, every := 0, racetest.Sample(4, 120)
	some := crashfs.ImageOptions{Profiles: profiles, Seen: crashfs.NewSeen()}
	if racetest.Quick() {
		some.OneOf = func(crashfs.Profile) int { return 8 }
	}
	for im := range r.Disk.Images(some) {
		_, err := j.Image(im)
		require.NoError(t, err, "%d %s", im.Point, im.Desc())
		judged++
		if len(c.Crashes) < 2 || judged%every != 0 {
			continue
		}
		want, n := v, 0
		const innerProfiles = crashfs.None | crashfs.Kill | crashfs.Dirs
		for again := range inner.Images(crashfs.ImageOptions{Profiles: innerProfiles, To: points + 1}) {
			if n++; n%3 != judged/every%3 {
				continue
			}
			_, _, err := j.same(again, want, points)
			require.NoError(t, err, "%d %s | %d %s", im.Point, im.Desc(), again.Point, again.Desc())
		}
	}
	require.Greater(t, judged, 50)
}
