package txn

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// writeFile makes a durable file of b.
func writeFile(t *testing.T, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fsys.Open(name, vfs.Write|vfs.Create)
	require.NoError(t, err)
	require.NoError(t, errors.Join(f.Truncate(int64(len(b))), vfs.WriteFull(f, b, 0), f.Sync(), f.Close()))
}

// TestCopyIsAStore: the copy of a snapshot is a whole file that opens without recovery, with the rows
// and tags of the snapshot, an id of its own and no free page, whatever commits come beside it.
func TestCopyIsAStore(t *testing.T) {
	racetest.OneGoroutine(t)
	for name, small := range map[string]bool{"groups of the format": false, "small groups": true} {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(8, 8))
			o := testOptions(vfs.NewMemory())
			o.SmallGroups = small
			s := openTest(t, "/a.ebb", o)
			churn(t, s, rnd, 30)
			for range 4 {
				churn(t, s, rnd, 10) // some of it in frames
				tx := begin(t, s, false)
				to := &slowWriter{beside: func() {
					if rnd.IntN(8) == 0 {
						churn(t, s, rnd, 3)
					}
				}}
				n, err := tx.CopyTo(t.Context(), to)
				require.NoError(t, err)
				require.EqualValues(t, to.Len(), n)
				requireCopy(t, tx, s, o, to.Bytes())
				tx.Rollback()
			}
		})
	}
}

func requireCopy(t *testing.T, tx *Tx, s *Store, o Options, file []byte) {
	t.Helper()
	o.FS, o.MustExist = vfs.NewMemory(), true
	writeFile(t, o.FS, "/c.ebb", file)
	c, err := Open("/c.ebb", o)
	require.NoError(t, err)
	require.True(t, c.Recovery().Clean)
	requireSound(t, c)
	require.NotEqual(t, s.pg.StoreID(), c.pg.StoreID())
	require.Zero(t, c.Stats().FreeBytes)
	require.EqualValues(t, len(file), c.Stats().FileBytes)
	cx := begin(t, c, false)
	require.Equal(t, tx.Seq(), cx.Seq())
	require.Equal(t, tx.Mark(), cx.Mark())
	a, b := tx.Cursor(9), cx.Cursor(9)
	for ok := a.First(); ok; ok = a.Next() {
		if b.Valid() {
			b.Next()
		} else {
			b.First()
		}
		require.True(t, b.Valid())
		require.True(t, bytes.Equal(a.Key(), b.Key()) && bytes.Equal(a.Value(),
			b.Value()) && a.Tag() == b.Tag())
	}
	require.Equal(t, tx.Rows(9), cx.Rows(9))
	require.Equal(t, tx.Exists(10), cx.Exists(10))
	cx.Rollback()
	churn(t, c, rand.New(rand.NewPCG(9, 9)), 10)
	requireSound(t, c)
	require.NoError(t, c.Close())
}
