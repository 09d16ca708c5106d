package kv_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// TestFileCutShortUnderAnOpenStoreIsAnError: the pages behind the cut are mapped, and touching them is a fault.
func TestFileCutShortUnderAnOpenStoreIsAnError(t *testing.T) {
	at := filepath.Join(t.TempDir(), "a.ebb")
	db, err := kv.Open(at, nil)
	require.NoError(t, err)
	_, err = db.BulkLoad(t.Context(), "default", numbered(100_000))
	require.NoError(t, err)
	require.NoError(t, db.Close())

	db, err = kv.Open(at, nil)
	require.NoError(t, err)
	if err := os.Truncate(at, 4*4096); err != nil {
		t.Skip("an open file cannot be cut short here:", err)
	}
	key := []byte("k00050000")
	_, err = db.Get(key)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorIs(t, db.View(func(tx *kv.Tx) error {
		for range tx.All() {
		}
		return nil
	}), kv.ErrCorrupt)
	require.ErrorIs(t, db.View(func(tx *kv.Tx) error {
		c := tx.Cursor()
		c.Seek(key)
		return c.Err()
	}), kv.ErrCorrupt)
	require.ErrorIs(t, db.Put(key, nil), kv.ErrCorrupt)
	found := 0
	for range db.Check(t.Context()) {
		found++
	}
	require.NotZero(t, found)
	_ = db.Close()
}
