package kv_test

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// readOnlyFS is a file system that turns read-only before the n-th call that would change it or
// wants to.
func readOnlyFS(disk vfs.FS, n int) (fsys *hookFS, calls *int) {
	calls = new(int)
	return &hookFS{disk, func(call, name string) error {
		if !changes(call) && call != "open_for_writing" {
			return nil
		}
		if *calls++; *calls > n {
			return &fs.PathError{Op: call, Path: name, Err: syscall.EROFS}
		}
		return nil
	}}, calls
}

// storesOfEachKind are the files of a clean store, of one that a killed process left, and of none.
func storesOfEachKind(t *testing.T) map[string]files {
	t.Helper()
	disk := vfs.NewMemory()
	s, err := openSession(disk)
	require.NoError(t, err)
	var unclean files
	for _, step := range sessionSteps {
		if step.name == "close" {
			unclean = filesOf(t, disk, nil)
		}
		require.NoError(t, step.do(s))
	}
	return map[string]files{"clean": filesOf(t, disk, nil), "unclean": unclean, "absent": {}}
}

// TestReadWriteOpenOfAReadOnlyFileSystem lets the disk turn read-only at each call of an open that
// wants to write: where a call was refused the error says so. With a disk that can be written again
// the same files open, in the same state.
func TestReadWriteOpenOfAReadOnlyFileSystem(t *testing.T) {
	for kind, store := range storesOfEachKind(t) {
		t.Run(kind, func(t *testing.T) {
			db, err := reopenAt(store.disk(t), newClock(), nil)
			require.NoError(t, err)
			seq, all, err := stored(db)
			require.NoError(t, err)
			require.NoError(t, db.Close())
			n := 0
			for ; ; n++ {
				disk := store.disk(t)
				fsys, calls := readOnlyFS(disk, n)
				db, err := reopenAt(fsys, newClock(), nil)
				if *calls <= n {
					require.NoError(t, err)
					_ = db.Close() // That is no open any more.
					break
				}
				// The log preallocates its next segment after a commit: the next write gets the
				// error.
				if err == nil {
					err = db.Put([]byte("k"), nil)
					_ = db.Close()
				}
				require.ErrorIs(t, err, syscall.EROFS, "call %d", n)
				require.NotErrorIs(t, err, kv.ErrCorrupt, "call %d", n)
				requireState(t, disk, map[uint64]string{seq: all}, seq, seq, fmt.Sprintf("%s, call %d", kind, n))
			}
			require.Greater(t, n, map[string]int{"clean": 1, "unclean": 8, "absent": 8}[kind])
		})
	}
}

// TestDiskThatTurnsReadOnly: the first change that is refused is the last one that is tried.
func TestDiskThatTurnsReadOnly(t *testing.T) {
	disk := storesOfEachKind(t)["clean"].disk(t)
	before := image(t, disk, "dir")
	db, err := reopenAt(disk, newClock(), nil)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	fsys, calls := readOnlyFS(disk, 2) // What Open needs.
	db, err = reopenAt(fsys, newClock(), nil)
	require.NoError(t, err)
	require.ErrorIs(t, db.Put([]byte("k"), nil), syscall.EROFS)
	tried := *calls
	require.ErrorIs(t, db.Put([]byte("k"), nil), kv.ErrFailed)
	require.ErrorIs(t, db.Close(), syscall.EROFS)
	require.Equal(t, tried, *calls)
	require.Equal(t, before, image(t, disk, "dir"))
}

// TestReadOnlyOpenOfAReadOnlyFileSystem: every call that would change something fails the test. A
// clean store and one that needs its log replayed show all they hold, and the directory stays as it
// is.
func TestReadOnlyOpenOfAReadOnlyFileSystem(t *testing.T) {
	for kind, store := range storesOfEachKind(t) {
		t.Run(kind, func(t *testing.T) {
			disk := store.disk(t)
			before := image(t, disk, "dir")
			fsys, calls := readOnlyFS(disk, 0)
			db, err := reopenAt(fsys, newClock(), &kv.Options{ReadOnly: true})
			if kind == "absent" {
				require.ErrorIs(t, err, fs.ErrNotExist)
			} else {
				require.NoError(t, err)
				require.Equal(t, kind == "clean", db.RecoveryInfo().Clean)
				_, all, err := stored(db)
				require.NoError(t, err)
				require.Equal(t, lastState(t), all)
				checkStore(t, db)
				require.ErrorIs(t, db.Put([]byte("k"), nil), kv.ErrReadOnlyDB)
				require.NoError(t, db.Close())
			}
			require.Zero(t, *calls, "calls that change something")
			require.Equal(t, before, image(t, disk, "dir"))
		})
	}
}

// lastState is what a session ends with.
func lastState(t *testing.T) (all string) {
	t.Helper()
	newest := uint64(0)
	for seq, state := range sessionStates(t) {
		if seq > newest {
			newest, all = seq, state
		}
	}
	return all
}
