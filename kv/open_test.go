package kv_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/platformtest"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// crashed copies the files of an open store as a killed process would leave them.
func crashed(t *testing.T, from vfs.FS) vfs.FS {
	t.Helper()
	return crashedInto(t, vfs.NewMemory(), from)
}

// crashedInto is crashed with the disk that the files are copied to.
func crashedInto[D vfs.FS](t *testing.T, to D, from vfs.FS) D {
	t.Helper()
	names, err := from.List("dir")
	require.NoError(t, err)
	for _, name := range names {
		src, err := from.Open("dir/"+name, 0)
		require.NoError(t, err)
		size, err := src.Size()
		require.NoError(t, err)
		content := make([]byte, size)
		require.NoError(t, vfs.ReadFull(src, content, 0))
		dst, err := to.Open("dir/"+name, vfs.Write|vfs.Create)
		require.NoError(t, err)
		require.NoError(t, vfs.WriteFull(dst, content, 0))
		require.NoError(t, src.Close())
		require.NoError(t, dst.Close())
	}
	return to
}

// TestUncleanStoreIsReplayed: read-only without a changed byte, else for good.
func TestUncleanStoreIsReplayed(t *testing.T) {
	fsys := vfs.NewMemory()
	db := openOn(t, fsys, nil)
	for i := range 10 {
		require.NoError(t, db.Put(fmt.Appendf(nil, "k%d", i), nil))
	}
	fsys = crashed(t, fsys)
	before := image(t, fsys, "dir")

	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	db = openOn(t, fsys, &kv.Options{ReadOnly: true, Logger: log})
	info := db.RecoveryInfo()
	require.False(t, info.Clean)
	require.False(t, info.Created)
	require.GreaterOrEqual(t, info.CommitsReplayed, 10)
	require.Contains(t, text.String(), "replayed")
	require.Len(t, rows(t, db, "default"), 10)
	require.NoError(t, db.Close())
	require.Equal(t, before, image(t, fsys, "dir"))

	db = openOn(t, fsys, nil)
	require.Equal(t, info.CommitsReplayed, db.RecoveryInfo().CommitsReplayed)
	require.Equal(t, info.Seq, db.RecoveryInfo().Seq)
	require.NoError(t, db.Close())
	db = openOn(t, fsys, nil)
	require.True(t, db.RecoveryInfo().Clean)
	require.Len(t, rows(t, db, "default"), 10)
}

func TestMustExistDoesNotCreate(t *testing.T) {
	fsys := vfs.NewMemory()
	for _, o := range []kv.Options{{MustExist: true}, {ReadOnly: true}} {
		_, err := openfs.Open(fsys, path, &o, txn.Options{})
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NotErrorIs(t, err, kv.ErrNotFound, "another kind of absence")
	}
	db := openOn(t, fsys, nil)
	require.True(t, db.RecoveryInfo().Created)
	require.Equal(t, path, db.Path())
}

func TestEventsTellOfCommitsAndCheckpoints(t *testing.T) {
	var commits, checkpoints int
	var text bytes.Buffer
	db := openOn(t, vfs.NewMemory(), &kv.Options{
		Logger: slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Events: &kv.Events{
			CommitGroup: func(n int, size int64, _ time.Duration) {
				commits += n
				if size <= 0 {
					t.Errorf("a group of %d bytes", size)
				}
			},
			Checkpoint: func(pages int, _ time.Duration, err error) {
				checkpoints++
				if err != nil || pages == 0 {
					t.Errorf("checkpoint of %d pages: %v", pages, err)
				}
			},
		},
	})
	before := commits
	for i := range 3 {
		require.NoError(t, db.Put([]byte{byte(i + 1)}, nil))
	}
	require.Equal(t, 3, commits-before)
	require.NoError(t, db.Checkpoint(t.Context()))
	require.NotZero(t, checkpoints)
	require.Contains(t, text.String(), "checkpoint")
	require.NotZero(t, db.Stats().Checkpoints)
}

