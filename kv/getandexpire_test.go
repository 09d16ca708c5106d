package kv_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

func TestGetAndExpireKeepsAKeyAlive(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	k := []byte("session")
	require.NoError(t, db.PutTTL(k, []byte("ann"), time.Minute))
	for range 5 {
		clock.move(50 * time.Second)
		value, err := db.GetAndExpire(k, time.Minute)
		require.NoError(t, err)
		require.Equal(t, "ann", string(value))
		left, err := db.TTL(k)
		require.NoError(t, err)
		require.Equal(t, time.Minute, left)
	}
	_, err := db.GetAndExpire(k, 0)
	require.ErrorIs(t, err, kv.ErrInvalidTTL)
	_, err = db.GetAndExpire(k, kv.NoExpiry)
	require.ErrorIs(t, err, kv.ErrInvalidTTL)
	_, err = db.GetAndExpire([]byte("absent"), time.Minute)
	require.ErrorIs(t, err, kv.ErrNotFound)
	clock.move(time.Minute)
	_, err = db.GetAndExpire(k, time.Minute)
	require.ErrorIs(t, err, kv.ErrNotFound, "an expired key does not come back")
}

// TestGetAndExpireReturnsACopy: changes of the caller and of the transaction do not meet.
func TestGetAndExpireReturnsACopy(t *testing.T) {
	db := openTest(t)
	small, large := []byte("small"), []byte("large")
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		require.NoError(t, tx.Put(small, []byte("old")))
		require.NoError(t, tx.Put(large, make([]byte, 50_000)))
		value, err := tx.GetAndExpire(small, time.Hour)
		require.NoError(t, err)
		require.NoError(t, tx.Put(small, []byte("new")))
		require.Equal(t, "old", string(value))
		value, err = tx.GetAndExpire(large, time.Hour)
		require.NoError(t, err)
		value[0] = 1
		return nil
	}))
	value, err := db.Get(large)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 50_000), value)
	empty, err := db.PutWith([]byte("empty"), nil, kv.PutOptions{})
	require.NoError(t, err)
	require.True(t, empty)
	value, err = db.GetAndExpire([]byte("empty"), time.Hour)
	require.NoError(t, err)
	require.NotNil(t, value)
}
