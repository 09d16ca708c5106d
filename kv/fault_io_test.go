package kv_test

import (
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// TestReadErrorIsOfItsCallOnly fails each read of a disk in turn, of a recovery and of a store that is
// read through: the call returns that error, and not damage, an absent key or the end of the log. The
// same files, read again, have all rows; an open store still reads and writes.
func TestReadErrorIsOfItsCallOnly(t *testing.T) {
	want := lastState(t)
	for kind, store := range storesOfEachKind(t) {
		if kind == "absent" {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			n := 0
			for ; ; n++ {
				disk := store.disk(t)
				reads := 0
				fsys := &hookFS{disk, func(call, _ string) error {
					if call == "read" || call == "size" {
						if reads++; reads == n+1 {
							return errMachine
						}
					}
					return nil
				}}
				db, err := reopenAt(fsys, newClock(), nil)
				if err != nil {
					requireReadError(t, err, n)
					db, err = reopenAt(fsys, newClock(), nil)
				}
				require.NoError(t, err, "read %d", n)
				_, all, err := stored(db)
				if err != nil {
					requireReadError(t, err, n)
					_, all, err = stored(db)
				}
				require.NoError(t, err, "read %d", n)
				require.True(t, want == all, "read %d: something else is stored", n)
				last := reads <= n
				reads = n + 1 // No more of it.
				require.NoError(t, db.Put([]byte("new"), nil), "read %d", n)
				checkStore(t, db)
				require.NoError(t, db.Close(), "read %d", n)
				if last {
					break
				}
			}
			require.Greater(t, n, 15)
		})
	}
}

// TestReadErrorInAWriteIsOfItsTransactionOnly fails each read of a write transaction, of its trees and
// of the free map: the transaction ends with that error, and the next one succeeds.
func TestReadErrorInAWriteIsOfItsTransactionOnly(t *testing.T) {
	disk := vfs.NewMemory()
	var armed bool
	reads, fail := 0, -1
	fsys := &hookFS{disk, func(call, _ string) error {
		if armed && call == "read" {
			if reads++; reads == fail {
				return errMachine
			}
		}
		return nil
	}}
	open := func() *kv.DB {
		db := mustOpenOn(t, fsys, &kv.Options{PageSize: 4096}, txn.Options{NoMap: true})
		return db
	}
	db := open()
	require.NoError(t, db.Update(putMany(defaultCF, "row", 2000)))
	require.NoError(t, db.Checkpoint(t.Context()))
	require.NoError(t, db.DeleteRange([]byte("row-2"), []byte("row-4"))) // so that there is space to be found
	require.NoError(t, db.Close())
	for fail = 1; ; fail++ {
		db := open()
		armed, reads = true, 0
		write := func() error {
			return db.Update(func(tx *kv.Tx) error {
				if err := tx.Put([]byte("row"), make([]byte, 10_000)); err != nil {
					return err
				}
				return tx.Delete([]byte("row"))
			})
		}
		err := write()
		armed = false
		if reads >= fail {
			requireReadError(t, err, fail)
			require.NotErrorIs(t, err, kv.ErrFailed, "read %d", fail)
			err = write()
		}
		require.NoError(t, err, "read %d", fail)
		checkStore(t, db)
		require.NoError(t, db.Close())
		if reads < fail {
			break
		}
	}
	require.Greater(t, fail, 3)
}

func requireReadError(t *testing.T, err error, n int) {
	t.Helper()
	require.ErrorIs(t, err, errMachine, "read %d", n)
	require.NotErrorIs(t, err, kv.ErrCorrupt, "read %d", n)
	require.NotErrorIs(t, err, kv.ErrNotFound, "read %d", n)
}

// TestShortWritesAreFinished makes each write of a session short in turn, with and without an error:
// all calls succeed.
func TestShortWritesAreFinished(t *testing.T) {
	racetest.OneGoroutine(t)
	want := lastState(t)
	for _, cause := range []error{nil, io.ErrShortWrite} {
		fired := 1
		for n := 0; fired > 0; n += stride(5) {
			disk := crashfs.New(crashfs.Options{Untraced: true})
			in := disk.Inject(crashfs.Fault{Do: crashfs.Short, N: n, Err: cause})
			s, err := openSession(disk)
			require.NoError(t, err, "write %d", n)
			require.NoError(t, s.run(), "write %d", n)
			if fired = in.Fired(); fired == 0 {
				require.Greater(t, n, 50)
			}
			db, err := reopenAt(disk, newClock(), nil)
			require.NoError(t, err, "write %d", n)
			_, all, err := stored(db)
			require.NoError(t, err, "write %d", n)
			require.True(t, want == all, "write %d: something else is stored", n)
			require.NoError(t, db.Close())
		}
	}
}

// TestWritesOfNothingAreErrors makes each write of a session write nothing and return success, once and
// from then on: the call returns an error, and no acknowledged commit is lost.
func TestWritesOfNothingAreErrors(t *testing.T) {
	racetest.OneGoroutine(t)
	states := sessionStates(t)
	for _, sticky := range []bool{false, true} {
		for n := 0; ; n += stride(5) {
			disk := crashfs.New(crashfs.Options{Untraced: true})
			s, err := openSession(disk)
			require.NoError(t, err)
			in := disk.Inject(crashfs.Fault{Do: crashfs.Zero, N: n, Sticky: sticky})
			err = s.run()
			if in.Fired() == 0 {
				require.NoError(t, err)
				require.Greater(t, n, 50)
				break
			}
			if err == nil {
				// The log readies its next segment, and notes what is durable, when its duty is
				// done.
				require.Equal(t, "close", s.step)
			} else {
				require.ErrorIs(t, err, io.ErrShortWrite, "write %d in %s", n, s.step)
			}
			in.Disarm()
			_ = s.db.Close()
			requireState(t, disk, states, s.acked, s.begun,
				fmt.Sprintf("write %d of nothing in %s", n, s.step))
		}
	}
}

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

// TestReadWriteOpenOfAReadOnlyFileSystem makes the disk read-only at each call of an open for writing:
// a refused call returns the error. On a writable disk the same files open, in the same state.
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
				requireState(t, disk, map[uint64]string{seq: all}, seq, seq,
					fmt.Sprintf("%s, call %d", kind, n))
			}
			require.Greater(t, n, map[string]int{"clean": 1, "unclean": 8, "absent": 8}[kind])
		})
	}
}

// TestDiskThatTurnsReadOnly: after the first refused change the store tries no other.
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

// TestReadOnlyOpenOfAReadOnlyFileSystem: every call that would change a file fails the test. A clean
// store, and one that needs its log replayed, have all their rows, and the directory is unchanged.
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
