package txn

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
)

func putRow(t *testing.T, tx *Tx, i int) {
	mustPut(t, tx, 9, fmt.Appendf(nil, "k%06d", i), make([]byte, 900), 0)
}

// segmentAt is the number of the segment that the log ends in.
func (s *Store) segmentAt() int64 { return int64(s.log.End()) / s.segment }

// grown is a store whose main file is longer than it has to be, and whose log has no segment
// prepared, on a disk that has nothing left.
func grown(t *testing.T) (*Store, *crashfs.Disk) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.Inline, o.CacheBytes, o.CheckpointBytes = false, 64<<20, 64<<20
	s := openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	first := s.segmentAt()
	// A segment of which less than half is left has a spare, or a goroutine that makes one.
	prepares := func() bool {
		return s.log.Bytes() > (s.segmentAt()-first+1)*s.segment || int64(s.log.End())%s.segment > s.segment/2
	}
	for i := 0; !s.hasRoom(t) || prepares(); i++ {
		update(t, s, func(tx *Tx) {
			for j := range 20 {
				putRow(t, tx, 20*i+j)
			}
		})
	}
	disk.SetCapacity(disk.Used())
	return s, disk
}

// hasRoom says whether the main file has twelve segments more than it needs.
func (s *Store) hasRoom(t *testing.T) bool {
	require.NoError(t, s.lockWriter(t.Context()))
	defer s.unlockWriter()
	s.pg.Alloc.Growth.EndPreallocation()
	return s.pg.Alloc.FileBytes()-int64(s.pg.Alloc.Pages())*int64(s.pg.PageSize()) > 12*s.segment
}

// TestFullDiskReleasesPreallocationOfTheMainFile: what the file was given ahead of need goes to the log
// when the log needs it.
func TestFullDiskReleasesPreallocationOfTheMainFile(t *testing.T) {
	t.Run("commit", func(t *testing.T) {
		s, _ := grown(t)
		before := s.pg.Alloc.FileBytes()
		update(t, s, func(tx *Tx) {
			for i := range 2 * int(s.segment) / 1000 {
				putRow(t, tx, i)
			}
		})
		require.Less(t, s.pg.Alloc.FileBytes(), before)
	})
	t.Run("commit beside a checkpoint", func(t *testing.T) {
		s, disk := grown(t)
		before := s.pg.Alloc.FileBytes()
		require.True(t, tryLock(s.checkpointer.mu))
		tx := begin(t, s, true)
		for i := range 2 * int(s.segment) / 1000 {
			putRow(t, tx, i)
		}
		require.ErrorIs(t, tx.Commit(Sync), ErrNoSpace)
		require.Equal(t, before, s.pg.Alloc.FileBytes())
		<-s.checkpointer.mu
		disk.SetCapacity(0)
	})
	t.Run("checkpoint", func(t *testing.T) {
		s, _ := grown(t)
		require.NoError(t, s.Checkpoint(t.Context()))
	})
	t.Run("first change of a session", func(t *testing.T) {
		s, disk := grown(t)
		again := imageOf(t, disk).Disk(crashfs.Options{})
		disk.SetCapacity(0)
		o := s.o
		o.FS = again
		s = openTest(t, "/a.ebb", o)
		require.True(t, s.hasRoom(t))
		again.SetCapacity(again.Used())
		update(t, s, func(tx *Tx) { putRow(t, tx, 0) })
	})
}

// TestCheckpointOnAFullDiskReturnsItsError: that the disk is full is not the answer where
// something else stood in the way of room.
func TestCheckpointOnAFullDiskReturnsItsError(t *testing.T) {
	t.Run("context", func(t *testing.T) {
		s, _ := grown(t)
		require.True(t, tryLock(s.checkpointer.mu))
		defer func() { <-s.checkpointer.mu }()
		tx := begin(t, s, true)
		defer tx.Rollback()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.checkpointer.capture(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrNoSpace)
	})
	t.Run("failure", func(t *testing.T) {
		s, disk := grown(t)
		disk.Inject(crashfs.Fault{Kinds: crashfs.KindTruncate, Site: "pager.(*fileGrowth).truncateTo/1"})
		err := s.Checkpoint(t.Context())
		require.ErrorIs(t, err, ErrFailed)
		require.ErrorIs(t, err, crashfs.ErrIO)
		require.NotErrorIs(t, err, ErrNoSpace)
		disk.SetCapacity(0)
		require.ErrorIs(t, s.Close(), ErrFailed)
	})
	t.Run("failure before", func(t *testing.T) {
		s, disk := grown(t)
		before := s.pg.Alloc.FileBytes()
		_ = s.fail(crashfs.ErrIO)
		given, err := s.checkpointer.giveSpaceBack()
		require.ErrorIs(t, err, ErrFailed)
		require.False(t, given)
		require.Equal(t, before, s.pg.Alloc.FileBytes())
		disk.SetCapacity(0)
		require.ErrorIs(t, s.Close(), ErrFailed)
	})
}

// TestFirstChangeWithoutRoomForALog: under MaxBytes a rollback looks whether a checkpoint would
// make room, and there is no log yet.
func TestFirstChangeWithoutRoomForALog(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.MaxBytes = 64 << 20
	s := openTest(t, "/a.ebb", o)
	disk.SetCapacity(disk.Used() + 1)
	for range 2 {
		tx := begin(t, s, true)
		require.ErrorIs(t, tx.Create(9), ErrNoSpace)
		tx.Rollback()
	}
	disk.SetCapacity(0)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
}
