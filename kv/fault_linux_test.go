package kv_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// limited runs fn under a limit of the process.
func limited(t *testing.T, which int, most uint64, fn func()) {
	t.Helper()
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(which, &was))
	low := was
	low.Cur = most
	require.NoError(t, unix.Setrlimit(which, &low))
	defer func() { require.NoError(t, unix.Setrlimit(which, &was)) }()
	fn()
}

// putRow puts a row of 3 KiB, which tells itself apart.
func putRow(db *kv.DB, i int) error { return db.Put(fmt.Appendf(nil, "k%06d", i), make([]byte, 3000)) }

// TestTooManyOpenFilesForAMoment fails the call that needs one, the first change of a session or
// the one that ends a segment, and nothing else.
func TestTooManyOpenFilesForAMoment(t *testing.T) {
	for _, before := range []int{0, 1, 300} { // puts
		path := filepath.Join(t.TempDir(), "a.ebb")
		db, err := kv.Open(path, nil)
		require.NoError(t, err)
		n := 0
		for ; n < before; n++ {
			require.NoError(t, putRow(db, n))
		}
		limited(t, unix.RLIMIT_NOFILE, 3, func() {
			for ; err == nil && n < 100_000; n++ {
				err = putRow(db, n)
			}
		})
		require.ErrorIs(t, err, unix.EMFILE)
		require.NotErrorIs(t, err, kv.ErrFailed)
		require.NoError(t, putRow(db, n-1))
		require.NoError(t, db.Checkpoint(t.Context()))
		require.NoError(t, db.Close())
		db = mustOpen(t, path, nil)
		count, err := db.Count()
		require.NoError(t, err)
		require.EqualValues(t, n, count)
		checkStore(t, db)
		require.NoError(t, db.Close())
	}
}

// TestLimitOfFileSize is a full disk.
func TestLimitOfFileSize(t *testing.T) {
	db, err := kv.Open(filepath.Join(t.TempDir(), "a.ebb"), &kv.Options{CheckpointBytes: 1 << 20})
	require.NoError(t, err)
	n := 0
	limited(t, unix.RLIMIT_FSIZE, 6<<20, func() {
		for ; err == nil && n < 10_000; n++ {
			err = putRow(db, n)
		}
		require.ErrorIs(t, err, kv.ErrNoSpace)
		require.NoError(t, db.Delete([]byte("k000002")))
	})
	require.NoError(t, putRow(db, n-1))
	checkStore(t, db)
	require.NoError(t, db.Close())
}

// TestProcessChangesItsDirectory under a store that was opened by a relative path.
func TestProcessChangesItsDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	db := mustOpen(t, "a.ebb", nil)
	require.NoError(t, putRow(db, 0))
	t.Chdir(t.TempDir())
	require.NoError(t, db.Checkpoint(t.Context()))
	require.NoError(t, putRow(db, 1))
	require.True(t, filepath.IsAbs(db.Path()))
	require.NoError(t, db.Close())
}

// TestLockEndsWithClose also while a child of the process starts, which inherits all descriptors until
// it executes another program.
func TestLockEndsWithClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.ebb")
	require.NoError(t, exec.Command("true").Run())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	for range cap(ended) {
		go func() {
			for ctx.Err() == nil {
				_ = exec.Command("true").Run()
			}
			ended <- struct{}{}
		}()
	}
	for range 200 {
		db := mustOpen(t, path, nil)
		require.NoError(t, db.Close())
	}
	stop()
	for range cap(ended) {
		<-ended
	}
}

// TestLockEndsWithShutdown though an ended reader keeps the memory that it reads.
func TestLockEndsWithShutdown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.ebb")
	db := mustOpen(t, path, nil)
	require.NoError(t, putRow(db, 0))
	tx := beginTx(t, db, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, db.Shutdown(ctx))
	_, err := tx.Get([]byte("k000000"))
	require.ErrorIs(t, err, kv.ErrClosed)
	require.NoError(t, tx.Rollback())
	db = mustOpen(t, path, nil)
	require.NoError(t, db.Close())
}

// TestStoreWithoutAddressesForAMap: a process with a bounded address space, as by ulimit -v, could not
// open any store, though an unmapped store needs its frames only.
func TestStoreWithoutAddressesForAMap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.ebb")
	stat, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.ParseUint(strings.Fields(string(stat))[0], 10, 64)
	require.NoError(t, err)
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_AS, &before))
	// half of what a view of the file takes
	bound := unix.Rlimit{Cur: pages*uint64(os.Getpagesize()) + 2<<30, Max: before.Max}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_AS, &bound))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_AS, &before)) }()
	for _, want := range []string{"", "v"} {
		db := mustOpen(t, path, nil)
		if want == "" {
			require.NoError(t, db.Put([]byte("k"), []byte("v")))
		}
		got, err := db.Get([]byte("k"))
		require.NoError(t, err)
		require.Equal(t, "v", string(got))
		checkStore(t, db)
		require.NoError(t, db.Close())
	}
}

