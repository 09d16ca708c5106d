package kv_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// TestReadErrorIsOfItsCallOnly fails each read of a disk in turn, of a recovery and of a store that is read through: the
// call gives that error and takes it neither for damage nor for an absent key nor for the end of the log. The same files,
// read again, hold everything; a store that is open goes on, and writes.
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

func requireReadError(t *testing.T, err error, n int) {
	t.Helper()
	require.ErrorIs(t, err, errMachine, "read %d", n)
	require.NotErrorIs(t, err, kv.ErrCorrupt, "read %d", n)
	require.NotErrorIs(t, err, kv.ErrNotFound, "read %d", n)
}
