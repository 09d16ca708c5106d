package kv_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// glances is a context that ends at the n-th call of Err or Done. waited is called when Done is
// called after an earlier call: the callee waits.
type glances struct {
	context.Context
	cancel func()
	left   int
	waited func()
}

func newGlances(n int) *glances {
	ctx, cancel := context.WithCancel(context.Background())
	return &glances{Context: ctx, cancel: cancel, left: n, waited: func() {}}
}

func (g *glances) look() {
	if g.left--; g.left == 0 {
		g.cancel()
	}
}

func (g *glances) Err() error {
	g.look()
	return g.Context.Err()
}

func (g *glances) Done() <-chan struct{} {
	g.look()
	g.waited()
	return g.Context.Done()
}

// ended says whether the n-th look has come.
func (g *glances) ended() bool { return g.left <= 0 }

// A bounded call takes a context and changes something, or makes something durable.
type boundedCall struct {
	name  string
	waits int // which look at Done is that of the wait for other writers; 0: it does not wait
	do    func(ctx context.Context, db *kv.DB) error
}

var boundedCalls = []boundedCall{
	{"UpdateContext", 2, func(ctx context.Context, db *kv.DB) error {
		return db.UpdateContext(ctx, putMany(defaultCF, "new", 50))
	}},
	{"Begin", 2, func(ctx context.Context, db *kv.DB) error {
		tx, err := db.Begin(ctx, true)
		if err != nil {
			return err
		}
		return firstError(putMany(defaultCF, "new", 50)(tx), tx.Commit())
	}},
	{"Apply", 2, func(ctx context.Context, db *kv.DB) error {
		b := db.NewBatch()
		for i := range 50 {
			b.Put(fmt.Appendf(nil, "new-%d", i), []byte("v"))
		}
		return db.Apply(ctx, b)
	}},
	{"BulkLoad", 1, func(ctx context.Context, db *kv.DB) error {
		_, err := db.BulkLoad(ctx, "empty", numbered(5000))
		return err
	}},
	{"BulkLoad_with_expiries", 2, func(ctx context.Context, db *kv.DB) error {
		_, err := db.BulkLoad(ctx, "empty_with_ttl", numbered(3000))
		return err
	}},
	{"Checkpoint", 1, func(ctx context.Context, db *kv.DB) error { return db.Checkpoint(ctx) }},
	{"PurgeExpired_in_a_batch", 2, func(ctx context.Context, db *kv.DB) error {
		_, err := db.PurgeExpired(ctx, kv.PurgeOptions{})
		return err
	}},
	{"PurgeExpired_in_a_transaction", 0, func(ctx context.Context, db *kv.DB) error {
		return db.Update(func(tx *kv.Tx) error {
			_, err := tx.PurgeExpired(ctx, kv.PurgeOptions{})
			return err
		})
	}},
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestContextThatEndsAtEachLook ends the context of each call at its n-th check, for every n up to
// the call's last one, on a store without other callers and on one where another writer is open
// until the call waits. The call returns the context's error and nothing has changed, or it
// succeeds, whatever the context says by then.
func TestContextThatEndsAtEachLook(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, call := range boundedCalls {
		for _, busy := range []bool{false, true} {
			if busy && call.waits == 0 {
				continue
			}
			t.Run(call.name+map[bool]string{true: "/busy", false: "/idle"}[busy], func(t *testing.T) {
				refused := 0
				for n := 1; ; n++ {
					ctx := newGlances(n)
					err := call.bounded(t, ctx, busy)
					if !ctx.ended() {
						require.NoError(t, err)
						break
					}
					if err != nil {
						refused++
					}
				}
				if busy || call.name != "Checkpoint" { // With no one to wait for there is nothing to bound.
					require.NotZero(t, refused)
				}
			})
		}
	}
}

// bounded makes the call on a fresh store.
func (c *boundedCall) bounded(t *testing.T, ctx *glances, busy bool) error {
	db := openForCallbacks(t, &kv.Options{})
	require.NoError(t, db.CreateCF("empty", kv.CFOptions{}))
	require.NoError(t, db.CreateCF("empty_with_ttl", kv.CFOptions{DefaultTTL: time.Hour}))
	_, before, err := stored(db)
	require.NoError(t, err)
	checkpoints := db.Stats().Checkpoints
	if busy {
		holder := beginTx(t, db, true)
		looks := 0
		ctx.waited = func() {
			if looks++; looks == c.waits {
				_ = holder.Rollback()
			}
		}
		defer func() { _ = holder.Rollback() }()
	}
	err = c.do(ctx, db)
	_, after, lookErr := stored(db)
	require.NoError(t, lookErr)
	if err != nil {
		require.Equal(t, context.Canceled, err)
		require.True(t, before == after, "something has changed, but: %v", err)
		require.Equal(t, checkpoints, db.Stats().Checkpoints)
		return err
	}
	if c.name == "Checkpoint" {
		require.Equal(t, checkpoints+1, db.Stats().Checkpoints)
	} else {
		require.False(t, before == after, "nothing has changed")
	}
	return nil
}

// TestShutdownWhoseContextEndsAtEachLook: a transaction is open until Shutdown waits, or stays open.
// Shutdown succeeds in any case; the context decides whether the transaction may end by itself.
func TestShutdownWhoseContextEndsAtEachLook(t *testing.T) {
	for _, stays := range []bool{false, true} {
		for n := 1; n < 8; n++ {
			if stays && n > 1 {
				break // It would wait for ever.
			}
			fsys := vfs.NewMemory()
			db := openOn(t, fsys, quick)
			fill(t, db, "a")
			tx := beginTx(t, db, true)
			require.NoError(t, tx.Put([]byte("b"), nil))
			ctx := newGlances(n)
			committed := false
			ctx.waited = func() {
				if !stays && !committed && !ctx.ended() {
					require.NoError(t, tx.Commit())
					committed = true
				}
			}
			require.NoError(t, db.Shutdown(ctx))
			require.ErrorIs(t, tx.Rollback(), kv.ErrClosed)
			want := []string{"a=v-a"}
			if committed {
				want = append(want, "b=")
			}
			db = openOn(t, fsys, quick)
			require.Equal(t, want, rows(t, db, "default"))
		}
	}
}

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
			tx := beginTx(t, db, false)
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
