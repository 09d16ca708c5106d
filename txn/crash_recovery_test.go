package txn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
)

// TestOlderMetaPageIsInvalidatedBeforeItsPagesAreReused has the story of a failed sync and a power
// cut after it. A checkpoint makes its meta page durable and then invalidates the header of the
// oldest log segment; the sync of that fails, and the store is reopened in the same boot. The older
// meta page has no log any more, so recovery starts from the newer one and writes to pages that
// only the older version used. A power cut then restores the header, because its invalidation never
// reached the disk: the older meta page has a whole log, is chosen as the oldest one, and its pages
// are overwritten. So recovery first overwrites the older meta page with a copy of the newer one.
func TestOlderMetaPageIsInvalidatedBeforeItsPagesAreReused(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CheckpointBytes, o.CacheBytes = 1<<30, 64<<20 // only where the test runs one
	s := mustOpen(t, o)
	put := func(n int, v byte) {
		update(t, s, func(tx *Tx) {
			for i := range n {
				value := make([]byte, 900)
				value[0] = v
				mustPut(t, tx, 9, []byte{byte(i)}, value, 0)
			}
		})
	}
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	for v := range byte(3) {
		put(200, v)
		require.NoError(t, s.Checkpoint(t.Context()))
	}

	put(200, 3)
	require.NoError(t, lock(t.Context(), s.checkpointer.mu))
	c, err := s.checkpointer.capture(t.Context())
	require.NoError(t, err)
	put(200, 4) // beside the checkpoint: recovery has something to write
	var failed []*crashfs.Injection
	for _, site := range []string{"wal.(*segment).invalidate#1", "wal.(*segmentPool).recycle#1"} {
		failed = append(failed, disk.Inject(crashfs.Fault{Do: crashfs.Gate, Site: site}))
	}
	require.ErrorIs(t, s.checkpointer.write(c, nil), crashfs.ErrIO)
	<-s.checkpointer.mu
	require.Equal(t, 1, failed[0].Fired()+failed[1].Fired())
	tx := begin(t, s, false)
	want := contents(t, tx, 9)
	tx.Rollback()
	require.Error(t, s.Close())

	from := disk.Len()
	for _, f := range failed {
		f.Disarm()
	}
	again := openTest(t, "/a.ebb", testOptions(disk))
	require.NotZero(t, again.Recovery().CommitsReplayed)
	look := func(s *Store) {
		tx := begin(t, s, false)
		require.Equal(t, want, contents(t, tx, 9))
		tx.Rollback()
	}
	look(again)
	images := 0
	for im := range disk.Images(crashfs.ImageOptions{Profiles: crashfs.None | crashfs.Prefix, From: from}) {
		s, err := Open("/a.ebb", testOptions(im.Disk(crashfs.Options{})))
		require.NoError(t, err, "%d %s", im.Point, im.Desc())
		look(s)
		requireSound(t, s)
		require.NoError(t, s.Close())
		images++
	}
	require.Greater(t, images, 5)
}

// TestEarlierRecoveryIsInvalidatedBeforeItsPagesAreReused has the story of three failures. A process
// is killed whose last commit waited for no sync: its record is in the page cache only. The recovery
// fails, or is killed, after it has written its meta page and before the sync: that page is in the
// page cache, too. The next recovery starts from the older meta page and writes to pages that the
// version of the first one used. A power cut may keep that meta page but not the record. The log
// then ends elsewhere than the meta page says, so recovery trusted the meta page, whose pages were
// overwritten, also those of durable commits. Recovery first overwrites the meta page of the first
// recovery with a copy of the older one.
func TestEarlierRecoveryIsInvalidatedBeforeItsPagesAreReused(t *testing.T) {
	images := 0
	for n := 0; ; n++ { // the call of the first recovery that fails
		disk := crashfs.New(crashfs.Options{})
		o := testOptions(disk)
		s, err := Open("/a.ebb", o)
		require.NoError(t, err)
		put := func(key string, d Durability) {
			tx, err := s.Begin(nil, true)
			require.NoError(t, err)
			mustPut(t, tx, CatalogTree, []byte(key), make([]byte, 700), 0)
			require.NoError(t, tx.Commit(d))
		}
		put("durable", Sync)
		put("too", Sync)
		put("relaxed", NoSync)
		dead := disk.Inject(crashfs.Fault{Kinds: crashfs.KindChanges, Sticky: true})
		_ = s.Close()
		dead.Disarm()

		failing := disk.Inject(crashfs.Fault{Kinds: crashfs.KindSyncs, N: n, Sticky: true})
		s, err = Open("/a.ebb", o)
		failing.Disarm()
		if err == nil {
			require.NoError(t, s.Close())
			break
		}
		require.ErrorIs(t, err, crashfs.ErrIO)

		from := disk.Len()
		s = mustOpen(t, o)
		require.NoError(t, s.Close())
		for im := range disk.Images(crashfs.ImageOptions{Profiles: crashfs.AllProfiles, From: from,
			Seed: uint64(n), Random: 8}) {
			again := testOptions(im.Disk(crashfs.Options{}))
			s, err := Open("/a.ebb", again)
			require.NoError(t, err, "%d: %v", n, im)
			requireSound(t, s)
			tx := begin(t, s, false)
			_, _, found, err := tx.Get(CatalogTree, []byte("durable"))
			require.NoError(t, err)
			require.True(t, found, "%d: %v", n, im)
			tx.Rollback()
			require.NoError(t, s.Close())
			images++
		}
	}
	require.Greater(t, images, 100)
}
