package kv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHalvesOfMoreThanAGroupTakeTurns: fewer writes share one transaction.
func TestHalvesOfMoreThanAGroupTakeTurns(t *testing.T) {
	for _, c := range []struct {
		here, inFlight int
		enough         bool
	}{{30, 30, false}, {40, 40, true}, {20, 60, false}, {maxGroup, 0, true}, {16, 15, false}} {
		q := writeQueue{queue: make([]*writeRequest, c.here-1), inFlight: c.inFlight}
		require.Equal(t, c.enough, q.groupComplete(), "%+v", c)
	}
}
