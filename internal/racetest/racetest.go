package racetest

import "testing"

// OneGoroutine marks a test in which only one goroutine uses a store: a short run under the race detector, which makes it ten times as
// long and has nothing to find in it, skips it. The same test runs without the detector, and under it if the run is not short.
func OneGoroutine(t testing.TB) {
	t.Helper()
	if Enabled && testing.Short() {
		t.Skip("one goroutine, nothing for the race detector")
	}
}
