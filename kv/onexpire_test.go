package kv_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// expireLog records the calls of OnExpireTx whose transactions were committed, as "key=value".
type expireLog struct {
	called    int
	committed []string
	then      func(tx *kv.Tx, key, value []byte) error // what a call does besides; nil: nothing
}

func (l *expireLog) onExpireTx(tx *kv.Tx, _ string, key, value []byte) error {
	l.called++
	what := fmt.Sprintf("%s=%s", key, value)
	tx.OnCommit(func() { l.committed = append(l.committed, what) })
	if l.then == nil {
		return nil
	}
	return l.then(tx, key, value)
}

// openExpireLog opens a store with two expired rows a and b, of values 1 and 2, and a live row c.
func openExpireLog(t *testing.T) (*kv.DB, *expireLog, *testClock) {
	t.Helper()
	l := &expireLog{}
	db, clock := openClock(t, kv.Options{OnExpireTx: l.onExpireTx})
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		return errors.Join(
			tx.PutTTL([]byte("b"), []byte("2"), 2*time.Second),
			tx.PutTTL([]byte("a"), []byte("1"), time.Second),
			tx.PutTTL([]byte("c"), []byte("3"), time.Hour),
		)
	}))
	clock.move(time.Minute)
	return db, l, clock
}

// TestOnExpireTxIsCalledOnceForEachExpiredRow whichever way the row goes.
func TestOnExpireTxIsCalledOnceForEachExpiredRow(t *testing.T) {
	both := []string{"a=1", "b=2"}
	update := func(fn func(tx *kv.Tx) error) func(*kv.DB) error {
		return func(db *kv.DB) error { return db.Update(fn) }
	}
	k := []byte("a")
	for name, test := range map[string]struct {
		run  func(db *kv.DB) error
		want []string
	}{
		"purge": {func(db *kv.DB) error {
			_, err := db.PurgeExpired(context.Background(), kv.PurgeOptions{})
			return err
		}, both},
		"purge_in_batches_of_one": {func(db *kv.DB) error {
			res, err := db.PurgeExpired(context.Background(), kv.PurgeOptions{Batch: 1})
			if err == nil && res.Batches != 2 {
				err = fmt.Errorf("%d batches", res.Batches)
			}
			return err
		}, both},
		"purge_in_a_transaction": {update(func(tx *kv.Tx) error {
			_, err := tx.PurgeExpired(context.Background(), kv.PurgeOptions{})
			return err
		}), both},
		"eviction": {func(db *kv.DB) error {
			for _, key := range []string{"a", "b"} {
				if _, err := db.Get([]byte(key)); !errors.Is(err, kv.ErrNotFound) {
					return fmt.Errorf("%s: %w", key, err)
				}
			}
			return db.Put([]byte("d"), nil)
		}, both},
		"put":         {func(db *kv.DB) error { return db.Put(k, nil) }, both[:1]},
		"put_ttl":     {func(db *kv.DB) error { return db.PutTTL(k, nil, time.Hour) }, both[:1]},
		"put_in_a_tx": {update(func(tx *kv.Tx) error { return tx.Put(k, nil) }), both[:1]},
		"delete":      {func(db *kv.DB) error { return db.Delete(k) }, both[:1]},
		"if_absent": {func(db *kv.DB) error {
			return wrote(db.PutWith(k, nil, kv.PutOptions{IfAbsent: true}))
		}, both[:1]},
		"keep_ttl": {func(db *kv.DB) error {
			return wrote(db.PutWith(k, nil, kv.PutOptions{KeepTTL: true}))
		}, both[:1]},
		"swap_of_absent": {func(db *kv.DB) error {
			return wrote(db.CompareAndSwap(k, nil, k, kv.PutOptions{}))
		}, both[:1]},
		"increment": {func(db *kv.DB) error {
			n, err := db.Increment(k, 5, 0)
			if err == nil && n != 5 {
				err = fmt.Errorf("%d", n)
			}
			return err
		}, both[:1]},
		"batch": {func(db *kv.DB) error {
			b := db.NewBatch()
			b.Put(k, nil)
			b.Delete([]byte("b"))
			b.Put(k, []byte("again"))
			b.DeleteRange([]byte("x"), []byte("y"))
			return db.Apply(context.Background(), b)
		}, both},
		"if_present_loses": {func(db *kv.DB) error {
			if written, err := db.PutWith(k, nil, kv.PutOptions{IfPresent: true}); written || err != nil {
				return fmt.Errorf("written %v, %w", written, err)
			}
			return nil
		}, nil},
		"rolled_back": {func(db *kv.DB) error {
			err := db.Update(func(tx *kv.Tx) error { return errors.Join(tx.Put(k, nil), errStop) })
			if !errors.Is(err, errStop) {
				return err
			}
			return nil
		}, nil},
		"live_row":   {func(db *kv.DB) error { return db.Put([]byte("c"), nil) }, nil},
		"range_gone": {func(db *kv.DB) error { return db.DeleteRange([]byte("a"), []byte("c")) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			db, l, _ := openExpireLog(t)
			require.NoError(t, test.run(db))
			require.Equal(t, test.want, l.committed)
			_, err := db.PurgeExpired(context.Background(), kv.PurgeOptions{})
			require.NoError(t, err)
			if name == "range_gone" {
				require.Zero(t, l.called)
				return
			}
			require.ElementsMatch(t, both, l.committed, "a purge reports the rest, and nothing again")
		})
	}
}

