package txn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// Values that the log names, and does not repeat.

// long is a value that the log of testOptions names; each seed gives another one.
func long(seed int) []byte {
	b := make([]byte, 20_000)
	rnd := rand.New(rand.NewPCG(uint64(seed), 1))
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rnd.Uint64())
	}
	return b
}

func putLong(t *testing.T, s *Store, key string, seed int) {
	t.Helper()
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, CatalogTree, []byte(key), long(seed), int64(seed))
	})
}

// requireLong holds the store against the seeds of the values that it should have.
func requireLong(t *testing.T, s *Store, want map[string]int) {
	t.Helper()
	tx := begin(t, s, false)
	defer tx.Rollback()
	require.EqualValues(t, len(want), tx.Rows(CatalogTree))
	for key, seed := range want {
		value, tag, found, err := tx.Get(CatalogTree, []byte(key))
		require.NoError(t, err)
		require.True(t, found, key)
		require.EqualValues(t, seed, tag)
		require.True(t, bytes.Equal(long(seed), value), key)
	}
}

// onCrash opens what a power cut, and a killed process, leave of the disk as it is now. The
// recovery is crashed at each of its steps, too, or at every so many.
func onCrash(t *testing.T, disk *crashfs.Disk, o Options, every int, look func(s *Store)) {
	t.Helper()
	const profiles = crashfs.None | crashfs.Kill | crashfs.Size
	open := func(d *crashfs.Disk) {
		o.FS = d
		s := mustOpen(t, o)
		look(s)
		requireSound(t, s)
		require.NoError(t, s.Close())
	}
	for im := range disk.Images(crashfs.ImageOptions{Profiles: profiles, From: disk.Len()}) {
		d := im.Disk(crashfs.Options{})
		open(d)
		for second := range d.Images(crashfs.ImageOptions{Profiles: profiles, Every: every}) {
			open(second.Disk(crashfs.Options{}))
		}
	}
}

func TestNamedValueIsWrittenOnceAndThereAfterACrash(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CheckpointBytes = 1 << 30
	s := openTest(t, "/a.ebb", o)
	want := map[string]int{}
	for i := range 8 {
		key := fmt.Sprint("k", i%5)
		putLong(t, s, key, i)
		want[key] = i
	}
	require.Less(t, s.log.Volume()-s.checkpointer.logSince.Load(), int64(2*len(long(0))),
		"the log has the values")
	onCrash(t, disk, o, 1, func(s *Store) { requireLong(t, s, want) })
}

// TestReferencedValueStaysUntilACheckpoint overwrites and deletes named values, in the transaction that
// put them and later, and puts others: none of the pages may be used again while a crash leads back
// to records that name them.
func TestReferencedValueStaysUntilACheckpoint(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CheckpointBytes = 1 << 30
	s := openTest(t, "/a.ebb", o)
	want := map[string]int{}
	for round := range 3 {
		before := s.pg.Alloc.Pages()
		for i := range 6 {
			seed := 100*round + 10*i
			update(t, s, func(tx *Tx) {
				for k := range 2 {
					mustPut(t, tx, CatalogTree, []byte("twice"), long(seed+k), int64(seed+k))
				}
				mustDelete(t, tx, CatalogTree, []byte("gone"))
			})
			putLong(t, s, "gone", seed)
			want["twice"], want["gone"] = seed+1, seed
			onCrash(t, disk, o, 1, func(s *Store) { requireLong(t, s, want) })
		}
		if round > 0 {
			require.InDelta(
				t,
				before,
				s.pg.Alloc.Pages(),
				30,
				"the space of 16 values from before the checkpoint was not used again",
			)
		}
		require.NoError(t, s.Checkpoint(t.Context()))
		reclaimEverything(t, s)
	}
}

