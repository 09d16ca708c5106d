package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/fuzz"
	"github.com/ebbkv/ebb/internal/racetest"
)

func TestBitflipReportsAsJSON(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	status, out, text := try("bitflip", "-every", "997", "-bits", "1", "-shapes", "cut,tree",
		"-damage", "flip,mix", "-json")
	require.Zero(t, status, text)
	var r fuzz.RotReport
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Len(t, r.Shapes, 2)
	require.NotZero(t, r.Shapes["tree"].Flips)
	require.NotZero(t, r.Shapes["cut"].Damages["mix"][fuzz.Refused])
	require.Equal(t, []string{}, r.Failures)
	require.Contains(t, text, "blind spot")

	status, out, text = try("bitflip", "-shapes", "families", "-damage", "back", "-json")
	require.Zero(t, status, text)
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.NotZero(t, r.Shapes["families"].BlindVersions)
	require.Contains(t, text, "earlier versions of segments")

	status, _, text = try("bitflip", "-every", "9973", "-shapes", "tree", "-damage", "flip", "-min",
		"1000000")
	require.Equal(t, 1, status)
	require.Contains(t, text, "want at least 1000000")
}

func TestBitflipReplaysALine(t *testing.T) {
	racetest.OneGoroutine(t)
	status, out, _ := try("bitflip", "tree app.ebb cut 0 0")
	require.Zero(t, status)
	require.Contains(t, out, "anew, at commit 1 of 5")
	status, _, _ = try("bitflip", "tree app.ebb melt 1 1")
	require.Equal(t, 1, status)
}
