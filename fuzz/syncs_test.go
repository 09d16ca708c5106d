package fuzz

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
)

// syncSites are found once: that takes seconds.
var syncSites = sync.OnceValues(SyncSites)

// TestEverySyncIsReached holds the syncs in the source against those that traces show.
func TestEverySyncIsReached(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	static, err := crashfs.StaticSyncSites(
		"../pager",
		"../wal",
		"../txn",
		"../btree",
		"../cf",
		"../ttl",
		"../kv",
	)
	require.NoError(t, err)
	// No workload restores a backup: TestRestoreCrash of package txn fails without one of these syncs.
	static = slices.DeleteFunc(static, func(site string) bool {
		return strings.HasPrefix(site, "pager.(*Restorer).Finish")
	})
	seen, err := syncSites()
	require.NoError(t, err)
	seen = slices.DeleteFunc(slices.Clone(seen), func(site string) bool { return !isSync(site) })
	require.Equal(t, static, seen)
}

// TestEverySyncIsNeeded takes each sync away in turn: some crash must show that it is gone. The
// same must be true of one whose error is ignored, and of one that comes before what it shall
// make durable. A direct write that only asks whether there are direct writes is none: what it
// writes is durable already.
func TestEverySyncIsNeeded(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	sites, err := syncSites()
	require.NoError(t, err)
	require.Contains(t, sites, "wal.(*segmentPool).probeDirect/1")
	workloads, mistakes := Specials(), []string{"ignore", "early", "swallow"}
	if testing.Short() {
		mistakes = mistakes[:1]
	}
	for i, site := range sites {
		if site == "wal.(*segmentPool).probeDirect/1" || racetest.Quick() && i%9 != 0 {
			continue
		}
		workloads := workloads
		for k, mistake := range mistakes {
			// Each site gets the first mistake, some one of the others: crashtest syncs makes all of them.
			if mistake != "ignore" && (!isSync(site) || i%4 != k) {
				continue
			}
			t.Run(mistake+" "+site, func(t *testing.T) {
				f := Notices(mistake, site, workloads)
				require.NotNil(t, f, "no crash shows it")
				t.Log(f)
				// What shows one mistake is likely to show the next.
				workloads = append([]Workload{f.Case.Workload}, workloads...)
			})
		}
	}
}

// TestLostWritesAreSeen takes writes away. A note of the log says only what is known anyway, so
// nothing is lost without it; a main file filled anew is one write.
func TestLostWritesAreSeen(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, site := range []string{
		"pager.fill/2", "pager.(*mainFile).writeAt/1", "wal.(*segmentPool).newSegment/4",
		"wal.(*syncer).writeGroup/1", "wal.(*syncer).writeGroup/2",
	} {
		t.Run(site, func(t *testing.T) {
			f := Notices("drop", site, Specials())
			require.NotNil(t, f, "no crash shows it")
			t.Log(f)
		})
	}
}
