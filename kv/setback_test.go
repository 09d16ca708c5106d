package kv_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// TestKeysOfASetBackClockLive: a purge, and the eviction behind a read, go by an instant that was
// read before others found the clock set back. Keys that were written then, or are alive again,
// were deleted for it.
func TestKeysOfASetBackClockLive(t *testing.T) {
	key := []byte("key")
	t.Run("purge", func(t *testing.T) {
		db, clock := openClock(t, kv.Options{})
		fillTTL(t, db, 600, time.Second)
		clock.move(time.Hour)
		wrote := false
		res, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{Progress: func(int64) {
			if !wrote {
				wrote = true
				clock.move(-59 * time.Minute)
				require.NoError(t, db.PutTTL(key, nil, 10*time.Second))
			}
		}})
		require.NoError(t, err)
		require.Equal(t, kv.PurgeResult{Purged: 600, Batches: 3}, res, "what is due all the same")
		left, err := db.TTL(key)
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, left)
	})
	t.Run("purge_of_what_is_alive_again", func(t *testing.T) {
		db, clock := openClock(t, kv.Options{})
		fillTTL(t, db, 600, 30*time.Minute)
		clock.move(time.Hour)
		res, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{Progress: func(int64) {
			clock.move(-59 * time.Minute)
			_ = nowOf(t, db)
		}})
		require.NoError(t, err)
		require.Equal(t, kv.PurgeResult{Purged: 256, Batches: 1}, res)
		live, err := db.CountLive()
		require.NoError(t, err)
		require.Equal(t, int64(600-256), live)
	})
	t.Run("eviction", func(t *testing.T) {
		db, clock := openClock(t, kv.Options{})
		require.NoError(t, db.PutTTL(key, nil, time.Minute))
		clock.move(time.Hour)
		late := nowOf(t, db)
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			_, err := tx.Get(key)
			require.ErrorIs(t, err, kv.ErrNotFound)
			return nil
		}))
		clock.move(-time.Hour)
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			_, err := tx.Get(key)
			return err
		}))
		require.Equal(t, 1, kv.Notes(db))
		kv.EvictIdle(db, late.UnixMilli())
		left, err := db.TTL(key)
		require.NoError(t, err)
		require.Equal(t, time.Minute, left)
	})
}
