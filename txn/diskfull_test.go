package txn

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
)

// fullToTheEnd leaves the disk no free byte: the main file has released its preallocated space.
func fullToTheEnd(t *testing.T, s *Store, disk *crashfs.Disk) {
	t.Helper()
	_, err := s.checkpointer.giveSpaceBack()
	require.NoError(t, err)
	disk.SetCapacity(disk.Used())
}

// putOn puts a row of the catalog on a disk that may be full.
func putOn(t *testing.T, s *Store, key string) {
	t.Helper()
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, CatalogTree, []byte(key), make([]byte, 700), 0)
	})
}

// TestCheckpointNeedsNoSegment: a disk without space for a log segment does not prevent the
// checkpoint that frees space, nor the commits after it.
func TestCheckpointNeedsNoSegment(t *testing.T) {
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	s, want := closing(t, disk, false)
	fullToTheEnd(t, s, disk)
	volume := s.log.Volume()
	for i := range 3 {
		number := s.segmentAt()
		require.NoError(t, s.Checkpoint(t.Context()))
		require.Equal(t, number+1, s.segmentAt())
		key := fmt.Sprint("after ", i)
		putOn(t, s, key)
		want = append(want, key)
		require.Greater(t, s.log.Volume(), volume)
		volume = s.log.Volume()
		requireSound(t, s)
	}
	require.NoError(t, s.Checkpoint(t.Context()))
	number := s.segmentAt()
	require.NoError(t, s.Checkpoint(t.Context()))
	require.Equal(t, number, s.segmentAt(), "there is nothing to write")
	again := openStillFull(t, disk, s.o)
	for _, key := range want {
		requireRow(t, again, key)
	}
	require.NoError(t, again.Close())
	require.NoError(t, s.Close())
}

// TestLogBehindACheckpointInPlaceIsMissed: the session of the log has a meta page of its own, so
// that recovery does not take a lost log for a clean close.
func TestLogBehindACheckpointInPlaceIsMissed(t *testing.T) {
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	s, _ := closing(t, disk, false)
	fullToTheEnd(t, s, disk)
	require.NoError(t, s.Checkpoint(t.Context()))
	putOn(t, s, "after")
	again := imageOf(t, disk).Disk(crashfs.Options{})
	names, err := again.List("/")
	require.NoError(t, err)
	for _, name := range names {
		if name != "a.ebb" {
			require.NoError(t, again.Remove("/"+name))
		}
	}
	_, err = Open("/a.ebb", testOptions(again))
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.NoError(t, s.Close())
}

// inPlace runs two checkpoints without space for a segment, with a commit after each. acked maps a
// row to the number of disk operations at its acknowledgement.
func inPlace(t *testing.T) (disk *crashfs.Disk, from int, want []string, acked map[string]int) {
	t.Helper()
	disk, acked = crashfs.New(crashfs.Options{}), map[string]int{}
	s, want := closing(t, disk, false)
	fullToTheEnd(t, s, disk)
	from = disk.Len()
	for i := range 2 {
		require.NoError(t, s.Checkpoint(t.Context()))
		key := fmt.Sprint("after ", i)
		putOn(t, s, key)
		acked[key] = disk.Len()
		want = append(want, key)
	}
	return disk, from, want, acked
}

// TestCrashesOfACheckpointInPlace: at every disk operation, and again after the store is reopened.
func TestCrashesOfACheckpointInPlace(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	disk, from, want, acked := inPlace(t)
	sure := func(point int) (n int) {
		for _, key := range want {
			if acked[key] <= point {
				n++
			}
		}
		return n
	}
	open := func(d *crashfs.Disk, least int, more bool) (seq int) {
		s := mustOpen(t, testOptions(d))
		seq = int(s.head.seq)
		require.GreaterOrEqual(t, seq, least)
		for _, key := range want[:seq] {
			requireRow(t, s, key)
		}
		requireSound(t, s)
		if more { // the log as recovery left it takes further commits
			putOn(t, s, "one more")
		}
		require.NoError(t, s.Close())
		return seq
	}
	images, every := 0, racetest.Sample(12, 400)
	for im := range disk.Images(crashfs.ImageOptions{From: from}) {
		d := im.Disk(crashfs.Options{})
		seq := open(d, sure(im.Point), false)
		for second := range d.Images(crashfs.ImageOptions{Profiles: crashfs.Kill | crashfs.None,
			Every: every}) {
			open(second.Disk(crashfs.Options{}), seq, true)
		}
		images++
	}
	require.Greater(t, images, 30)
}

