package txn

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

// openManyRows opens a store of 500 rows in several leaves.
func openManyRows(t *testing.T) (vfs.FS, *Store) {
	t.Helper()
	disk := vfs.NewMemory()
	s := mustOpen(t, testOptions(disk))
	update(t, s, func(tx *Tx) {
		for i := range 500 {
			mustPut(t, tx, CatalogTree, fmt.Appendf(nil, "%04d", i), make([]byte, 100), 0)
		}
	})
	return disk, s
}

func TestDamageIsFoundByCheckAndBySpoiledTransactions(t *testing.T) {
	disk, s := openManyRows(t)
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, CatalogTree, []byte("big"), make([]byte, 20000), 0)
	})
	require.NoError(t, s.Close())
	f, err := disk.Open("/a.ebb", vfs.Write)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	for page := int64(2); page < size/4096; page++ {
		var b [1]byte
		at := page*4096 + 2000
		require.NoError(t, vfs.ReadFull(f, b[:], at))
		flip := func() {
			b[0] ^= 0x55
			require.NoError(t, vfs.WriteFull(f, b[:], at))
		}
		flip()
		d, err := Open("/a.ebb", testOptions(disk))
		if err != nil {
			require.ErrorIs(t, err, badfile.ErrCorrupt)
			flip()
			continue
		}
		problems := 0
		d.Check(context.Background(), func(p Problem) bool {
			problems++
			require.NotEmpty(t, p.Detail)
			return problems < 3
		})
		if problems == 0 {
			// Only free pages may change without a word.
			tx := begin(t, d, false)
			require.Len(t, contents(t, tx, CatalogTree), 501)
			tx.Rollback()
		} else {
			tx := begin(t, d, false)
			c := tx.Cursor(CatalogTree)
			for ok := c.First(); ok; ok = c.Next() {
				_ = c.Value()
			}
			if c.Err() != nil {
				require.ErrorIs(t, c.Err(), badfile.ErrCorrupt)
				_, _, _, err = tx.Get(CatalogTree, []byte("0001"))
				require.ErrorIs(t, err, badfile.ErrCorrupt, "the transaction is dead")
				require.ErrorIs(t, tx.Err(), badfile.ErrCorrupt)
			}
			tx.Rollback()
		}
		_ = d.Close()
		flip()
	}
	require.NoError(t, f.Close())
	openTest(t, "/a.ebb", testOptions(disk))
}

// TestCheckReportsSkippedParts damages the root of a tree: Check does not report the pages below it
// as leaks.
func TestCheckReportsSkippedParts(t *testing.T) {
	disk, s := openManyRows(t)
	require.NoError(t, s.Checkpoint(nil))
	root, _ := s.head.trees.get(CatalogTree)
	require.NoError(t, s.Close())
	f, err := disk.Open("/a.ebb", vfs.Write)
	require.NoError(t, err)
	require.NoError(t, vfs.WriteFull(f, []byte{0xff}, int64(root.Root.Pgid)*4096+2000))
	require.NoError(t, f.Close())

	s = mustOpen(t, testOptions(disk))
	var found []Problem
	s.Check(t.Context(), func(p Problem) bool { found = append(found, p); return true })
	require.NoError(t, s.Close())
	require.Len(t, found, 2)
	require.Equal(t, "tree", found[0].Kind)
	require.EqualValues(t, root.Root.Pgid, found[0].Page)
	require.Equal(t, "incomplete", found[1].Kind)
	require.Regexp(t, "^[0-9]{2} pages in use are reached from no page that can be read", found[1].Detail)
}

func TestCheckEndsWithItsContextAndOnAClosedStore(t *testing.T) {
	s := mustOpen(t, testOptions(vfs.NewMemory()))
	update(t, s, func(tx *Tx) {
		mustPut(t, tx, CatalogTree, []byte("k"), nil, 0)
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var kinds []string
	note := func(p Problem) bool { kinds = append(kinds, p.Kind); return true }
	s.Check(ctx, note)
	require.Contains(t, kinds, "incomplete")
	require.NoError(t, s.Close())
	kinds = nil
	s.Check(context.Background(), note)
	require.Equal(t, []string{"closed"}, kinds)
	require.NoError(t, s.Close())
	_, err := s.Begin(nil, true)
	require.ErrorIs(t, err, ErrClosed)
	_, err = s.Begin(nil, false)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, s.Sync(), ErrClosed)
	require.NoError(t, s.Abandon())
	require.Equal(t, 4096, s.Stats().PageSize, "the last numbers stay")
}
