package kv_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// TestShutdownEndsCursorsOfOtherGoroutines moves and reads a cursor until it has ended, while another
// goroutine shuts the store down.
func TestShutdownEndsCursorsOfOtherGoroutines(t *testing.T) {
	for _, writable := range []bool{false, true} {
		t.Run(fmt.Sprintf("writable_%v", writable), func(t *testing.T) {
			db := openMapped(t)
			tx, err := db.Begin(t.Context(), writable)
			require.NoError(t, err)
			c := tx.CF("f").Cursor()
			require.True(t, c.First())
			done := make(chan error)
			go func() {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				done <- db.Shutdown(ctx)
			}()
			for c.Valid() {
				if key := c.Key(); key != nil {
					require.Len(t, key, 1)
				}
				if value := c.Value(); value != nil {
					require.Len(t, value, 10_000)
				}
				if !c.Next() && c.Err() == nil {
					c.First()
				}
			}
			require.ErrorIs(t, c.Err(), kv.ErrClosed)
			require.NoError(t, <-done)
			_ = tx.Rollback()
		})
	}
}

// TestReadsThatMeetShutdownReturnErrClosed: a reader that Shutdown had ended during a call read from
// the closed file, without a map of it, and returned "a read failed", which OnDamage took for a
// damaged range.
func TestReadsThatMeetShutdownReturnErrClosed(t *testing.T) {
	for _, onDamage := range []bool{false, true} {
		t.Run(fmt.Sprintf("onDamage_%v", onDamage), func(t *testing.T) {
			var db *kv.DB
			closeAtRead := false
			fsys := &hookFS{vfs.NewMemory(), func(call, _ string) error {
				if call != "read" || !closeAtRead {
					return nil
				}
				closeAtRead = false
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				return db.Shutdown(ctx)
			}}
			open := func() {
				var err error
				db, err = openfs.Open(fsys, "a.ebb", nil, txn.Options{NoMap: true})
				require.NoError(t, err)
			}
			open()
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				for i := range 300 {
					if err := tx.Put(fmt.Appendf(nil, "%03d", i), make([]byte, 500)); err != nil {
						return err
					}
				}
				return nil
			}))
			require.NoError(t, db.Close())
			open()
			tx, err := db.Begin(t.Context(), false)
			require.NoError(t, err)
			if onDamage {
				tx.OnDamage(func(d kv.Damage) bool { t.Errorf("damage: %v", d); return true })
			}
			c := tx.Cursor()
			require.True(t, c.First())
			closeAtRead = true
			for c.Next() {
			}
			require.False(t, closeAtRead)
			require.ErrorIs(t, c.Err(), kv.ErrClosed)
			require.NotErrorIs(t, tx.Rollback(), kv.ErrFailed)
		})
	}
}
