package cf_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/txn"
)

// TestTreesOfNoFamilyAreFound, few or many of them, unless an entry cannot be read that may be
// theirs. No transaction is told of trees that were dropped.
func TestTreesOfNoFamilyAreFound(t *testing.T) {
	for _, n := range []int{1, 40} {
		s, err := txn.Open("test.ebb", txn.Options{FS: vfs.NewMemory()})
		require.NoError(t, err)
		found := func(most int) (all []string) {
			view(t, s, func(tx *txn.Tx) {
				cf.Check(tx, func(family string, err error) bool {
					all = append(all, family+": "+err.Error())
					return len(all) < most
				})
			})
			return all
		}
		update(t, s, func(tx *txn.Tx) {
			_, err := cf.Create(tx, "a", cf.Options{})
			require.NoError(t, err)
			for i := range n {
				require.NoError(t, tx.Create(txn.TreeID(1000+i)))
				_, err = tx.Put(txn.TreeID(1000+i), []byte("k"), []byte("v"), 0)
				require.NoError(t, err)
			}
		})
		require.Len(t, found(100), n)
		require.Contains(t, found(1)[0], "tree 1000 belongs to no family")
		update(t, s, func(tx *txn.Tx) {
			require.NoError(t, tx.Drop(1000))
			require.Len(t, tx.Trees(), n+1)
		})
		require.Len(t, found(100), n-1)
		update(t, s, func(tx *txn.Tx) {
			_, err := tx.Put(txn.CatalogTree, []byte("b"), []byte("nonsense"), 0)
			require.NoError(t, err)
		})
		require.Len(t, found(100), 1, "what cannot be read may be the owner")
		tx, err := s.Begin(t.Context(), false)
		require.NoError(t, err)
		tx.Rollback()
		require.Empty(t, tx.Trees())
		require.NoError(t, s.Close())
	}
}
