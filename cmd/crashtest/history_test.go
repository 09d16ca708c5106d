package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/fuzz"
)

func TestHistoryReportsAsJSON(t *testing.T) {
	status, out, text := try("history", "-n", "6", "-ops", "200", "-seed", "2", "-json")
	require.Zero(t, status, text)
	var r fuzz.HistoriesReport
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.Equal(t, 6, r.Histories)
	require.NotZero(t, r.Commits)
}

func TestHistoryJudgesAFile(t *testing.T) {
	h, err := fuzz.Record(1, fuzz.HistoryOptions{Clients: 2, Ops: 50, Keys: 4})
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "h.json")
	write := func() {
		b, err := json.Marshal(h)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(name, b, 0o666))
	}
	write()
	status, out, _ := try("history", name)
	require.Zero(t, status)
	require.Contains(t, out, "serial")
	for i := range h.Events {
		h.Events[i].Seq++
	}
	write()
	status, _, _ = try("history", name)
	require.Equal(t, 1, status)
	status, _, _ = try("history", name+"x")
	require.Equal(t, 1, status)
}
