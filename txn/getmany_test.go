package txn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// requireMany looks the rows of a tree up together, in the random order of a map. Every test that reads
// the contents of a tree does so: with deltas, undone pages, frames and pages of the file.
func requireMany(t *testing.T, tx *Tx, id TreeID, want map[string]string) {
	t.Helper()
	var found [GetManyKeys]Lookup
	keys, most := make([][]byte, 0, GetManyKeys), 1
	look := func() {
		t.Helper()
		require.NoError(t, tx.GetMany(id, keys, &found))
		for i, key := range keys {
			value, there := want[string(key)]
			require.Equal(t, there, found[i].Found, "%q", key)
			require.True(t, value == string(found[i].Bytes), "%q", key)
		}
		keys, most = keys[:0], most%GetManyKeys+1
	}
	for key := range want {
		if keys = append(keys, []byte(key)); len(keys) < most {
			continue
		}
		if most%5 == 0 {
			keys[0] = append(keys[0], "absent"...)
		}
		look()
	}
	look()
}

func TestGetManyOfAMissingTreeFindsNothing(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	view(t, s, func(tx *Tx) {
		found := [GetManyKeys]Lookup{{Found: true}, {Found: true}}
		require.NoError(t, tx.GetMany(99, [][]byte{[]byte("k")}, &found))
		require.False(t, found[0].Found)
	})
	tx := begin(t, s, false)
	tx.Rollback()
	var found [GetManyKeys]Lookup
	require.ErrorIs(t, tx.GetMany(99, nil, &found), ErrTxnDone)
}
