package kv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHalvesTakeTurnsUnlessTheRecordIsSubmittedEarly: groups stay whole while their record is submitted
// before the apply. A write that runs alone does not change that.
func TestHalvesTakeTurnsUnlessTheRecordIsSubmittedEarly(t *testing.T) {
	for _, c := range []struct {
		here, inFlight int
		ahead          bool
		enough         bool
	}{
		{30, 30, false, true}, {30, 30, true, false}, {40, 40, true, true}, {20, 60, true, false}, {maxGroup, 0, true, true}, {16, 15, false, false},
	} {
		q := writeQueue{queue: make([]*writeRequest, c.here-1), inFlight: c.inFlight}
		q.restoreQueue(&writeRequest{size: 2, submitted: c.ahead})
		q.inFlight, q.returning = c.inFlight, 0
		require.Equal(t, c.enough, q.groupComplete(), "%+v", c)
		q.restoreQueue(&writeRequest{size: 1})
		require.Equal(t, c.ahead, q.submittedEarly)
	}
}