// TestRolledBackValueFreesItsSpaceAtOnce: no record names it.
func TestRolledBackValueFreesItsSpaceAtOnce(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	putLong(t, s, "k", 1)
	pages := s.pg.Alloc.Pages()
	for i := range 10 {
		tx, err := s.Begin(nil, true)
		require.NoError(t, err)
		if i%2 == 0 {
			sp := tx.Savepoint()
			mustPut(t, tx, CatalogTree, []byte("k"), long(2), 2)
			require.NoError(t, tx.RollbackTo(sp))
			require.Less(t, tx.Bytes(), int64(100))
		}
		mustPut(t, tx, CatalogTree, []byte("k"), long(3), 3)
		require.Greater(t, tx.Bytes(), int64(20_000), "named values count")
		tx.Rollback()
	}
	require.Less(t, s.pg.Alloc.Pages(), pages+20)
	requireLong(t, s, map[string]int{"k": 1})
}

// TestReferencedValueIsTheOneOfItsRecord: a value was rolled back, and the next one of its length got
// its extent, in the same epoch. A main file that lacks the second write, because a disk lost it or
// because it was copied before, showed the value that was rolled back.
func TestReferencedValueIsTheOneOfItsRecord(t *testing.T) {
	disk := vfs.NewMemory()
	o := testOptions(disk)
	o.CheckpointBytes = 1 << 30
	s := openTest(t, "/a.ebb", o)
	putLong(t, s, "k", 1)
	tx := begin(t, s, true)
	_, err := tx.Put(CatalogTree, []byte("k"), long(2), 2)
	require.NoError(t, err)
	tx.Rollback()
	before := copyFiles(t, disk)
	putLong(t, s, "k", 3)
	for _, readOnly := range []bool{false, true} {
		o := testOptions(copyFiles(t, disk))
		o.ReadOnly = readOnly
		again := mustOpen(t, o)
		requireLong(t, again, map[string]int{"k": 3})
		require.NoError(t, again.Close())
		o.FS = copyFiles(t, disk)
		copyFile(t, before, o.FS, "/a.ebb")
		_, err = Open("/a.ebb", o)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
		require.ErrorContains(t, err, "not the large value that the log refers to")
	}
}

// TestValueOfACommitThatWaitsForNoSyncIsInTheLog: its record may survive a power cut that takes
// what is not synced.
func TestValueOfACommitThatWaitsForNoSyncIsInTheLog(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CheckpointBytes = 1 << 30
	o.SegmentSize, o.LeastRoom = 256<<10, 256<<10 // The commit prepares no segment.
	s := openTest(t, "/a.ebb", o)
	tx := begin(t, s, true)
	tx.SetDurability(NoSync)
	_, err := tx.Put(CatalogTree, []byte("lazy"), long(1), 1)
	require.NoError(t, err)
	syncs := disk.Count(crashfs.KindSyncs)
	require.NoError(t, tx.Commit(NoSync))
	require.Equal(t, syncs, disk.Count(crashfs.KindSyncs))
	require.Greater(t, int64(s.log.End())-s.checkpointer.logSince.Load(), int64(len(long(1))))

	tx, err = s.Begin(nil, true) // the caller has not set it: the commit syncs the value all the same
	require.NoError(t, err)
	mustPut(t, tx, CatalogTree, []byte("late"), long(2), 2)
	require.NoError(t, tx.Commit(NoSync))
	require.Greater(t, disk.Count(crashfs.KindSyncs), syncs)
	for im := range disk.Images(crashfs.ImageOptions{
		Profiles: crashfs.Reorder | crashfs.None | crashfs.Kill, From: disk.Len(), Random: 20,
	}) {
		o.FS = im.Disk(crashfs.Options{})
		s := mustOpen(t, o)
		tx := begin(t, s, false)
		for key, seed := range map[string]int{"lazy": 1, "late": 2} {
			value, _, found, err := tx.Get(CatalogTree, []byte(key))
			require.NoError(t, err)
			require.True(t, !found || bytes.Equal(long(seed), value))
		}
		tx.Rollback()
		require.NoError(t, s.Close())
	}
}

