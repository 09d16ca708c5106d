package racetest

import "testing"

// Quick reports a short run without the race detector, as `make test-short` does: tests that take
// seconds take smaller samples there. A short run under the detector takes those of an ordinary
// one.
func Quick() bool { return testing.Short() && !Enabled }

// NotQuick skips a test of seconds, of which a sample says little, in a quick run.
func NotQuick(t testing.TB) {
	t.Helper()
	if Quick() {
		t.Skip("takes seconds")
	}
}

// OneGoroutine marks a test in which only one goroutine uses a store: a short run under the race
// detector, which makes it ten times as long and has nothing to find in it, skips it. The same test
// runs without the detector, and under it if the run is not short.
func OneGoroutine(t testing.TB) {
	t.Helper()
	if Enabled && testing.Short() {
		t.Skip("one goroutine, nothing for the race detector")
	}
}

// Sample is quick in a quick run, and full in all others: how many cases, rounds or rows a test
// takes, or how far apart they are.
func Sample(full, quick int) int {
	if Quick() {
		return quick
	}
	return full
}
