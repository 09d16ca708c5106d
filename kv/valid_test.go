package kv_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// TestValueStaysUntilTheTransactionEnds, also one that the transaction itself has written, and then
// undone or deleted. The file is a real one, whose pages are mapped: what is written to them shows
// in slices that point there.
func TestValueStaysUntilTheTransactionEnds(t *testing.T) {
	// One page, which a deletion gives to the tree; one that a rollback gives to the next value;
	// some pages; many.
	for _, size := range []int{1500, 3000, 20_000, 300_000} {
		value := func(b byte) []byte { return bytes.Repeat([]byte{b}, size) }
		for name, undo := range map[string]func(tx *kv.Tx, sp kv.Savepoint) error{
			"rollback": func(tx *kv.Tx, sp kv.Savepoint) error { return tx.RollbackTo(sp) },
			"delete":   func(tx *kv.Tx, _ kv.Savepoint) error { return tx.Delete([]byte("a")) },
			"put":      func(tx *kv.Tx, _ kv.Savepoint) error { return tx.Put([]byte("a"), value('c')) },
		} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				db, err := kv.OpenFS(
					nil,
					filepath.Join(t.TempDir(), "a.ebb"),
					&kv.Options{CacheBytes: 1 << 20},
					kv.Tuning{},
				)
				require.NoError(t, err)
				defer func() { require.NoError(t, db.Close()) }()
				require.NoError(t, db.Update(func(tx *kv.Tx) error {
					var sp kv.Savepoint
					if name == "rollback" {
						sp = tx.Savepoint() // pages of transactions without one are used again sooner
					}
					for _, key := range []string{"a", "aa", "ab"} {
						require.NoError(t, tx.Put([]byte(key), value('a')))
					}
					got, err := tx.Get([]byte("a"))
					require.NoError(t, err)
					require.NoError(t, undo(tx, sp))
					for i := range 4 << 20 / size {
						require.NoError(t, tx.Put(fmt.Appendf(nil, "b%d", i), value('b')))
						require.NoError(t, tx.Put(fmt.Appendf(nil, "c%d", i), make([]byte, 900)))
					}
					require.True(t, bytes.Equal(value('a'), got))
					return nil
				}))
			})
		}
	}
}
