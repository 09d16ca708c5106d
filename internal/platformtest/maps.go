package platformtest

import (
	"math"
	"testing"
)

// CanMap is whether the main file can be read through a map of memory: not where addresses have 32
// bits.
const CanMap = math.MaxUint>>32 != 0

// NeedsMap skips a test of what is read through a map where the main file cannot be mapped.
func NeedsMap(t testing.TB) {
	t.Helper()
	if !CanMap {
		t.Skip("no map of the main file on this platform")
	}
}
