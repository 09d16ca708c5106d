package txn

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestLargeValueRightAfterReopeningGetsPagesOfItsOwn tells the story of a store whose file had no
// hole as large as the value: the extent was put behind the end of the file before the free map of
// that region had been read, and the free map then counted the extent's pages as free, so that the
// next page of the same transaction was put into the extent.
func TestLargeValueRightAfterReopeningGetsPagesOfItsOwn(t *testing.T) {
	fs := vfs.NewMemory()
	o := testOptions(fs)
	s := mustOpen(t, o)
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, CatalogTree, []byte("a"), []byte("small"), 0)
	})
	require.NoError(t, s.Close())

	s = openTest(t, "/a.ebb", o)
	big := bytes.Repeat([]byte("x"), 200<<10)
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, CatalogTree, []byte("big"), big, 0)
	})
	require.NoError(t, s.Checkpoint(nil))
	tx := begin(t, s, false)
	defer tx.Rollback()
	v, _, found, err := tx.Get(CatalogTree, []byte("big"))
	require.NoError(t, err)
	require.True(t, found)
	require.True(t, bytes.Equal(big, v))
}

// TestLostMetaPageIsNamed damages the meta page of the last close. The other one asks for a log
// that is long gone; what the error names first is the page, not a segment that should not be
// there.
func TestLostMetaPageIsNamed(t *testing.T) {
	fsys := vfs.NewMemory()
	for range 2 {
		s := mustOpen(t, testOptions(fsys))
		update(t, s, func(tx *Tx) {
			mustPut(t, tx, CatalogTree, []byte("k"), []byte("v"), 0)
		})
		require.NoError(t, s.Close())
	}
	f, err := fsys.Open("/a.ebb", vfs.Write)
	require.NoError(t, err)
	var newest int64
	epochs := [2]byte{}
	for slot := range epochs {
		require.NoError(t, vfs.ReadFull(f, epochs[slot:slot+1], int64(slot)*4096+16))
	}
	if epochs[1] > epochs[0] {
		newest = 1
	}
	require.NoError(t, vfs.WriteFull(f, []byte{0xff}, newest*4096+2000))
	require.NoError(t, f.Close())
	_, err = Open("/a.ebb", testOptions(fsys))
	var bad *badfile.Error
	require.ErrorAs(t, err, &bad)
	require.True(t, bad.HasPgid)
	require.EqualValues(t, newest, bad.Pgid)
	require.ErrorContains(t, err, "log has to start")
}

// TestPagesFreedBesideACheckpointWaitForTheNextOne: a commit that comes while a checkpoint is
// written frees pages that this checkpoint can reach. They wait for the next one; were they used
// when this one is durable, a crash after that would find the state that it recovers from
// overwritten.
func TestPagesFreedBesideACheckpointWaitForTheNextOne(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	put := func(n int) {
		update(t, s, func(tx *Tx) {
			for i := range n {
				mustPut(t, tx, 9, []byte{byte(i)}, make([]byte, 900), 0)
			}
		})
	}
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	put(100)
	require.NoError(t, s.Checkpoint(t.Context()))
	put(1)

	require.NoError(t, lock(t.Context(), s.checkpointer.mu))
	c, err := s.checkpointer.capture(t.Context())
	require.NoError(t, err)
	put(100) // beside it
	require.NoError(t, s.checkpointer.write(c, nil))
	put(1) // the checkpoint's own hold on its state has ended: what was freed is looked at
	waiting := &s.reclaimer.waiting[uncaptured]
	require.NotZero(t, waiting.len())
	require.NoError(t, s.checkpointer.finish(c))
	<-s.checkpointer.mu

	require.NotZero(t, waiting.len())
	for f := range waiting.all() {
		require.Greater(t, f.afterCheckpoint, s.durable)
	}
	require.NoError(t, s.Checkpoint(t.Context()))
	for f := range waiting.all() {
		require.Greater(t, f.afterCheckpoint, s.durable)
	}
}

// TestRolledBackPartsInTheLogAreRevoked: a large transaction has appended parts of its record to the
// log when it is rolled back. No checkpoint runs before the next commit, which recovery must not read
// as their end.
func TestRolledBackPartsInTheLogAreRevoked(t *testing.T) {
	disk := vfs.NewMemory()
	o := testOptions(disk)
	o.CheckpointBytes = 1 << 30
	s := mustOpen(t, o)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	tx := begin(t, s, true)
	tx.SetDurability(NoSync) // else the log names the value
	mustPut(t, tx, 9, []byte("gone"), make([]byte, 3<<20), 0)
	require.NotZero(t, tx.w.flushed)
	tx.Rollback()
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, 9, []byte("kept"), []byte("v"), 0)
	})
	image := copyFiles(t, disk)
	require.NoError(t, s.Close())
	s = openTest(t, "/a.ebb", testOptions(image))
	read := begin(t, s, false)
	defer read.Rollback()
	require.Equal(t, map[string]string{"kept": "v"}, contents(t, read, 9))
}

// TestRecoveryKeepsNoFrames of what it has written: with a cache that they fill, the first
// checkpoint of the session would begin above its bound.
func TestRecoveryKeepsNoFrames(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CacheBytes, o.CheckpointBytes = 8<<20, 64<<20
	s := openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(9))
		for i := range 1000 {
			putRow(t, tx, i)
		}
	})
	o.FS = imageOf(t, disk).Disk(crashfs.Options{})
	s = openTest(t, "/a.ebb", o)
	require.Equal(t, 1, s.Recovery().CommitsReplayed)
	update(t, s, func(tx *Tx) { putRow(t, tx, 1) }) // reclaims the freed pages
	require.Less(t, s.pg.Pool.FrameBytes(), int64(20*s.PageSize()))
}
