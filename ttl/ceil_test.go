package ttl

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestInstantsRoundUpToTheLastMillisecond covers the whole range: the last instant that an expiry
// can name is one of it.
func TestInstantsRoundUpToTheLastMillisecond(t *testing.T) {
	for _, c := range []struct {
		name string
		t    time.Time
		ms   int64
		ok   bool
	}{
		{"epoch", time.Unix(0, 0), 0, true},
		{"a nanosecond later", time.Unix(0, 1), 1, true},
		{"before the epoch", time.Unix(-1, 999_000_001), 0, true},
		{"the last millisecond", time.Unix(math.MaxInt64/1000, 807_000_000), math.MaxInt64, true},
		{"one nanosecond past it", time.Unix(math.MaxInt64/1000, 807_000_001), math.MaxInt64, false},
		{"far past it", time.Unix(math.MaxInt64/1000+1, 0), math.MaxInt64, false},
	} {
		ms, ok := CeilMs(c.t)
		require.Equal(t, c.ok, ok, c.name)
		require.Equal(t, c.ms, ms, c.name)
	}
}