// TestFailedSyncOfAReferencedValueIsFinal: the commit is not in the log, for certain, and no checkpoint
// counts on what was not synced.
func TestFailedSyncOfAReferencedValueIsFinal(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	s := mustOpen(t, o)
	putLong(t, s, "k", 1)
	epoch := s.pg.LastMeta().Epoch
	in := disk.Inject(crashfs.Fault{Do: crashfs.Gate})
	tx := begin(t, s, true)
	mustPut(t, tx, CatalogTree, []byte("k"), long(2), 2)
	err := tx.Commit(Sync)
	require.ErrorIs(t, err, ErrFailed)
	require.NotErrorIs(t, err, ErrUnknown)
	require.Equal(t, 1, in.Fired())
	require.ErrorIs(t, s.Checkpoint(t.Context()), ErrFailed)
	require.ErrorIs(
		t,
		s.pg.WriteMeta(s.pg.LastMeta()),
		crashfs.ErrIO,
		"a sync after the failed one would tell of success",
	)
	require.ErrorIs(t, s.pg.SyncExtents(), crashfs.ErrIO)
	require.Equal(t, epoch, s.pg.LastMeta().Epoch)
	require.Error(t, s.Close())
	onCrash(t, disk, testOptions(nil), 1, func(s *Store) { requireLong(t, s, map[string]int{"k": 1}) })
}

// TestReferencedValuesStartCheckpoints as those in the log do: until then their space cannot be used
// again.
func TestReferencedValuesStartCheckpoints(t *testing.T) {
	o := testOptions(vfs.NewMemory())
	o.CheckpointBytes = 10 * int64(len(long(0)))
	s := openTest(t, "/a.ebb", o)
	for i := range 100 {
		putLong(t, s, "k", i)
	}
	require.InDelta(t, 10, s.checkpointer.count.Load(), 2)
	require.Less(t, s.pg.Alloc.FileBytes(), 8*o.CheckpointBytes)
}

// TestReferencedValuesOfALongLog recovers from a log that no batch holds: the values are known before
// the first page is written.
func TestReferencedValuesOfALongLog(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CheckpointBytes, o.CacheBytes = 1<<30, 64<<20
	s := openTest(t, "/a.ebb", o)
	want := map[string]int{}
	for i := range 30 {
		update(t, s, func(tx *Tx) {
			for k := range 40 {
				_, err := tx.Put(9, fmt.Appendf(nil, "%04d", (i*40+k)*7919%10_000), make([]byte, 500), 0)
				if isNoTree(err) {
					require.NoError(t, tx.Create(9))
				} else {
					require.NoError(t, err)
				}
			}
		})
		key := fmt.Sprint("k", i%7)
		putLong(t, s, key, i)
		want[key] = i
	}
	recovered := 0
	o.CacheBytes = minCacheBytes
	onCrash(t, disk, o, 100, func(s *Store) {
		if recovered == 0 {
			require.EqualValues(t, 60, s.Recovery().CommitsReplayed)
		}
		recovered++
		requireLong(t, s, want)
	})
}

// TestReferencedValueOfALaterEpoch: a bulk load that fails ends its epoch, and recovery does not know
// how often that happened.
func TestReferencedValueOfALaterEpoch(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	s := openTest(t, "/a.ebb", o)
	putLong(t, s, "a", 1)
	for range 5 {
		_, err := s.bulkLoad(t.Context(), create(9), 9, func(yield func(k, v []byte) bool) {
			for k, v := range wideRows(100) {
				_ = yield(k, v)
			}
			_ = yield([]byte{0}, nil)
		})
		require.ErrorIs(t, err, ErrOrder)
	}
	putLong(t, s, "b", 2)
	require.Greater(t, s.epoch, s.durable+2)
	born := s.epoch
	onCrash(t, disk, o, 1, func(s *Store) {
		require.Greater(t, s.durable, born,
			"pages of the recovery would pass for those of the session before")
		requireLong(t, s, map[string]int{"a": 1, "b": 2})
	})
}

