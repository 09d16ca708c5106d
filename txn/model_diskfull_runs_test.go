package txn

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
)

func runStillFull(t *testing.T, seed uint64, trace, bounded bool) *fullRun {
	rnd := rand.New(rand.NewPCG(seed, 77))
	r := &fullRun{t: t, rnd: rnd, trace: trace, trees: map[TreeID]map[string]uint64{8: {}, 9: {}, 10: {}}}
	r.disk = crashfs.New(crashfs.Options{Direct: true, BlockSize: 512})
	o := testOptions(r.disk)
	o.SegmentSize = int64(16<<10) << rnd.IntN(9)
	o.CacheBytes = int64(128<<10) << rnd.IntN(9)
	o.CheckpointBytes = []int64{0, 256 << 10, 1 << 20, 64 << 20}[rnd.IntN(4)]
	o.LeastRoom = []int64{0, 0, 16 << 10, 64 << 10}[rnd.IntN(4)]
	o.PageSize = []int{4096, 4096, 4096, 4096, 16384}[rnd.IntN(5)]
	o.NoDirect = rnd.IntN(3) == 0
	if rnd.IntN(3) == 0 {
		o.ManyFrom, o.ManyRows = 64, 100
	}
	if v := os.Getenv("EBB_NOT_INLINE"); v != "" {
		o.Inline = false
	}
	if bounded {
		r.more = rand.New(rand.NewPCG(seed, 78))
		o.MaxBytes = 4*o.SegmentSize + int64(1<<20+r.more.IntN(12<<20))
	}
	r.o = o
	s := mustOpen(t, o)
	r.s = s
	update(t, s, func(tx *Tx) {
		for id := range r.trees {
			require.NoError(t, tx.Create(id))
		}
	})
	for range rnd.IntN(60) {
		if err := r.commit(false); !bounded {
			require.NoError(t, err)
		}
	}
	require.NoError(t, s.Checkpoint(t.Context()))
	r.most = r.disk.Used() + int64(1<<20+rnd.IntN(6<<20)) + 2*o.SegmentSize
	r.disk.SetCapacity(r.most)
	r.logf(
		"options: segment %d cache %d checkpoint %d least %d page %d, most %d",
		o.SegmentSize,
		o.CacheBytes,
		o.CheckpointBytes,
		o.LeastRoom,
		o.PageSize,
		r.most,
	)
	for range 1 + rnd.IntN(3) {
		for range 1 + rnd.IntN(3) {
			r.fill()
			if rnd.IntN(2) == 0 {
				r.shrink(rnd.IntN(30))
			}
		}
		r.kill(os.Getenv("EBB_LOOSE") == "")
	}
	r.releaseSnapshots(0)
	if bounded {
		r.fill()
		r.getOut()
	}
	r.disk.SetCapacity(0)
	require.NoError(t, r.s.Close())
	return r
}

// TestHistoriesOnADiskThatIsStillFull runs those that once were refused, and some more;
// EBB_FULL_SEED=n EBB_FULL_FOR=10m others from n on.
func TestHistoriesOnADiskThatIsStillFull(t *testing.T) {
	racetest.NotQuick(t)
	historiesOnADisk(t, []uint64{5, 14, 58, 1020, 2195}[:racetest.Sample(5, 2)], false)
}

func historiesOnADisk(t *testing.T, seeds []uint64, bounded bool) {
	racetest.OneGoroutine(t)
	var until time.Time
	if v := os.Getenv("EBB_FULL_SEED"); v != "" {
		first, err := strconv.ParseUint(v, 10, 64)
		require.NoError(t, err)
		seeds = []uint64{first}
		if v := os.Getenv("EBB_FULL_FOR"); v != "" {
			d, err := time.ParseDuration(v)
			require.NoError(t, err)
			until = time.Now().Add(d)
		}
	}
	full, opened, asLogged, ahead, at, held := 0, 0, 0, 0, 0, 0
	for i := 0; i < len(seeds); i++ {
		t.Run(fmt.Sprint(seeds[i]), func(t *testing.T) {
			r := runStillFull(t, seeds[i], os.Getenv("EBB_TRACE") != "", bounded)
			full += r.stats.full
			opened += r.stats.opened
			asLogged += r.stats.asLogged
			ahead += r.stats.ahead
			at += r.stats.bounded
			held += r.stats.held
		})
		if time.Now().Before(until) {
			seeds = append(seeds, seeds[i]+1)
		}
	}
	t.Logf(
		"%d refused, %d of them by MaxBytes, %d opened, %d as logged, %d logged ahead, %d snapshots held",
		full,
		at,
		opened,
		asLogged,
		ahead,
		held,
	)
}
