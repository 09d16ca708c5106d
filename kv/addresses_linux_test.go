package kv_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebbkv/ebb/kv"
)

// TestStoreWithoutAddressesForAMap: a process whose addresses are bounded, by ulimit -v for one,
// could not open any store, though one that is not mapped needs no more than its frames.
func TestStoreWithoutAddressesForAMap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.ebb")
	stat, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.ParseUint(strings.Fields(string(stat))[0], 10, 64)
	require.NoError(t, err)
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_AS, &before))
	// half of what a view of the file takes
	bound := unix.Rlimit{Cur: pages*uint64(os.Getpagesize()) + 2<<30, Max: before.Max}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_AS, &bound))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_AS, &before)) }()
	for _, want := range []string{"", "v"} {
		db, err := kv.Open(path, nil)
		require.NoError(t, err)
		if want == "" {
			require.NoError(t, db.Put([]byte("k"), []byte("v")))
		}
		got, err := db.Get([]byte("k"))
		require.NoError(t, err)
		require.Equal(t, "v", string(got))
		checkStore(t, db)
		require.NoError(t, db.Close())
	}
}
