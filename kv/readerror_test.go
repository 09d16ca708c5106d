package kv_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// TestReadErrorIsOfItsCallOnly fails each read of a disk in turn, of a recovery and of a store that
// is read through: the call gives that error and takes it neither for damage nor for an absent key
// nor for the end of the log. The same files, read again, hold everything; a store that is open
// goes on, and writes.
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

// TestReadErrorInAWriteIsOfItsTransactionOnly fails each read that a write transaction makes, of
// its trees and of the free map: the transaction ends with that error, and the next one does what
// it could not.
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
		db, err := kv.OpenFS(fsys, path, &kv.Options{PageSize: 4096}, kv.Tuning{NoMap: true})
		require.NoError(t, err)
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
