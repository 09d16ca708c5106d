package txn

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// TestTransactionWithRevokedParts recovers from a panic of the commit callback, in the middle of a
// large transaction or in its commit, and then tries to commit it: the record would lack its first
// parts.
func TestTransactionWithRevokedParts(t *testing.T) {
	for _, at := range []string{"put", "commit"} {
		t.Run(at, func(t *testing.T) {
			fs := vfs.NewMemory()
			o := testOptions(fs)
			armed, notified := false, 0
			o.Events.Group = func(int, int64, time.Duration) {
				if armed {
					notified++
					panic(at)
				}
			}
			s := mustOpen(t, o)
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })

			tx := begin(t, s, true)
			put := func(n int) {
				key, value := []byte{byte(n)}, bytes.Repeat([]byte{byte(n)}, 3000)
				mustPut(t, tx, 9, key, value, 0)
			}
			rows := 0
			for tx.w.flushed == 0 {
				put(rows)
				rows++
			}
			armed = true
			require.PanicsWithValue(t, at, func() {
				for at == "put" {
					put(rows)
					rows++
				}
				_ = tx.Commit(Sync)
			})
			require.Equal(t, 1, notified)
			armed = false
			_, err := tx.Put(9, []byte("more"), nil, 0)
			require.ErrorIs(t, err, errAppendStopped)
			require.ErrorIs(t, tx.Commit(Sync), errAppendStopped)
			tx.Rollback()
			update(t, s, func(tx *Tx) {
				_,
					err := tx.Put(9, []byte("next"), nil, 0)
				require.NoError(t, err)
			})

			require.NoError(t, s.Abandon())
			s = openTest(t, "/a.ebb", testOptions(fs))
			tx = begin(t, s, false)
			defer tx.Rollback()
			require.Equal(t, uint64(1), tx.Rows(9))
		})
	}
}
