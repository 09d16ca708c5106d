package txn

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// logReads counts the bytes that are read from log segments.
type logReads struct {
	vfs.FS
	bytes int64
}

func (f *logReads) Open(name string, flag vfs.Flag) (vfs.File, error) {
	file, err := f.FS.Open(name, flag)
	if err == nil && strings.Contains(name, "-wal-") {
		file = &logRead{file, f}
	}
	return file, err
}

type logRead struct {
	vfs.File
	f *logReads
}

func (r *logRead) ReadAt(b []byte, off int64) (int, error) {
	n, err := r.File.ReadAt(b, off)
	r.f.bytes += int64(n)
	return n, err
}

// killedWithLog leaves a store with n rows of 200 bytes, put in an order that is not that of their
// keys and none of them in the main file. It returns its path and the bytes of its log segments.
// Two meta pages are valid: the log is proved before it is applied.
func killedWithLog(t *testing.T, n int) (path string, logBytes int64) {
	dir := t.TempDir()
	o := testOptions(vfs.OS)
	o.CheckpointBytes, o.CacheBytes, o.SegmentSize = 1<<40, 64<<20, 256<<10
	s, err := Open(filepath.Join(dir, "a.ebb"), o)
	require.NoError(t, err)
	require.NoError(t, s.Checkpoint(t.Context()))
	for from := 0; from < n; from += 50 {
		update(t, s, func(tx *Tx) {
			for i := from; i < min(from+50, n); i++ {
				key, value := logRow(i * 7919 % n)
				mustPut(t, tx, CatalogTree, key, value, 0)
			}
		})
	}
	image := t.TempDir()
	require.NoError(t, os.CopyFS(image, os.DirFS(dir)))
	logBytes = s.log.Bytes()
	require.NoError(t, s.Close())
	return filepath.Join(image, "a.ebb"), logBytes
}

func logRow(i int) (key, value []byte) {
	return []byte(fmt.Sprintf("key%08d", i)), bytes.Repeat([]byte{byte(i)}, 190)
}

func requireLogRows(t *testing.T, s *Store, n int) {
	t.Helper()
	tx := begin(t, s, false)
	defer tx.Rollback()
	c, i := tx.Cursor(CatalogTree), 0
	for ok := c.First(); ok; ok = c.Next() {
		key, value := logRow(i)
		require.Equal(t, key, c.Key())
		require.Equal(t, value, c.Value())
		i++
	}
	require.NoError(t, c.Err())
	require.Equal(t, n, i)
}

// TestLogIsReadOnce if the buffer holds it, else twice: to verify it and to apply it.
func TestLogIsReadOnce(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	const n = 20_000
	for _, test := range []struct {
		cache int64
		times float64
	}{{64 << 20, 1}, {1 << 20, 2}} {
		path, logBytes := killedWithLog(t, n)
		require.Greater(t, logBytes, int64(4<<20))
		counter := &logReads{FS: vfs.OS}
		o := testOptions(counter)
		o.SegmentSize, o.CacheBytes, o.CheckpointBytes = 256<<10, test.cache, 1<<40
		s := openTest(t, path, o)
		require.Equal(t, n/50, s.Recovery().CommitsReplayed)
		requireLogRows(t, s, n)
		// Headers, and the first record of each segment, are read before: here a tenth of all, or a
		// quarter with the spares.
		require.InDelta(t, test.times+0.4, float64(counter.bytes)/float64(logBytes), 0.4,
			"cache of %d bytes", test.cache)
	}
}

// TestDamagedLogOfTheOlderMetaPageIsDroppedWhole damages the log that ends with a checkpoint, at
// each step of it. Once the checkpoint's own meta page is there, the store is that one's state and
// the log after it, and nothing of the part of the older log that could be read; before, it is
// damaged.
func TestDamagedLogOfTheOlderMetaPageIsDroppedWhole(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	o := testOptions(disk)
	o.CheckpointBytes = 1 << 30
	s := mustOpen(t, o)
	put := func(round int) {
		for i := range 30 {
			update(t, s, func(tx *Tx) {
				mustPut(t, tx, CatalogTree, []byte{byte(i)}, fmt.Appendf(nil, "%d of %d", i, round), 0)
			})
		}
	}
	put(1)
	require.NoError(t, s.Checkpoint(t.Context()))
	put(2)
	put(3)
	from := disk.Len()
	require.NoError(t, s.Checkpoint(t.Context()))
	tx := begin(t, s, false)
	want := contents(t, tx, CatalogTree)
	tx.Rollback()

	opened, refused := 0, 0
	for im := range disk.Images(crashfs.ImageOptions{Profiles: crashfs.Kill, From: from}) {
		killed := im.Disk(crashfs.Options{})
		if !damageLog(t, killed, "10 of 3") {
			continue // cut
		}
		again, err := Open("/a.ebb", testOptions(killed))
		if err != nil {
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			refused++
			continue
		}
		tx := begin(t, again, false)
		require.Equal(t, want, contents(t, tx, CatalogTree))
		tx.Rollback()
		requireSound(t, again)
		require.NoError(t, again.Close())
		opened++
	}
	require.NotZero(t, opened)
	require.NotZero(t, refused)
	require.NoError(t, s.Close())
}

// damageLog turns a bit of the text wherever it is in a log segment, and says whether it was in
// one.
func damageLog(t *testing.T, disk *crashfs.Disk, text string) (found bool) {
	names, err := disk.List("/")
	require.NoError(t, err)
	for _, name := range names {
		if !strings.Contains(name, "-wal-") {
			continue
		}
		f, err := disk.Open("/"+filepath.Base(name), vfs.Write)
		require.NoError(t, err)
		size, err := f.Size()
		require.NoError(t, err)
		b := make([]byte, size)
		require.NoError(t, vfs.ReadFull(f, b, 0))
		if at := bytes.Index(b, []byte(text)); at >= 0 {
			b[at] ^= 1
			found = true
		}
		require.NoError(t, vfs.WriteFull(f, b, 0))
		require.NoError(t, f.Close())
	}
	return found
}

// TestInvalidTreeNumbersInTheLog has numbers that no meta page takes.
func TestInvalidTreeNumbersInTheLog(t *testing.T) {
	for id, sound := range map[TreeID]bool{maxTree - 1: true, maxTree: false, trashBit - 1: false,
		trashBit: false} {
		disk := vfs.NewMemory()
		s := mustOpen(t, testOptions(disk))
		update(t, s, func(tx *Tx) { require.NoError(t, tx.Apply(CatalogTree, inOrder(0, 1), nil)) })
		again, err := openForged(t, s, disk, appendOp(nextRedo(s), opNextTree, id))
		if !sound {
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			continue
		}
		require.NoError(t, err)
		tx := begin(t, again, true)
		_, err = tx.NewTreeIDs(1)
		require.Error(t, err, "there is no number left")
		tx.Rollback()
		require.NoError(t, again.Close())
	}
}