func wrote(written bool, err error) error {
	if err == nil && !written {
		err = errors.New("not written")
	}
	return err
}

var errStop = errors.New("stop")

// TestErrorOfOnExpireTxUndoesTheCall: the row, and what the callback did, are as before; a purge
// returns the error, a call that evicts does not, and the next purge calls again.
func TestErrorOfOnExpireTxUndoesTheCall(t *testing.T) {
	purge := func(db *kv.DB) error {
		_, err := db.PurgeExpired(context.Background(), kv.PurgeOptions{})
		return err
	}
	for name, run := range map[string]func(db *kv.DB) error{
		"purge": purge,
		"put":   func(db *kv.DB) error { return db.Put([]byte("b"), nil) },
		"batch": func(db *kv.DB) error {
			b := db.NewBatch()
			b.Put([]byte("x"), nil)
			b.Put([]byte("b"), nil)
			return db.Apply(context.Background(), b)
		},
		"transaction_that_goes_on": func(db *kv.DB) error {
			var failed error
			err := db.Update(func(tx *kv.Tx) error {
				failed = tx.Put([]byte("b"), nil)
				return nil
			})
			return errors.Join(failed, err)
		},
		"purge_in_a_transaction_that_goes_on": func(db *kv.DB) error {
			var failed error
			err := db.Update(func(tx *kv.Tx) error {
				_, failed = tx.PurgeExpired(context.Background(), kv.PurgeOptions{})
				return nil
			})
			return errors.Join(failed, err)
		},
		"eviction": func(db *kv.DB) error {
			_, _ = db.Get([]byte("b"))
			return errors.Join(errStop, db.Update(func(*kv.Tx) error { return nil }))
		},
	} {
		for _, panics := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/panic=%v", name, panics), func(t *testing.T) {
				db, l, _ := openExpireLog(t)
				l.then = func(tx *kv.Tx, key, _ []byte) error {
					require.NoError(t, tx.Put([]byte("x"), nil))
					if string(key) == "a" {
						return nil
					}
					if panics {
						panic(errStop)
					}
					return errStop
				}
				func() {
					defer func() {
						if r := recover(); panics {
							require.Equal(t, errStop, r)
						}
					}()
					require.ErrorIs(t, run(db), errStop)
				}()
				require.NotZero(t, l.called)
				require.Empty(t, l.committed)
				l.then = nil
				has, err := db.Has([]byte("x"))
				require.NoError(t, err)
				require.False(t, has)
				require.NoError(t, purge(db))
				require.ElementsMatch(t, []string{"a=1", "b=2"}, l.committed)
			})
		}
	}
}

// TestOnExpireTxMayWriteRowsOfTheSameBatch: the purge has read its batch before the first call.
func TestOnExpireTxMayWriteRowsOfTheSameBatch(t *testing.T) {
	for name, test := range map[string]struct {
		then func(tx *kv.Tx) error
		want []string
		live string
	}{
		"delete_the_next": {func(tx *kv.Tx) error { return tx.Delete([]byte("b")) },
			[]string{"a=1", "b=2"}, "c"},
		"write_the_next": {func(tx *kv.Tx) error {
			return tx.Put([]byte("b"), []byte("new"))
		}, []string{"a=1", "b=2"}, "bc"},
		"write_it_again": {func(tx *kv.Tx) error {
			return tx.Put([]byte("a"), []byte("new"))
		}, []string{"a=1", "b=2"}, "ac"},
		"clear_everything": {func(tx *kv.Tx) error { return tx.Clear() }, []string{"a=1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			db, l, _ := openExpireLog(t)
			l.then = func(tx *kv.Tx, key, _ []byte) error {
				if string(key) != "a" {
					return nil
				}
				return test.then(tx)
			}
			_, err := db.PurgeExpired(context.Background(), kv.PurgeOptions{})
			require.NoError(t, err)
			require.ElementsMatch(t, test.want, l.committed)
			require.NoError(t, db.View(func(tx *kv.Tx) error {
				live := ""
				for k := range tx.All() {
					live += string(k)
				}
				require.Equal(t, test.live, live)
				return nil
			}))
		})
	}
}

