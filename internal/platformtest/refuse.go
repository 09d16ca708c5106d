package platformtest

import (
	"runtime"
	"slices"
	"testing"
)

// MayRefuse takes the result of a call that some systems, by their GOOS, may refuse: a test is
// skipped there if they have. Elsewhere an error ends it.
func MayRefuse(t testing.TB, err error, systems ...string) {
	t.Helper()
	switch {
	case err == nil:
	case slices.Contains(systems, runtime.GOOS):
		t.Skipf("not on %s: %v", runtime.GOOS, err)
	default:
		t.Fatal(err)
	}
}
