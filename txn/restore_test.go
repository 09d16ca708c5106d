package txn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/bound"
	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// TestMemoryOfRestoreIsBoundByTheStream: the page count in the header of a backup of 40 kB was set to
// that of a store of 256 GiB, with right checksums. Restore took 40 MiB for the sets of its pages, and as
// much more as the number was larger. The pages that a stream has are all that a restored store needs.
func TestMemoryOfRestoreIsBoundByTheStream(t *testing.T) {
	racetest.OneGoroutine(t)
	b := smallBackup(t)
	const offMetaPages = backupHeader + 80
	for _, pages := range []uint64{1 << 26, 1 << 40} {
		binary.LittleEndian.PutUint64(b.stream[offMetaPages:], pages)
		mendBackup(b.stream, false)
		info, err := VerifyBackup(t.Context(), bytes.NewReader(b.stream))
		require.NoError(t, err)
		require.Equal(t, pages, info.StorePages)
		o, path := testOptions(vfs.OS), filepath.Join(t.TempDir(), "r.ebb")
		held := bound.Hold(t, uint64(8<<20+64*len(b.stream)))
		require.NoError(t, Restore(t.Context(), path, o, bytes.NewReader(b.stream)))
		held()
		size, err := vfs.OS.Stat(path)
		require.NoError(t, err)
		require.Less(t, size.Size, int64(2*len(b.stream)))
		s := openTest(t, path, o)
		requireSound(t, s)
		tx := begin(t, s, false)
		require.Equal(t, b.rows, contents(t, tx, 9))
		tx.Rollback()
		require.NoError(t, s.Close())
	}
}

// TestRestoreOfFarPagesIsCorrupt: a page of a small backup was moved behind 4 TiB of a store, with right
// checksums. Restore took memory for each page before it.
func TestRestoreOfFarPagesIsCorrupt(t *testing.T) {
	b := smallBackup(t)
	const headed = backupHeader + pager.MinPageSize
	binary.LittleEndian.PutUint64(b.stream[backupHeader+80:], 1<<42)
	last := b.stream[headed:]
	for frame := last; binary.LittleEndian.Uint32(frame[8:]) > 0; {
		last = frame
		frame = frame[frameHeader+int(binary.LittleEndian.Uint32(frame[8:]))*pager.MinPageSize:]
	}
	binary.LittleEndian.PutUint64(last, sparseFrom+1)
	mendBackup(b.stream, false)
	o, dir := testOptions(vfs.OS), t.TempDir()
	held := bound.Hold(t, 8<<20)
	err := Restore(t.Context(), filepath.Join(dir, "r.ebb"), o, bytes.NewReader(b.stream))
	held()
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	require.ErrorContains(t, err, "the last of them page 10737418")
	names, err := o.FS.List(dir)
	require.NoError(t, err)
	require.Empty(t, names)
}

// TestRestoreRefusesWhatIsThere: a file, also an empty one, and a log.
func TestRestoreRefusesWhatIsThere(t *testing.T) {
	b := smallBackup(t)
	for _, name := range []string{"/r.ebb", "/r.ebb-wal-000007"} {
		o := testOptions(vfs.NewMemory())
		f, err := o.FS.Open(name, vfs.Write|vfs.Create)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		err = Restore(t.Context(), "/r.ebb", o, bytes.NewReader(b.stream))
		require.ErrorIs(t, err, fs.ErrExist)
		names, err := o.FS.List("/")
		require.NoError(t, err)
		require.Equal(t, []string{name[1:]}, names)
	}
}

// TestRestoreCrash stops the disk after each operation of Restore. The path has no file, or the whole
// store; Open removes what else there is, and another Restore works.
func TestRestoreCrash(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	b := smallBackup(t)
	disk := crashfs.New(crashfs.Options{})
	require.NoError(t, Restore(t.Context(), "/r.ebb", testOptions(disk), bytes.NewReader(b.stream)))
	absent, there, returned := 0, 0, disk.Len()
	images := crashfs.ImageOptions{Profiles: crashfs.AllProfiles, Expects: func(point int) uint64 {
		if point >= returned { // An image without the file is wrong from then on.
			return 1
		}
		return 0
	}}
	for im := range disk.Images(images) {
		o := testOptions(im.Disk(crashfs.Options{Untraced: true}))
		o.MustExist = true
		s, err := Open("/r.ebb", o)
		if errors.Is(err, fs.ErrNotExist) {
			absent++
			require.Less(t, im.Point, returned, "Restore has returned nil: %s", im.Desc())
			err = Restore(t.Context(), "/r.ebb", o, bytes.NewReader(b.stream))
			require.NoError(t, err, "%d %s", im.Point, im.Desc())
			s, err = Open("/r.ebb", o)
		} else {
			there++
		}
		require.NoError(t, err, "%d %s", im.Point, im.Desc())
		require.Len(t, rowsOfTree(t, s, 9), 3)
		requireSound(t, s)
		require.NoError(t, s.Close())
		names, err := o.FS.List("/")
		require.NoError(t, err)
		require.Equal(t, []string{"r.ebb"}, names)
	}
	require.Positive(t, there)
	require.Greater(t, absent, 10)
}

func rowsOfTree(t *testing.T, s *Store, id TreeID) map[string]string {
	t.Helper()
	tx := begin(t, s, false)
	defer tx.Rollback()
	return contents(t, tx, id)
}

// TestRestoreFails at each operation of the disk in turn, and with a disk of each size that is too
// small. It leaves no file, unless the last sync of the directory has failed, and then a whole one.
func TestRestoreFails(t *testing.T) {
	b := smallBackup(t)
	requireNothing := func(disk *crashfs.Disk, at int) {
		names, err := disk.List("/")
		require.NoError(t, err)
		require.Empty(t, names, "operation %d", at)
		require.NoError(t, Restore(t.Context(), "/r.ebb", testOptions(disk), bytes.NewReader(b.stream)))
	}
	// A temporary file whose lock fails may be that of another process.
	kinds := crashfs.KindAll &^ crashfs.KindClose &^ crashfs.KindRemove &^ crashfs.KindLock
	for n := 0; ; n++ {
		disk := crashfs.New(crashfs.Options{Untraced: true})
		in := disk.Inject(crashfs.Fault{Kinds: kinds, N: n})
		err := Restore(t.Context(), "/r.ebb", testOptions(disk), bytes.NewReader(b.stream))
		if in.Fired() == 0 {
			require.NoError(t, err)
			require.Greater(t, n, 10)
			break
		}
		require.ErrorIs(t, err, crashfs.ErrIO, "operation %d", n)
		require.NotErrorIs(t, err, badfile.ErrCorrupt, "operation %d", n)
		in.Disarm()
		if _, err := disk.Stat("/r.ebb"); err == nil {
			s := openTest(t, "/r.ebb", testOptions(disk))
			require.Len(t, rowsOfTree(t, s, 9), 3)
			continue
		}
		requireNothing(disk, n)
	}
	for size := int64(0); ; size += 4096 {
		disk := crashfs.New(crashfs.Options{Untraced: true, Capacity: size + 1})
		err := Restore(t.Context(), "/r.ebb", testOptions(disk), bytes.NewReader(b.stream))
		if err == nil {
			require.Greater(t, size, int64(5*4096))
			break
		}
		require.ErrorIs(t, err, ErrNoSpace)
		disk.SetCapacity(0)
		requireNothing(disk, int(size))
	}
}
