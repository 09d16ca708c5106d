package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/fuzz"
	"github.com/ebbkv/ebb/internal/racetest"
)

func TestInterleaveReportsAsJSONAndReplays(t *testing.T) {
	racetest.NotQuick(t)
	status, out, text := try("interleave", "-sample", "2", "-seed", "3", "-json", "-min", "40")
	require.Zero(t, status, text)
	var r fuzz.InterleaveReport
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, 42, r.Played)
	status, _, _ = try("interleave", "-sample", "1", "-min", "1000")
	require.Equal(t, 1, status)
	status, out, _ = try("interleave", "commit drop abab")
	require.Zero(t, status)
	require.Equal(t, "survived\n", out)
	status, _, _ = try("interleave", "commit dance abab")
	require.Equal(t, 1, status)
}
