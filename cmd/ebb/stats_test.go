package main

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/kv"
)

// TestLiveStatsOfALockedStore tells of a store that another command cannot open, and of the process
// that holds it.
func TestLiveStatsOfALockedStore(t *testing.T) {
	racetest.NotQuick(t)
	s := storePath(t)
	db, err := kv.Open(s, nil)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.Put([]byte("k"), make([]byte, 10_000)))
	require.NoError(t, db.Checkpoint(t.Context()))
	look := object(t, good(t, "stats", s, "--live", "--json"))
	stats := db.Stats()
	require.EqualValues(t, stats.FileBytes, look["file_bytes"])
	require.Equal(t, false, look["clean"])
	require.Contains(t, good(t, "stats", s, "--live"), "log_bytes")
	for _, command := range []string{"check", "dump", "pages"} {
		a := ebb(t, command, s)
		require.Equal(t, exitError, a.code)
		require.Contains(t, a.stderr, "ebb stats STORE --live")
		require.Contains(t, a.stderr, "ebb restore")
	}
	if runtime.GOOS == "linux" {
		require.Equal(t, "this process", look["holder"])
		require.Contains(t, ebb(t, "check", s).stderr, "this process")
	}
	writeFile(t, s+"-text", "no store")
	require.Equal(t, exitError, ebb(t, "stats", s+"-text", "--live").code)
	require.Equal(t, exitError, ebb(t, "stats", s+"-absent", "--live").code)
}
