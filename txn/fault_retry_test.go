package txn

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
)

// TestSecondRecoveryFindsNoFewerCommits interrupts a recovery when its meta page is written and the log
// is still there, and damages the last record of the log then. The next recovery starts from the
// older meta page again and takes the record for a torn tail, for nothing in the log says that it
// was durable. But the page of the first recovery knows of the commit and has all of it: the log is
// given up, and not the commit.
func TestSecondRecoveryFindsNoFewerCommits(t *testing.T) {
	before := crashfs.New(crashfs.Options{})
	s := mustOpen(t, testOptions(before))
	for _, key := range []string{"a", "b", "c"} {
		update(t, s, func(tx *Tx) {
			mustPut(t, tx, CatalogTree, []byte(key), []byte("v"), 0)
		})
	}
	var killed *crashfs.Disk
	for im := range before.Images(crashfs.ImageOptions{Profiles: crashfs.Kill, From: before.Len()}) {
		killed = im.Disk(crashfs.Options{})
	}
	require.NoError(t, s.Close())

	recovered := openTest(t, "/a.ebb", testOptions(killed))
	require.EqualValues(t, 3, recovered.Recovery().CommitsReplayed)
	torn, kept := 0, 0
	for im := range killed.Images(crashfs.ImageOptions{Profiles: crashfs.Kill}) {
		disk := im.Disk(crashfs.Options{})
		if !tearLastRecord(t, disk, "/a.ebb-wal-000001") { // removed: the recovery was over
			continue
		}
		s := mustOpen(t, testOptions(disk))
		if s.Recovery().Seq == recovered.Recovery().Seq {
			kept++
		} else {
			require.Equal(t, recovered.Recovery().Seq-1, s.Recovery().Seq)
			require.Zero(t, kept, "the page is there by now: %d %s", im.Point, im.Desc())
			torn++
		}
		requireSound(t, s)
		require.NoError(t, s.Close())
	}
	require.NotZero(t, torn, "as long as there is no such page")
	require.NotZero(t, kept)
}

// tearLastRecord damages the last record of a segment, and removes the durability hint that would
// prove it durable; false: the file is removed.
func tearLastRecord(t *testing.T, disk *crashfs.Disk, name string) bool {
	t.Helper()
	f, err := disk.Open(name, vfs.Write)
	if err != nil {
		return false
	}
	defer func() { require.NoError(t, f.Close()) }()
	size, err := f.Size()
	require.NoError(t, err)
	b := make([]byte, size)
	require.NoError(t, vfs.ReadFull(f, b, 0))
	last := len(bytes.TrimRight(b, "\x00")) - 1
	const note, records = 4096, 8192 // where they are in a segment
	require.Greater(t, last, records)
	clear(b[note:records])
	b[last] ^= 1
	require.NoError(t, vfs.WriteFull(f, b, 0))
	return true
}
