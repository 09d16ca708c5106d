package txn

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestReplaySpillsBesideItself: a small cache, several buffers that visit each leaf, and a disk that
// takes no more writes from any of them on. Open then returns the error, and the next one, with a
// disk that works, replays the log.
func TestReplaySpillsBesideItself(t *testing.T) {
	n := 10_000
	if racetest.Enabled || testing.Short() {
		n = 4_000
	}
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CacheBytes, o.CheckpointBytes, o.SegmentSize = 64<<20, 1<<40, 1<<20
	s := openTest(t, "/a.ebb", o)
	for from := 0; from < n; from += 50 {
		update(t, s, func(tx *Tx) {
			for i := from; i < from+50; i++ {
				key, value := logRow(i * 7919 % n)
				mustPut(t, tx, CatalogTree, key, value, 0)
			}
		})
	}
	killed := imageOf(t, disk)
	o.CacheBytes = int64(n) * 100 // half of the rows
	for _, inline := range []bool{false, true} {
		failed := 0
		for writes, opened := 0, false; !opened; writes += 1 + writes/2 {
			d := killed.Disk(crashfs.Options{})
			stuck := d.Inject(crashfs.Fault{Kinds: crashfs.KindWrite, N: writes, Sticky: true})
			o.FS, o.Inline = d, inline
			s, err := Open("/a.ebb", o)
			if opened = err == nil; !opened {
				require.ErrorIs(t, err, crashfs.ErrIO)
				failed++
			}
			stuck.Disarm()
			if !opened {
				s = mustOpen(t, o)
			}
			require.Equal(t, n/50, s.Recovery().CommitsReplayed)
			require.Greater(t, s.pg.Alloc.FileBytes(), 2*o.CacheBytes, "it does not fit")
			require.Less(t, s.pg.Alloc.FileBytes(), 4*o.CacheBytes, "freed pages are reused")
			requireLogRows(t, s, n)
			requireSound(t, s)
			require.NoError(t, s.Close())
		}
		require.Greater(t, failed, 3)
	}
}

// TestReplayReusesWhatItFrees: pages that replay freed while the goroutine was writing them, and
// large values from before its last spill, were free only after the replay. A log of 8 MB made a
// main file of 20 MB one of 47 MB, past MaxBytes and the disk.
func TestReplayReusesWhatItFrees(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CacheBytes, o.CheckpointBytes, o.SegmentSize = 64<<20, 1<<40, 4<<20
	s := openTest(t, "/a.ebb", o)
	rnd := rand.New(rand.NewPCG(1, 2))
	const n, rounds = 4_000, 30
	for round := range rounds {
		update(t, s, func(tx *Tx) {
			for range n / 10 {
				mustPut(t, tx, CatalogTree, fmt.Appendf(nil, "row %06d", rnd.IntN(n)), make([]byte, 150), 0)
			}
			for i := range 8 {
				mustPut(t, tx, CatalogTree, fmt.Appendf(nil, "large %d", i), make([]byte, 9000+round), 0)
			}
		})
	}
	killed := imageOf(t, disk)
	var want map[string]string
	view(t, s, func(tx *Tx) { want = contents(t, tx, CatalogTree) })
	o.CacheBytes = 600 << 10 // a buffer of 200 KiB
	for _, inline := range []bool{false, true} {
		o.FS, o.Inline = killed.Disk(crashfs.Options{}), inline
		again := openTest(t, "/a.ebb", o)
		require.Equal(t, rounds, again.Recovery().CommitsReplayed)
		view(t, again, func(tx *Tx) { require.Equal(t, want, contents(t, tx, CatalogTree)) })
		used, size := again.pg.Alloc.UsedPages(), uint64(again.pg.Alloc.FileBytes())/4096
		require.Less(t, size, 2*used, "pages of the file, and those in use")
	}
}

// TestFaultsOfReplay: each write, sync and read of a recovery fails in turn, or a write is short. The
// next one finds all commits. The log has operations of all kinds, and large values.
func TestFaultsOfReplay(t *testing.T) {
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CacheBytes, o.CheckpointBytes, o.SegmentSize = 64<<20, 1<<40, 1<<20
	s := openTest(t, "/a.ebb", o)
	rnd := rand.New(rand.NewPCG(3, 4))
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	for i := range 12 {
		tx, err := s.Begin(t.Context(), true)
		require.NoError(t, err)
		if i%2 == 0 {
			tx.SetDurability(NoSync) // large values are in the log
		}
		for range 100 {
			id, key := []TreeID{CatalogTree, 9}[rnd.IntN(2)], fmt.Appendf(nil, "key %04d", rnd.IntN(2000))
			_, err := tx.Put(id, key, make([]byte, rnd.IntN(1000)), 1)
			require.NoError(t, err)
			_, err = tx.Delete(id, fmt.Appendf(nil, "key %04d", rnd.IntN(2000)))
			require.NoError(t, err)
		}
		_, err = tx.Put(9, fmt.Appendf(nil, "large %d", i%3), make([]byte, largeValue+i), 0)
		require.NoError(t, err)
		_, err = tx.DeleteRange(CatalogTree, []byte("key 0100"), []byte("key 0200"))
		require.NoError(t, err)
		if i == 8 {
			require.NoError(t, tx.Clear(CatalogTree))
		}
		require.NoError(t, tx.Commit(NoSync))
	}
	killed := imageOf(t, disk)
	want := map[TreeID]map[string]string{}
	view(t, s, func(tx *Tx) {
		want[CatalogTree], want[9] = contents(t, tx, CatalogTree), contents(t, tx, 9)
	})
	o.CacheBytes = 600 << 10
	for _, f := range []crashfs.Fault{
		{Kinds: crashfs.KindWrite},
		{Kinds: crashfs.KindWrite, Sticky: true, Err: vfs.ErrNoSpace},
		{Kinds: crashfs.KindWrite, Do: crashfs.Short, Err: crashfs.ErrIO},
		{Kinds: crashfs.KindWrite, Do: crashfs.Short},
		{Kinds: crashfs.KindWrite, Do: crashfs.Zero},
		{Kinds: crashfs.KindRead},
		{Do: crashfs.Gate},
	} {
		for passed := false; !passed; f.N += 1 + f.N/racetest.Sample(4, 1) {
			o.FS = killed.Disk(crashfs.Options{})
			fault := o.FS.(*crashfs.Disk).Inject(f)
			again, err := Open("/a.ebb", o)
			fault.Disarm()
			passed = fault.Fired() == 0
			if err != nil {
				require.NotErrorIs(t, err, badfile.ErrCorrupt, "%+v", f)
				again, err = Open("/a.ebb", o)
			}
			require.NoError(t, err, "%+v", f)
			require.Equal(t, 13, again.Recovery().CommitsReplayed)
			view(t, again, func(tx *Tx) {
				require.Equal(t, want[CatalogTree], contents(t, tx, CatalogTree), "%+v", f)
				require.Equal(t, want[9], contents(t, tx, 9), "%+v", f)
			})
			requireSound(t, again)
			require.NoError(t, again.Close())
		}
	}
}
