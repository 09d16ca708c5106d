package kv_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

func TestValueAboveTheLimitIsRefused(t *testing.T) {
	if testing.Short() || racetest.Enabled || ^uint(0)>>32 == 0 {
		t.Skip("needs 1 GiB of address space")
	}
	db := openTest(t)
	huge := make([]byte, kv.MaxValueSize+1) // Never touched: it costs no memory.
	require.ErrorIs(t, db.Put([]byte("k"), huge), kv.ErrValueTooLarge)
	b := db.NewBatch()
	b.Put([]byte("k"), huge)
	require.ErrorIs(t, db.Apply(t.Context(), b), kv.ErrValueTooLarge)
}

func TestTransactionAboveTheLimitIsRefused(t *testing.T) {
	db := openOn(t, vfs.NewMemory(), &kv.Options{MaxTxnBytes: 10_000})
	value := make([]byte, 1000)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 100 {
			if err := tx.Put([]byte{byte(i + 1)}, value); err != nil {
				require.ErrorIs(t, err, kv.ErrTxnTooLarge)
				require.Greater(t, i, 5)
				return nil
			}
		}
		return errors.New("all of it fits")
	}), "the transaction stays usable")
}

func TestOptionsAreCheckedByName(t *testing.T) {
	for field, o := range map[string]kv.Options{
		"PageSize":        {PageSize: 5000},
		"PageSize 2048":   {PageSize: 2048},
		"PageSize 131072": {PageSize: 131072},
		"PageSize -4096":  {PageSize: -4096},
		"Durability":      {Durability: 2},
		"LockTimeout":     {LockTimeout: -1},
		"CacheBytes":      {CacheBytes: -1},
		"MaxBytes":        {MaxBytes: -1},
		"CheckpointBytes": {CheckpointBytes: -1},
		"MaxClockStep":    {MaxClockStep: -1},
		"MaxTxnBytes":     {MaxTxnBytes: -1},

		"FileMode drwx------":             {FileMode: fs.ModeDir | 0o700},
		"FileMode u":                      {FileMode: fs.ModeSetuid | 0o600},
		"FileMode 0400: its owner cannot": {FileMode: 0o400},
		"FileMode 0060: its owner cannot": {FileMode: 0o060},
		"AutoPurge with ReadOnly":         {ReadOnly: true, AutoPurge: &kv.AutoPurge{}},

		"AutoPurge.Interval": {AutoPurge: &kv.AutoPurge{Interval: -1}},
		"AutoPurge.Limit":    {AutoPurge: &kv.AutoPurge{Limit: -1}},
		"AutoPurge.Batch":    {AutoPurge: &kv.AutoPurge{Batch: -1}},
	} {
		_, err := kv.OpenMemory(&o)
		require.ErrorIs(t, err, kv.ErrInvalidOptions)
		require.ErrorContains(t, err, field)
	}
}
