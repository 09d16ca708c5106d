package txn

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
)

// Histories under Options.MaxBytes also hold snapshots and change the bound in each session.

// heldState is a snapshot, and the rows that it shows until it ends.
type heldState struct {
	tx    *Tx
	trees map[TreeID]map[string]uint64
}

// beside begins a snapshot now and then, or ends one.
func (r *fullRun) beside() {
	if r.more == nil {
		return
	}
	switch n := r.more.IntN(120); {
	case n == 0 && len(r.held) < 3:
		tx, err := r.s.Begin(nil, false)
		require.NoError(r.t, err)
		trees := map[TreeID]map[string]uint64{}
		for id, m := range r.trees {
			trees[id] = maps.Clone(m)
		}
		r.held = append(r.held, heldState{tx, trees})
		r.stats.held++
	case n == 1 && len(r.held) > 0:
		r.releaseSnapshots(len(r.held) - 1)
	}
}

// releaseSnapshots checks all snapshots but the first n, in any order, and ends them.
func (r *fullRun) releaseSnapshots(n int) {
	for len(r.held) > n {
		i := r.more.IntN(len(r.held))
		r.requireSees(r.held[i].tx, r.held[i].trees, "snapshot")
		r.held[i].tx.Rollback()
		r.held[i] = r.held[len(r.held)-1]
		r.held = r.held[:len(r.held)-1]
	}
}

// otherBound changes MaxBytes for the next session: it may be below the bytes in use.
func (r *fullRun) otherBound(used int64) {
	if r.more == nil {
		return
	}
	switch r.more.IntN(4) {
	case 0:
		r.o.MaxBytes = max(used/2+int64(r.more.IntN(int(used))), 1<<20)
	case 1:
		r.o.MaxBytes = 0
	case 2:
		r.o.MaxBytes = 4*r.o.SegmentSize + int64(1<<20+r.more.IntN(12<<20))
	}
	r.logf("bound %d, used %d", r.o.MaxBytes, used)
}

// getOut deletes everything, on a disk that may be full, and requires that all space is to be had
// again.
func (r *fullRun) getOut() {
	r.releaseSnapshots(0)
	for id := range r.trees {
		require.NoError(r.t, r.deleteAll(id))
	}
	for range 3 {
		require.NoError(r.t, r.s.Checkpoint(r.t.Context()))
		require.NoError(r.t, r.deleteAll(8)) // changes nothing, but reaps
	}
	r.requireContents("after all was deleted")
	r.sound("after all was deleted")
	require.Zero(r.t, r.s.Stats().PinnedBytes)
	require.Less(r.t, r.s.pg.Alloc.UsedPages(), uint64(64))
}

// deleteAll is tried again after a checkpoint, which may have to make room for the log.
func (r *fullRun) deleteAll(id TreeID) (err error) {
	for range 3 {
		var tx *Tx
		tx, err = r.s.Begin(nil, true)
		require.NoError(r.t, err)
		_, err = tx.DeleteRange(id, nil, nil)
		if err == nil {
			err = tx.Commit(Sync)
		}
		tx.Rollback()
		if err == nil {
			clear(r.trees[id])
			return nil
		}
		require.ErrorIs(r.t, err, ErrNoSpace)
		require.NoError(r.t, r.s.Checkpoint(r.t.Context()))
	}
	return err
}

// TestHistoriesOnADiskAndUnderABound: as TestHistoriesOnADiskThatIsStillFull, with MaxBytes, which
// is reached or not, and is another one in the next session, and with snapshots that are held.
// Nothing that was acknowledged is lost, no open is refused, deletes are possible, and in the end
// all space comes back.
func TestHistoriesOnADiskAndUnderABound(t *testing.T) {
	racetest.NotQuick(t)
	historiesOnADisk(t, []uint64{1, 2, 3, 216}[:racetest.Sample(4, 2)], true)
}

// TestLogIsBoundWhereTheFileAloneIsPastMaxBytes: a bound that is lower than in the session before
// leaves nothing for the log, which is not the same as no bound.
func TestLogIsBoundWhereTheFileAloneIsPastMaxBytes(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := fullOptions(disk)
	s := mustOpen(t, o)
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(9))
		for i := range 4000 {
			putRow(t, tx, i)
		}
	})
	require.NoError(t, s.Checkpoint(t.Context()))
	update(t, s, func(tx *Tx) { // so few that Close leaves the holes
		for i := 1000; i < 1400; i++ {
			mustDelete(t, tx, 9, fmt.Appendf(nil, "k%06d", i))
		}
	})
	require.NoError(t, s.Close())
	o.MaxBytes, o.CheckpointBytes = disk.Used()/2, 0
	s = openTest(t, "/a.ebb", o)
	used := disk.Used()
	tx, err := s.Begin(nil, true)
	require.NoError(t, err)
	for range 20_000 { // of one row: no page is needed, but 20 MB of log
		if _, err = tx.Put(9, []byte("k000000"), make([]byte, 900), 0); err != nil {
			break
		}
	}
	tx.Rollback()
	require.ErrorIs(t, err, ErrNoSpace)
	require.Less(t, disk.Used(), used+4<<20, "the first segments of a log, and the slack")
	update(t, s, func(tx *Tx) { // deletes go on
		for i := range 2000 {
			mustDelete(t, tx, 9, fmt.Appendf(nil, "k%06d", i))
		}
	})
}

// TestLogIsBoundByMaxBytes: the record of one transaction that needs no pages may not exceed it, and
// refused transactions do not add up.
func TestLogIsBoundByMaxBytes(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := fullOptions(disk)
	o.MaxBytes, o.CheckpointBytes = 16<<20, 0
	s := openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(9))
		putRow(t, tx, 0)
	})
	for range 5 {
		tx, err := s.Begin(nil, true)
		require.NoError(t, err)
		for range 30_000 {
			if _, err = tx.Put(9, []byte("k000000"), make([]byte, 900), 0); err != nil {
				break
			}
		}
		tx.Rollback()
		require.ErrorIs(t, err, ErrNoSpace)
		require.ErrorContains(t, err, "the log has")
		require.LessOrEqual(t, disk.Used(), o.MaxBytes)
	}
	update(t, s, func(tx *Tx) { putRow(t, tx, 1) })
}

// TestCheckpointBytesLeaveRoomUnderMaxBytes: the log keeps for itself what starts a checkpoint; if
// that is more than the whole bound, nothing is left for rows.
func TestCheckpointBytesLeaveRoomUnderMaxBytes(t *testing.T) {
	o := testOptions(crashfs.New(crashfs.Options{}))
	o.MaxBytes, o.CheckpointBytes = 16<<20, 64<<20
	s := openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	for i := range 60 {
		update(t, s, func(tx *Tx) {
			for j := range 100 {
				putRow(t, tx, 100*i+j)
			}
		})
	}
}
