package kv_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// churn overwrites the same rows in many commits, with a checkpoint now and then.
func churn(t *testing.T, db *kv.DB, rounds int) {
	t.Helper()
	for i := range rounds {
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			for k := range 40 {
				key := fmt.Appendf(nil, "%03d", (i*7+k*11)%400)
				if err := tx.Put(key, fmt.Appendf(nil, "%0200d", i)); err != nil {
					return err
				}
			}
			return nil
		}))
		if i%20 == 19 {
			require.NoError(t, db.Checkpoint(context.Background()))
		}
	}
}

// TestReaderOpenForHours holds a snapshot over many commits and checkpoints, on a clock of the
// test's own. It sees the same throughout; writers never wait; its age is told; the file grows by
// what it pins, not with every commit; and when it has ended, all of that is used again.
func TestReaderOpenForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := kv.OpenFS(vfs.NewMemory(), path, nil, kv.Tuning{SegmentSize: 64 << 10, Inline: true})
		require.NoError(t, err)
		churn(t, db, 40)
		churn(t, db, 100)
		plain := db.Stats().FileBytes

		tx, err := db.Begin(t.Context(), false)
		require.NoError(t, err)
		sum := snapshot(t, tx)
		pinned := int64(0)
		for hour := range 5 {
			time.Sleep(time.Hour)
			churn(t, db, 100)
			stats := db.Stats()
			require.Equal(t, 1, stats.Readers)
			require.Equal(t, time.Duration(hour+1)*time.Hour, stats.OldestReaderAge, "writers have not waited")
			now := snapshot(t, tx)
			require.Equal(t, sum, now)
			if hour == 0 {
				pinned = stats.PinnedBytes
				require.NotZero(t, pinned)
			}
			require.Equal(t, pinned, stats.PinnedBytes, "the snapshot is no larger than it was")
			require.LessOrEqual(t, stats.FileBytes, plain+pinned+(256<<10), "one step of growth above what is pinned")
		}
		grown := db.Stats().FileBytes
		require.NoError(t, tx.Rollback())
		require.Zero(t, db.Stats().OldestReaderAge)
		churn(t, db, 100)
		require.Zero(t, db.Stats().PinnedBytes)
		require.LessOrEqual(t, db.Stats().FileBytes, grown, "what was pinned is used again")
		checkStore(t, db)
		require.NoError(t, db.Close())
	})
}

// snapshot reads all that a transaction sees.
func snapshot(t *testing.T, tx *kv.Tx) (all string) {
	t.Helper()
	n := 0
	for k, v := range tx.All() {
		n++
		all += string(k) + "=" + string(v) + "\n"
	}
	require.NoError(t, tx.Err())
	require.Equal(t, 400, n)
	return all
}