// TestLinkMeansItsFile: a store that was opened through a symbolic link had its log beside the link,
// and could not be opened by its own name after a crash. A store created through a dangling link
// replaced the link.
func TestLinkMeansItsFile(t *testing.T) {
	for _, there := range []bool{false, true} {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		require.NoError(t, err)
		at, link := filepath.Join(dir, "real", "a.ebb"), filepath.Join(dir, "link.ebb")
		require.NoError(t, os.Mkdir(filepath.Dir(at), 0o755))
		platformtest.MayRefuse(t, os.Symlink(filepath.Join("real", "a.ebb"), link), "windows")
		if there {
			db := mustOpen(t, at, nil)
			require.NoError(t, db.Close())
		}
		db := mustOpen(t, link, nil)
		require.NoError(t, db.Put([]byte("k"), []byte("v")))
		require.Equal(t, at, db.Path())
		info, err := os.Lstat(link)
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&os.ModeSymlink)

		killed := t.TempDir() // the files after a kill, opened by the file's own name
		require.NoError(t, os.CopyFS(killed, os.DirFS(filepath.Dir(at))))
		require.NoError(t, db.Close())
		db = mustOpen(t, filepath.Join(killed, "a.ebb"), nil)
		value, err := db.Get([]byte("k"))
		require.NoError(t, err)
		require.Equal(t, "v", string(value))
		require.False(t, db.RecoveryInfo().Clean)
		require.NoError(t, db.Close())
	}
}

// TestLinkThroughLinks: the target of a link passes through another link and back by "..". Open
// searched for the log in the directory that the text seems to name.
func TestLinkThroughLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "other", "deep"), 0o755))
	platformtest.MayRefuse(t, os.Symlink(filepath.Join("other", "deep"), filepath.Join(dir, "way")),
		"windows")
	through := filepath.FromSlash("way/../a.ebb")
	for name, to := range map[string]string{"relative": through, "absolute": dir +
		string(filepath.Separator) + through} {
		require.NoError(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	require.NoError(t, os.Symlink("relative", filepath.Join(dir, "twice")))
	at := filepath.Join(dir, "other", "a.ebb")
	db := mustOpen(t, at, nil)
	require.NoError(t, db.Put([]byte("k"), []byte("v")))
	for _, name := range []string{"a.ebb", "a.ebb-wal-000001"} {
		b, err := os.ReadFile(filepath.Join(dir, "other", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "other", "killed "+name), b, 0o644))
	}
	require.NoError(t, db.Close())
	for _, name := range []string{"relative", "absolute", "twice"} {
		for _, file := range []string{"a.ebb", "a.ebb-wal-000001"} { // as a kill leaves them
			b, err := os.ReadFile(filepath.Join(dir, "other", "killed "+file))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "other", file), b, 0o644))
		}
		db, err := kv.Open(filepath.Join(dir, name), nil)
		require.NoError(t, err, name)
		require.Equal(t, at, db.Path())
		value, err := db.Get([]byte("k"))
		require.NoError(t, err)
		require.Equal(t, "v", string(value))
		require.False(t, db.RecoveryInfo().Clean)
		require.NoError(t, db.Close())
	}
	require.NoError(t, os.Symlink(filepath.Join("nowhere", "a.ebb"), filepath.Join(dir, "lost")))
	_, err = kv.Open(filepath.Join(dir, "lost"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	info, err := os.Lstat(filepath.Join(dir, "lost"))
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink)
}