// TestOnExpireTxMayNotEndOrMoveTheTransaction, nor change what a purge stands on.
func TestOnExpireTxMayNotEndOrMoveTheTransaction(t *testing.T) {
	db, l, _ := openExpireLog(t)
	var before kv.Savepoint
	l.then = func(tx *kv.Tx, _, _ []byte) error {
		require.ErrorIs(t, tx.Commit(), kv.ErrManagedTxn)
		require.ErrorIs(t, tx.Rollback(), kv.ErrManagedTxn)
		require.ErrorIs(t, tx.RollbackTo(before), kv.ErrSavepoint)
		require.ErrorIs(t, tx.DropCF("other"), kv.ErrInvalidOptions)
		_, err := tx.PurgeExpired(context.Background(), kv.PurgeOptions{})
		require.ErrorIs(t, err, kv.ErrInvalidOptions)
		own := tx.Savepoint()
		require.NoError(t, tx.Put([]byte("x"), nil))
		return tx.RollbackTo(own)
	}
	tx, err := db.Begin(context.Background(), true)
	require.NoError(t, err)
	before = tx.Savepoint()
	require.NoError(t, tx.Put([]byte("a"), nil))
	require.NoError(t, tx.RollbackTo(before), "afterwards it is valid again")
	_, err = tx.PurgeExpired(context.Background(), kv.PurgeOptions{})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.Equal(t, 3, l.called)
	require.Equal(t, []string{"a=1", "b=2"}, l.committed)
}

// TestCallsOfOnExpireTxWithinAnotherAreBounded: each row's callback deletes the next row.
func TestCallsOfOnExpireTxWithinAnotherAreBounded(t *testing.T) {
	for rows, ok := range map[int]bool{1000: true, 1001: false} {
		next := func(key []byte) []byte {
			n := 0
			_, _ = fmt.Sscanf(string(key), "k%d", &n)
			return fmt.Appendf(nil, "k%06d", n+1)
		}
		db, clock := openClock(t, kv.Options{
			OnExpireTx: func(tx *kv.Tx, _ string, key, _ []byte) error { return tx.Delete(next(key)) },
		})
		fillTTL(t, db, rows, time.Second)
		clock.move(time.Minute)
		res, err := db.PurgeExpired(context.Background(), kv.PurgeOptions{})
		if !ok {
			require.ErrorIs(t, err, kv.ErrInvalidOptions)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, int64(1), res.Purged, "the others went within it")
		n, err := db.Count()
		require.NoError(t, err)
		require.Zero(t, n)
	}
}

// TestShutdownEndsATransactionWithinOnExpireTx, of every kind that may call it.
func TestShutdownEndsATransactionWithinOnExpireTx(t *testing.T) {
	for name, run := range map[string]func(db *kv.DB) error{
		"purge": func(db *kv.DB) error {
			_, err := db.PurgeExpired(context.Background(), kv.PurgeOptions{})
			return err
		},
		"eviction": func(db *kv.DB) error {
			_, _ = db.Get([]byte("a"))
			return db.Update(func(*kv.Tx) error { return nil })
		},
		"put": func(db *kv.DB) error { return db.Put([]byte("a"), nil) },
		"update": func(db *kv.DB) error {
			return db.Update(func(tx *kv.Tx) error { return tx.Put([]byte("a"), nil) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, l, _ := openExpireLog(t)
			inside, ended := make(chan struct{}), make(chan struct{})
			l.then = func(tx *kv.Tx, _, _ []byte) error {
				close(inside)
				<-ended
				require.ErrorIs(t, tx.Put([]byte("x"), nil), kv.ErrClosed)
				return nil
			}
			failed := make(chan error)
			go func() { failed <- run(db) }()
			<-inside
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			require.NoError(t, db.Shutdown(ctx))
			close(ended)
			require.ErrorIs(t, <-failed, kv.ErrClosed)
			require.Empty(t, l.committed)
		})
	}
}