// TestFullFileSystemFailsTheCallAndNothingElse fills a small real file system with relaxed and durable
// commits: the commit that finds no space fails, the store stays usable, checkpoints included, and
// commits succeed again once there is space.
func TestFullFileSystemFailsTheCallAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("only root may mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	for _, size := range []int{900, 9000} { // in the page, and in extents
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			path := filepath.Join(dir, fmt.Sprint(size, ".ebb"))
			db, err := kv.Open(path, &kv.Options{Durability: kv.NoSync, CheckpointBytes: 4 << 20})
			require.NoError(t, err)
			value := make([]byte, size)
			stored := 0
			for stored < 30_000 {
				if err = db.Put(fmt.Appendf(nil, "k%06d", stored), value); err != nil {
					break
				}
				stored++
			}
			require.ErrorIs(t, err, kv.ErrNoSpace)
			n, err := db.Count()
			require.NoError(t, err)
			require.EqualValues(t, stored, n)
			require.NoError(t, db.Close(), "what is stored is made durable without more room")
			db = mustOpen(t, path, &kv.Options{Durability: kv.NoSync})
			n, err = db.Count()
			require.NoError(t, err)
			require.EqualValues(t, stored, n)
			require.NoError(t, db.Clear())
			require.NoError(t, db.Checkpoint(t.Context()))
			require.NoError(t, db.Put([]byte("again"), value))
			checkStore(t, db)
			require.NoError(t, db.Close())
			require.NoError(t, os.Remove(path))
		})
	}
}

// TestWithoutWritePermission opens a store whose file and directory its user may only read.
func TestWithoutWritePermission(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "a.ebb")
	db := mustOpen(t, at, nil)
	fill(t, db, "k")
	require.NoError(t, db.Close())
	unprivileged(t, dir, at)

	before := image(t, vfs.OS, dir)
	_, err := kv.Open(at, nil)
	require.ErrorIs(t, err, fs.ErrPermission)
	_, err = kv.Open(filepath.Join(dir, "new.ebb"), nil)
	require.ErrorIs(t, err, fs.ErrPermission)
	db = mustOpen(t, at, &kv.Options{ReadOnly: true})
	require.Equal(t, []string{"k=v-k"}, rows(t, db, "default"))
	require.NoError(t, db.Close())
	require.Equal(t, before, image(t, vfs.OS, dir))
}

// TestDirectoryThatTakesNoSegment: the main file is writable, but no log segment can be created.
func TestDirectoryThatTakesNoSegment(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "a.ebb")
	db, err := kv.Open(at, nil)
	require.NoError(t, err)
	fill(t, db, "k")
	require.NoError(t, db.Close())
	unprivileged(t, dir, at)
	if os.Geteuid() == 0 {
		require.NoError(t, unix.Setfsuid(0))
		require.NoError(t, os.Chmod(at, 0o666))
		require.NoError(t, unix.Setfsuid(otherUser))
	} else {
		require.NoError(t, os.Chmod(at, 0o600))
	}
	before := image(t, vfs.OS, dir)
	db, err = kv.Open(at, nil)
	if err == nil {
		require.Equal(t, []string{"k=v-k"}, rows(t, db, "default"))
		err = db.Put([]byte("new"), nil)
		require.ErrorIs(t, db.Close(), fs.ErrPermission)
	}
	require.ErrorIs(t, err, fs.ErrPermission)
	require.Equal(t, before, image(t, vfs.OS, dir))
}

// otherUser is a user without rights.
const otherUser = 65534

// unprivileged removes the right to write from this test. Modes do not bind root: its thread takes
// the file-system identity of otherUser, which the kernel allows for a single thread.
func unprivileged(t *testing.T, dir, file string) {
	t.Helper()
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
		require.NoError(t, os.Chmod(dir, 0o755))
		require.NoError(t, os.Chmod(file, 0o644))
		runtime.LockOSThread()
		require.NoError(t, unix.Setfsuid(otherUser))
		t.Cleanup(func() {
			require.NoError(t, unix.Setfsuid(0))
			runtime.UnlockOSThread()
		})
	} else {
		require.NoError(t, os.Chmod(file, 0o400))
		require.NoError(t, os.Chmod(dir, 0o500))
		t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	require.ErrorIs(t, err, fs.ErrPermission, "%v", f)
}
