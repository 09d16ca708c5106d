package kv_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

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
		db, err = kv.Open(path, nil)
		require.NoError(t, err)
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
	db, err := kv.Open("a.ebb", nil)
	require.NoError(t, err)
	require.NoError(t, putRow(db, 0))
	t.Chdir(t.TempDir())
	require.NoError(t, db.Checkpoint(t.Context()))
	require.NoError(t, putRow(db, 1))
	require.True(t, filepath.IsAbs(db.Path()))
	require.NoError(t, db.Close())
}

// TestLockEndsWithClose also where a child of the process is just being started, which has all
// descriptors until it is another program.
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
		db, err := kv.Open(path, nil)
		require.NoError(t, err)
		require.NoError(t, db.Close())
	}
	stop()
	for range cap(ended) {
		<-ended
	}
}

// TestLockEndsWithShutdown though a reader that it has cut off keeps the memory which it looks at.
func TestLockEndsWithShutdown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.ebb")
	db, err := kv.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, putRow(db, 0))
	tx, err := db.Begin(t.Context(), false)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, db.Shutdown(ctx))
	_, err = tx.Get([]byte("k000000"))
	require.ErrorIs(t, err, kv.ErrClosed)
	require.NoError(t, tx.Rollback())
	db, err = kv.Open(path, nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
