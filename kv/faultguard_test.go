package kv

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A fault is what the runtime panics with when memory cannot be read and the guard is armed.
type fault struct{ addr uintptr }

func (f fault) Error() string { return fmt.Sprintf("fault at %#x", f.addr) }
func (f fault) RuntimeError() {}
func (f fault) Addr() uintptr { return f.addr }

// plain is another runtime error.
type plain struct{}

func (plain) Error() string { return "integer divide by zero" }
func (plain) RuntimeError() {}

func TestFaultBecomesAnErrorAndTheTransactionIsDead(t *testing.T) {
	db, err := OpenMemory(nil)
	require.NoError(t, err)
	for _, writable := range []bool{false, true} {
		tx, err := db.Begin(t.Context(), writable)
		require.NoError(t, err)
		call := func() (err error) {
			defer tx.leave(tx.enter(), &err)
			panic(fault{0x70001000})
		}
		err = call()
		require.ErrorIs(t, err, ErrCorrupt)
		var bad *CorruptError
		require.True(t, errors.As(err, &bad))
		require.Equal(t, "memory.ebb", bad.File)
		_, again := tx.Get([]byte("k"))
		require.Equal(t, err, again)
		require.Equal(t, err, tx.Err())
		if writable {
			require.Equal(t, err, tx.Commit())
		}
		_ = tx.Rollback()
	}
	require.NoError(t, db.Close())
}

func TestOtherPanicsPassTheGuardUnchanged(t *testing.T) {
	db, err := OpenMemory(nil)
	require.NoError(t, err)
	tx, err := db.Begin(t.Context(), true)
	require.NoError(t, err)
	for _, value := range []any{"text", errors.New("an error"), plain{}, fault{0}} {
		require.PanicsWithValue(t, value, func() {
			var err error
			defer tx.leave(tx.enter(), &err)
			panic(value)
		})
		require.NoError(t, tx.Put([]byte("k"), nil), "the transaction is free again")
	}
	require.NoError(t, tx.Rollback())
	require.NoError(t, db.Close())
}

// TestRangeBodyIsOutsideOfTheGuard: a fault there is the body's own.
func TestRangeBodyIsOutsideOfTheGuard(t *testing.T) {
	db, err := OpenMemory(nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("k"), nil))
	for _, run := range []func(func(*Tx) error) error{db.View, db.Update} {
		require.PanicsWithValue(t, fault{0x70001000}, func() {
			_ = run(func(tx *Tx) error {
				for range tx.All() {
					panic(fault{0x70001000})
				}
				return nil
			})
		})
	}
	require.ErrorIs(t, db.guarded(func() error { panic(fault{0x70001000}) }), ErrCorrupt)
	require.Panics(t, func() { _ = db.guarded(func() error { panic("other") }) })
	require.NoError(t, db.Close())
}

func TestPrefixEndsBeforeTheNextKey(t *testing.T) {
	for p, want := range map[string]string{"": "", "a": "b", "a\xff": "b", "\xff\xff": "", "\xfe\xff": "\xff", "\x00": "\x01"} {
		require.Equal(t, want, string(afterPrefix([]byte(p))), "%q", p)
	}
}
