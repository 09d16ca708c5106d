package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDurationsHaveDaysAndWeeks: --ttl 7d, 1d12h and 2w were refused, and a week had to be written
// as 168h.
func TestDurationsHaveDaysAndWeeks(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"7d": 7 * day, "1d12h": 36 * time.Hour, "2w": 14 * day, "1w2d3h4m5s": 9*day + 3*time.Hour +
			4*time.Minute + 5*time.Second,
		"1.5d": 36 * time.Hour, ".5w": 84 * time.Hour, "-1d": -day, "+1d": day, "0": 0, "-0": 0, "0d": 0,
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute,
		"1ms1us1µs1ns":          time.Millisecond + 2*time.Microsecond + 1,
		"15250w":                15250 * 7 * day,
		"9223372036854775807ns": math.MaxInt64,
	} {
		got, err := parseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "7", "d", ".d", "-", "7 d", "7D", "7days", "7y", "d7",
		"1d-1h", "--1d", "1d 12h", "1e3d", "0x1d", "1..5d", "NaNd", "∞d"} {
		_, err := parseDuration(text)
		require.ErrorContains(t, err, "is no duration, as 90s", "%q", text)
	}
	for _, text := range []string{"15251w", "106752d", "9223372036854775808ns", "99999999999999999999w",
		"-15251w", "2562047h1000000000000s", "15250w3000h", "1000000000000000000000000h"} {
		_, err := parseDuration(text)
		require.ErrorContains(t, err, "too long: a duration ends at 292 years", "%q", text)
	}
}

// TestADurationIsShownAsItIsGiven: what showDuration gives is what parseDuration takes.
func TestADurationIsShownAsItIsGiven(t *testing.T) {
	for _, text := range []string{
		"0s", "1ns", "90ms", "1s", "10s", "30m", "10m", "1m30s", "1h", "10h", "1h30m", "1h0m1s", "10h10m10s",
		"1d", "7d", "1d12h", "1d0h0m1s", "1d1ms", "106751d23h47m16.854775807s", "-1h", "-1d", "-1d12h",
	} {
		d, err := parseDuration(text)
		require.NoError(t, err)
		if text == "1d0h0m1s" {
			text = "1d1s"
		}
		require.Equal(t, text, showDuration(d))
		again, err := parseDuration(showDuration(d))
		require.NoError(t, err)
		require.Equal(t, d, again)
	}
}

// TestEveryDurationOfTheCommandHasDaysAndWeeks goes through all places where one is given.
func TestEveryDurationOfTheCommandHasDaysAndWeeks(t *testing.T) {
	s := newTimedStore(t)
	s.good("put", "k", "v", "--ttl", "1d12h")
	require.Equal(t, "1d12h\n", s.good("ttl", "k"))
	s.good("expire", "k", "2w")
	require.Equal(t, "14d\n", s.good("ttl", "k"))
	s.good("family", "f", "--create", "--default-ttl", "7d")
	s.good("put", "k", "v", "--family", "f")
	require.Equal(t, "7d\n", s.good("ttl", "k", "--family", "f", "--wait", "1d"))
	for _, args := range [][]string{
		{"put", "k", "v", "--ttl", "7y"}, {"put", "k", "v", "--ttl", "99999w"},
		{"expire", "k", "7y"}, {"expire", "k", "99999w"},
		{"family", "f", "--default-ttl", "soon"}, {"get", "k", "--wait", "1dd"},
	} {
		s.code(exitError, "usage", args[0], args[1:]...)
	}
	require.Contains(t, s.ebb("put", "k", "v", "--ttl", "7y").stderr, "as 90s, 15m, 36h, 7d, 2w or 1d12h")
	require.Contains(t, s.ebb("put", "k", "v", "--ttl", "99999w").stderr, "292 years")
	s.code(exitError, "invalid_ttl", "put", "k", "v", "--ttl", "-1d")
}