// TestLockTimeoutIsHonoured waits on a clock of the test's own: exactly for LockTimeout, not at all
// without it, and no longer than the other handle is open. No call changes a file.
func TestLockTimeoutIsHonoured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMemory()
		first := mustOpenOn(t, disk, quick, txn.Options{})
		fill(t, first, "a")
		before := image(t, disk, "dir")
		fsys := &hookFS{disk, func(call, name string) error {
			require.False(t, changes(call), "%s of %s", call, name)
			return nil
		}}
		long := time.Duration(racetest.Sample(60, 1)) * time.Minute
		for _, wait := range []time.Duration{0, time.Nanosecond, time.Millisecond,
			333 * time.Millisecond, long} {
			began := time.Now()
			_, err := openfs.Open(fsys, path, &kv.Options{LockTimeout: wait}, txn.Options{})
			require.ErrorIs(t, err, kv.ErrLocked)
			require.Equal(t, wait, time.Since(began))
		}
		require.Equal(t, before, image(t, disk, "dir"))

		const open = 777 * time.Millisecond
		go func() {
			time.Sleep(open)
			if err := first.Close(); err != nil {
				t.Error(err)
			}
		}()
		began := time.Now()
		second := mustOpenOn(t, disk, &kv.Options{LockTimeout: time.Hour}, txn.Options{})
		waited := time.Since(began)
		require.GreaterOrEqual(t, waited, open)
		require.Less(t, waited, open+100*time.Millisecond, "it looks often enough")
		require.Equal(t, []string{"a=v-a"}, rows(t, second, "default"))
		require.NoError(t, second.Close())
	})
}

func TestValueAboveTheLimitIsRefused(t *testing.T) {
	if testing.Short() || racetest.Enabled || ^uint(0)>>32 == 0 {
		t.Skip("needs 1 GiB of address space")
	}
	db := openTest(t)
	huge := make([]byte, kv.MaxValueSize+1) // Never touched: it costs no memory.
	require.ErrorIs(t, db.Put([]byte("k"), huge), kv.ErrValueTooLarge)
	b := db.NewBatch()
	b.Put([]byte("k"), huge)
	require.ErrorIs(t, db.Apply(t.Context(), b), kv.ErrValueTooLarge)
}

func TestTransactionAboveTheLimitIsRefused(t *testing.T) {
	db := openOn(t, vfs.NewMemory(), &kv.Options{MaxTxnBytes: 10_000})
	value := make([]byte, 1000)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 100 {
			if err := tx.Put([]byte{byte(i + 1)}, value); err != nil {
				require.ErrorIs(t, err, kv.ErrTxnTooLarge)
				require.Greater(t, i, 5)
				return nil
			}
		}
		return errors.New("all of it fits")
	}), "the transaction stays usable")
}

func TestOptionsAreCheckedByName(t *testing.T) {
	for field, o := range map[string]kv.Options{
		"PageSize":        {PageSize: 5000},
		"PageSize 2048":   {PageSize: 2048},
		"PageSize 131072": {PageSize: 131072},
		"PageSize -4096":  {PageSize: -4096},
		"Durability":      {Durability: 2},
		"LockTimeout":     {LockTimeout: -1},
		"CacheBytes":      {CacheBytes: -1},
		"MaxBytes":        {MaxBytes: -1},
		"CheckpointBytes": {CheckpointBytes: -1},
		"MaxClockStep":    {MaxClockStep: -1},
		"MaxTxnBytes":     {MaxTxnBytes: -1},

		"FileMode drwx------":             {FileMode: fs.ModeDir | 0o700},
		"FileMode u":                      {FileMode: fs.ModeSetuid | 0o600},
		"FileMode 0400: its owner cannot": {FileMode: 0o400},
		"FileMode 0060: its owner cannot": {FileMode: 0o060},
		"AutoPurge with ReadOnly":         {ReadOnly: true, AutoPurge: &kv.AutoPurge{}},

		"AutoPurge.Interval": {AutoPurge: &kv.AutoPurge{Interval: -1}},
		"AutoPurge.Limit":    {AutoPurge: &kv.AutoPurge{Limit: -1}},
		"AutoPurge.Batch":    {AutoPurge: &kv.AutoPurge{Batch: -1}},
	} {
		_, err := kv.OpenMemory(&o)
		require.ErrorIs(t, err, kv.ErrInvalidOptions)
		require.ErrorContains(t, err, field)
	}
}