// TestFaultsOfACheckpointInPlace: no failing operation loses a commit, and later commits are refused
// or acknowledged truthfully.
func TestFaultsOfACheckpointInPlace(t *testing.T) {
	racetest.OneGoroutine(t)
	for n := 0; ; n++ {
		disk := crashfs.New(crashfs.Options{})
		s, want := closing(t, disk, false)
		fullToTheEnd(t, s, disk)
		in := disk.Inject(crashfs.Fault{N: n, Kinds: crashfs.KindAll &^ crashfs.KindRead})
		failed := s.Checkpoint(t.Context())
		fired := in.Fired() > 0
		in.Disarm()
		tx, err := s.Begin(nil, true)
		if err == nil {
			if _, err = tx.Put(CatalogTree, []byte("more"), make([]byte, 700), 0); err == nil {
				err = tx.Commit(Sync)
			}
			tx.Rollback()
		}
		if err == nil {
			want = append(want, "more")
		} else {
			require.Error(t, failed, "fault %d", n)
		}
		again := openStillFull(t, disk, testOptions(disk))
		for _, key := range want {
			requireRow(t, again, key)
		}
		requireSound(t, again)
		require.NoError(t, again.Close())
		_ = s.Close()
		if !fired {
			require.NoError(t, failed)
			require.Greater(t, n, 8)
			return
		}
	}
}

// TestLogOfRolledBackPartsIsReset: transactions that were rolled back have left parts in the log,
// and no commit. A checkpoint frees their space all the same.
func TestLogOfRolledBackPartsIsReset(t *testing.T) {
	racetest.OneGoroutine(t)
	s, disk, _ := fullStore(t)
	putOn(t, s, "k")
	require.NoError(t, s.Checkpoint(t.Context()))
	disk.SetCapacity(disk.Used() + 2<<20)
	var err error
	for i := 0; err == nil; i++ {
		require.Less(t, i, 1000)
		tx := begin(t, s, true)
		tx.SetDurability(NoSync)
		for n := 0; n < 1500 && err == nil; n++ {
			_, err = tx.Put(9, []byte("the same"), make([]byte, 900), 0)
		}
		tx.Rollback()
	}
	require.ErrorIs(t, err, ErrNoSpace)
	tx := begin(t, s, true)
	tx.Rollback()
	require.Equal(t, s.checkpointer.logSince.Load(), s.log.Volume(),
		"the checkpoint that it waited for has given the log up")
	number := s.segmentAt()
	fullToTheEnd(t, s, disk)
	require.NoError(t, s.Checkpoint(t.Context()))
	require.Equal(t, number, s.segmentAt(), "there is nothing to write")
	putOn(t, s, "k")
	requireSound(t, s)
}

// TestDeletesContinueWhenTheLogIsFull: a commit without log space runs a checkpoint, which frees
// some, and the next commit succeeds.
func TestDeletesContinueWhenTheLogIsFull(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	s, disk, _ := fullStore(t)
	disk.SetCapacity(disk.Used() + 8<<20)
	n := untilFull(t, s, func(tx *Tx, i int) error {
		_, err := tx.Put(9, fmt.Appendf(nil, "k%06d", i), make([]byte, 900), 0)
		return err
	})
	require.Greater(t, n, 1000)
	for round := range 4 { // several times: more bytes than any log has space for
		refused := 0
		for i := 0; i < n; {
			tx, err := s.Begin(nil, true)
			require.NoError(t, err)
			key := fmt.Appendf(nil, "k%06d", i)
			if i%2 == round%2 {
				_, err = tx.Delete(9, key)
			} else {
				_, err = tx.Put(9, key, make([]byte, 700), 0)
			}
			if err == nil {
				err = tx.Commit(NoSync)
			}
			tx.Rollback()
			if err != nil {
				require.ErrorIs(t, err, ErrNoSpace)
				if refused++; i%2 != round%2 { // Puts need pages, too, which deletes have freed.
					require.NoError(t, s.Checkpoint(t.Context()))
				}
				require.Less(t, refused, 3, "round %d, row %d", round, i)
				continue
			}
			i, refused = i+1, 0
		}
	}
	requireSound(t, s)
}

// TestCommitsBesideCheckpointsInPlace: a notified committer may still use the log when the log is
// reset, and other committers wait for the reset.
func TestCommitsBesideCheckpointsInPlace(t *testing.T) {
	disk := crashfs.New(crashfs.Options{Direct: true, BlockSize: 512})
	o := testOptions(disk)
	o.Inline, o.CheckpointBytes, o.LeastRoom = false, 1<<30, 32<<10
	s := mustOpen(t, o)
	putOn(t, s, "k")
	disk.SetCapacity(disk.Used() + 1)
	var wg sync.WaitGroup
	var seqs [3]uint64
	for g := range seqs {
		wg.Go(func() {
			for i := range 300 {
				tx, err := s.Begin(nil, true)
				if !assert.NoError(t, err) {
					return
				}
				d := Durability((g + i) % 2)
				if _, err = tx.Put(CatalogTree, fmt.Append(nil, "k", g), fmt.Append(nil, i), 0); err == nil {
					err = tx.Commit(d)
				}
				tx.Rollback()
				if err == nil {
					seqs[g] = tx.Seq()
				} else if !assert.ErrorIs(t, err, ErrNoSpace) {
					return
				}
			}
		})
	}
	for range 100 {
		assert.NoError(t, s.Checkpoint(t.Context()))
		_ = s.Sync()
		s.Stats()
	}
	wg.Wait()
	require.NoError(t, s.Failed())
	s.checkpointer.background.wait()
	again := openStillFull(t, disk, o)
	require.GreaterOrEqual(t, again.head.seq, max(seqs[0], seqs[1], seqs[2]))
	requireSound(t, again)
	require.NoError(t, again.Close())
	require.NoError(t, s.Close())
}
