package txn

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
)

// TestReserveForLeavesOfARefusedBatchIsReleased: the next open copies what the log names, and the log
// names nothing of what was rolled back. Else as much room was kept for these copies until the next
// checkpoint, which has nothing to write after that.
func TestReserveForLeavesOfARefusedBatchIsReleased(t *testing.T) {
	racetest.OneGoroutine(t)
	fits := func(refused bool) (n int) {
		s, disk, _ := fullStore(t)
		appendRows(t, s, 0, 100)
		require.NoError(t, s.Checkpoint(t.Context()))
		disk.SetCapacity(disk.Used() + 6<<20)
		if refused {
			tx := begin(t, s, true)
			tx.SetDurability(NoSync)
			require.ErrorIs(t, tx.Apply(CatalogTree, inOrder(100, 100_000), nil), ErrNoSpace)
			tx.Rollback()
			require.NoError(t, s.Checkpoint(t.Context()))
		}
		for ; ; n++ {
			tx, err := s.Begin(nil, true)
			require.NoError(t, err)
			if _, err = tx.Put(9, fmt.Append(nil, n), make([]byte, 80<<10), 0); err == nil {
				err = tx.Commit(Sync)
			}
			tx.Rollback()
			if err != nil {
				require.ErrorIs(t, err, ErrNoSpace)
				return n
			}
		}
	}
	without := fits(false)
	require.Greater(t, without, 40)
	require.InDelta(t, without, fits(true), 15)
}