// TestReferencedValuesInAReadOnlyOpen replays a log in memory.
func TestReferencedValuesInAReadOnlyOpen(t *testing.T) {
	disk := vfs.NewMemory()
	o := testOptions(disk)
	o.CheckpointBytes = 1 << 30
	s := openTest(t, "/a.ebb", o)
	for i := range 5 {
		putLong(t, s, fmt.Sprint("k", i%3), i)
	}
	o = testOptions(copyFiles(t, disk))
	o.ReadOnly = true
	read := mustOpen(t, o)
	requireLong(t, read, map[string]int{"k0": 3, "k1": 4, "k2": 2})
	requireSound(t, read)
	require.NoError(t, read.Close())
}

// nextRedo is the head of the redo of the commit that follows.
func nextRedo(s *Store) []byte {
	payload := make([]byte, redoHead)
	binary.LittleEndian.PutUint64(payload, s.head.seq+1)
	return payload
}

// openForged closes s with a record of this payload at the end of its log, and opens what is on its
// disk then.
func openForged(t *testing.T, s *Store, disk vfs.FS, payload []byte) (*Store, error) {
	t.Helper()
	_, err := s.log.Append(payload, true)
	require.NoError(t, err)
	require.NoError(t, s.log.Sync())
	image := testOptions(copyFiles(t, disk))
	_ = s.fail(errors.New("a record that is not the store's own"))
	require.Error(t, s.Close())
	return Open("/a.ebb", image)
}

// TestInvalidValueReferencesInTheLog replays records that no session of ours has written: each is damage
// with a place.
func TestInvalidValueReferencesInTheLog(t *testing.T) {
	const size = 20_000
	free := func(s *Store) pager.Pgid { return pager.Pgid(s.pg.Alloc.Pages()) }
	for name, test := range map[string]struct {
		at    func(s *Store) pager.Pgid
		epoch func(s *Store) pager.Epoch
		size  int
		twice bool
		want  string
	}{
		"sound":     {at: free, size: size},
		"in use":    {at: func(*Store) pager.Pgid { return 2 }, size: size, want: "in use"},
		"meta page": {at: func(*Store) pager.Pgid { return 1 }, size: size, want: "the log names"},
		"behind the file": {at: func(*Store) pager.Pgid { return 1 << 40 }, size: size,
			want: "the log names"},
		"across the end": {at: func(s *Store) pager.Pgid { return free(s) + 3 }, size: 1 << 29,
			want: "the log names"},
		"twice":            {at: free, size: size, twice: true, want: "in use"},
		"fits into a page": {at: free, size: 100, want: "named value of 100 bytes"},
		"of no epoch": {at: free, size: size, epoch: func(*Store) pager.Epoch { return 0 },
			want: "epoch"},
		"of the last epoch": {at: free, size: size,
			epoch: func(*Store) pager.Epoch { return pager.MaxEpoch - 1 }, want: "epoch"},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMemory()
			o := testOptions(disk)
			o.CheckpointBytes = 1 << 30
			s := mustOpen(t, o)
			update(t, s, func(tx *Tx) { // the file has room for some of the extents
				mustPut(t, tx, CatalogTree, []byte("k"), make([]byte, 1000), 0)
			})
			require.NoError(t, s.Checkpoint(t.Context()))
			place := extentPlace{ref: pager.Ref{Pgid: test.at(s), Epoch: s.epoch}, size: test.size}
			if test.epoch != nil {
				place.ref.Epoch = test.epoch(s)
			}
			payload := appendLogRef(nextRedo(s), CatalogTree, 0, []byte("named"), place)
			if test.twice {
				payload = appendLogRef(payload, CatalogTree, 0, []byte("again"), place)
			}
			again, err := openForged(t, s, disk, payload)
			if test.want != "" {
				require.ErrorIs(t, err, badfile.ErrCorrupt)
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			tx := begin(t, again, false)
			_, _, _, err = tx.Get(CatalogTree, []byte("named"))
			require.ErrorIs(t, err, badfile.ErrCorrupt, "it was never written")
			tx.Rollback()
			require.NoError(t, again.Close())
		})
	}
	require.Greater(t, size, tree.MaxInline(DefaultPageSize, len("named")))
}
