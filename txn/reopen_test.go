package txn

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// TestLargeValueRightAfterReopeningGetsPagesOfItsOwn tells the story of a store whose file had no hole as large as the
// value: the extent was put behind the end of the file before the free map of that region had been read, and the free
// map then counted the extent's pages as free, so that the next page of the same transaction was put into the extent.
func TestLargeValueRightAfterReopeningGetsPagesOfItsOwn(t *testing.T) {
	fs := vfs.NewMemory()
	o := testOptions(fs)
	s, err := Open("/a.ebb", o)
	require.NoError(t, err)
	update(t, s, func(tx *Tx) {
		_, err := tx.Put(CatalogTree, []byte("a"), []byte("small"), 0)
		require.NoError(t, err)
	})
	require.NoError(t, s.Close())

	s = openTest(t, "/a.ebb", o)
	big := bytes.Repeat([]byte("x"), 200<<10)
	update(t, s, func(tx *Tx) {
		_, err := tx.Put(CatalogTree, []byte("big"), big, 0)
		require.NoError(t, err)
	})
	require.NoError(t, s.Checkpoint(nil))
	tx, err := s.Begin(nil, false)
	require.NoError(t, err)
	defer tx.Rollback()
	v, _, found, err := tx.Get(CatalogTree, []byte("big"))
	require.NoError(t, err)
	require.True(t, found)
	require.True(t, bytes.Equal(big, v))
}
