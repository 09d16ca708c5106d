package txn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// mustOpen is Open of a store that the test closes.
func mustOpen(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open("/a.ebb", o)
	require.NoError(t, err)
	return s
}

func begin(t testing.TB, s *Store, writable bool) *Tx {
	t.Helper()
	tx, err := s.Begin(nil, writable)
	require.NoError(t, err)
	return tx
}

func mustPut(t testing.TB, tx *Tx, id TreeID, key, value []byte, tag int64) {
	t.Helper()
	_, err := tx.Put(id, key, value, tag)
	require.NoError(t, err)
}

func mustDelete(t testing.TB, tx *Tx, id TreeID, key []byte) {
	t.Helper()
	_, err := tx.Delete(id, key)
	require.NoError(t, err)
}
