package kv_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

func TestPurgeMakesExactlyOneCommitPerBatch(t *testing.T) {
	for _, n := range []int{0, 1, 255, 256, 257, 511, 512, 513} {
		db, clock := openClock(t, kv.Options{})
		fillTTL(t, db, n, time.Second)
		require.NoError(t, db.PutTTL([]byte("live"), nil, time.Hour))
		clock.move(time.Second)
		before := db.Stats()
		require.Equal(t, int64(n), before.Families["default"].Due)
		var heard atomic.Int64
		var progress []int64
		res, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{
			OnExpire: func(string, []byte, []byte) error { heard.Add(1); return nil },
			Progress: func(done int64) { progress = append(progress, done) },
		})
		require.NoError(t, err)
		want := (n + 255) / 256
		require.Equal(t, kv.PurgeResult{Purged: int64(n), Batches: want}, res)
		require.Equal(t, int64(n), heard.Load())
		require.Len(t, progress, want)
		after := db.Stats()
		require.Equal(t, uint64(want), after.Commits-before.Commits)
		f := after.Families["default"]
		require.Equal(t, kv.FamilyStats{
			Rows: 1, TTLRows: 1, Purged: int64(n), PurgeBatches: uint64(want), BytesReclaimed: int64(12 * n),
		}, f)
	}
}

func TestPurgeStopsBetweenBatchesAndAtTheLimit(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	fillTTL(t, db, 1000, time.Second)
	clock.move(time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	res, err := db.PurgeExpired(ctx, kv.PurgeOptions{Progress: func(int64) { cancel() }})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, kv.PurgeResult{Purged: 256, Batches: 1, More: true}, res)
	res, err = db.PurgeExpired(t.Context(), kv.PurgeOptions{Limit: 300, Batch: 200})
	require.NoError(t, err)
	require.Equal(t, kv.PurgeResult{Purged: 300, Batches: 2, More: true}, res)
	res, err = db.PurgeExpired(t.Context(), kv.PurgeOptions{Limit: 444})
	require.NoError(t, err)
	require.Equal(t, kv.PurgeResult{Purged: 444, Batches: 2}, res)
}

// TestPurgeFollowsItsFamily if it is renamed between two batches, and does not purge another family
// that gets its old name.
func TestPurgeFollowsItsFamily(t *testing.T) {
	const due = 5
	for name, test := range map[string]struct {
		change func(tx *kv.Tx) error
		purged int64
	}{
		"rename": {func(tx *kv.Tx) error { return tx.RenameCF("f", "g") }, due},
		"rename_and_create": {func(tx *kv.Tx) error {
			return errors.Join(tx.RenameCF("f", "g"), tx.CreateCF("f", kv.CFOptions{}),
				tx.CF("f").PutTTL([]byte("k"), nil, 1))
		}, due},
		"drop": {func(tx *kv.Tx) error { return tx.DropCF("f") }, 1},
		"drop_and_create": {func(tx *kv.Tx) error {
			return errors.Join(tx.DropCF("f"), tx.CreateCF("f", kv.CFOptions{}),
				tx.CF("f").PutTTL([]byte("k"), nil, 1))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var last string
			o := kv.Options{
				Events: &kv.Events{Purge: func(cf string, _ kv.PurgeResult, _ time.Duration,
					_ error) {
					last = cf
				}},
			}
			db, clock := openClock(t, o)
			require.NoError(t, db.CreateCF("f", kv.CFOptions{DefaultTTL: time.Second}))
			for i := range due {
				require.NoError(t, db.CF("f").Put(fmt.Append(nil, i), nil))
			}
			clock.move(time.Second)
			var heard []string
			res, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{
				Batch:    1,
				OnExpire: func(cf string, _, _ []byte) error { heard = append(heard, cf); return nil },
				Progress: func(done int64) {
					if done == 1 {
						require.NoError(t, db.Update(test.change))
					}
				},
			})
			require.NoError(t, err)
			require.Equal(t, kv.PurgeResult{Purged: test.purged, Batches: int(test.purged)}, res)
			want := []string{"f", "g", "g", "g", "g"}[:test.purged]
			require.Equal(t, want, heard)
			require.Equal(t, want[len(want)-1], last, "the name that it had in the end")
			if n, err := db.CF("f").Count(); err == nil {
				require.EqualValues(t, 1, n, "the other one")
			}
		})
	}
}

func TestErrorOfOnExpireRollsTheBatchBack(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	fillTTL(t, db, 300, time.Second)
	clock.move(time.Second)
	no, calls := errors.New("no"), 0
	o := kv.PurgeOptions{OnExpire: func(cf string, key, value []byte) error {
		require.Equal(t, "default", cf)
		require.Equal(t, "value", string(value))
		if calls++; calls == 260 {
			return no
		}
		return nil
	}}
	res, err := db.PurgeExpired(t.Context(), o)
	require.ErrorIs(t, err, no)
	require.Equal(t, int64(256), res.Purged)
	require.Equal(t, int64(44), count(t, db))
	calls = 0
	fillTTL(t, db, 300, time.Second)
	clock.move(time.Second)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		res, err := tx.PurgeExpired(t.Context(), o)
		require.ErrorIs(t, err, no)
		require.Zero(t, res.Purged)
		n, err := tx.Count()
		require.Equal(t, int64(300), n)
		return err
	}))
}

// TestErrorOfAContextThatOnExpireReturns rolls back a purge in a transaction as every other error of
// OnExpire does. It was mistaken for the end of the purge's own context between two batches, after
// which the deletes stay.
func TestErrorOfAContextThatOnExpireReturns(t *testing.T) {
	for _, within := range []bool{true, false} {
		db, clock := openClock(t, kv.Options{})
		fillTTL(t, db, 600, time.Second)
		clock.move(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		o := kv.PurgeOptions{OnExpire: func(string, []byte, []byte) error {
			if calls++; within && calls == 300 {
				cancel()
				return ctx.Err()
			}
			if calls == 256 && !within {
				cancel() // The purge itself finds out, before the next batch.
			}
			return nil
		}}
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			res, err := tx.PurgeExpired(ctx, o)
			require.ErrorIs(t, err, context.Canceled)
			want := kv.PurgeResult{More: true}
			if !within {
				want.Purged = 256
			}
			require.Equal(t, want, res)
			n, err := tx.Count()
			require.Equal(t, 600-want.Purged, n)
			return err
		}))
		cancel()
	}
}

func TestWaitingWriterGetsInBetweenBatches(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	fillTTL(t, db, 2000, time.Second)
	clock.move(time.Second)
	done, seen := make(chan error, 1), int64(-1)
	began := make(chan struct{})
	var once sync.Once
	_, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{Batch: 10, Progress: func(n int64) {
		once.Do(func() {
			go func() {
				close(began)
				done <- db.Update(func(tx *kv.Tx) error {
					left, err := tx.Count()
					seen = left
					return err
				})
			}()
			<-began
		})
	}})
	require.NoError(t, err)
	require.NoError(t, <-done)
	require.Less(t, seen, int64(2000))
}

func TestClockThatJumpedForwardDeletesNothing(t *testing.T) {
	clock, fsys := newClock(), vfs.NewMemory()
	var mono atomic.Int64
	open := func() *kv.DB {
		db, err := openfs.OpenTuned(fsys, path, &kv.Options{Clock: clock.now, Durability: kv.NoSync},
			openfs.Tuning{
				Engine:    txn.Options{SegmentSize: 64 << 10},
				Monotonic: func() time.Duration { return time.Duration(mono.Load()) },
			})
		require.NoError(t, err)
		return db
	}
	both := func(d time.Duration) {
		clock.move(d)
		mono.Add(int64(d))
	}
	db := open()
	k := []byte("k")
	require.NoError(t, db.PutTTL(k, nil, time.Hour))
	both(2 * time.Hour)
	_, err := db.Has(k)
	require.NoError(t, err)
	require.NoError(t, db.Delete([]byte("other")))
	require.Zero(t, count(t, db), "time that really passed")
	require.NoError(t, db.PutTTL(k, nil, time.Hour))
	clock.move(2 * time.Hour)
	found, err := db.Has(k)
	require.NoError(t, err)
	require.False(t, found, "hidden")
	require.Equal(t, int64(1), count(t, db), "but stored")
	_, err = db.PurgeExpired(t.Context(), kv.PurgeOptions{})
	require.ErrorIs(t, err, kv.ErrClockJump)
	require.True(t, db.Stats().ClockJumped)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		_, err := tx.PurgeExpired(t.Context(), kv.PurgeOptions{})
		require.ErrorIs(t, err, kv.ErrClockJump)
		return nil
	}))
	require.NoError(t, db.Close())
	db = open()
	res, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{})
	require.NoError(t, err, "a reopen takes the clock for right")
	require.Equal(t, int64(1), res.Purged)
	require.NoError(t, db.PutTTL(k, nil, time.Hour))
	clock.move(2 * time.Hour)
	res, err = db.PurgeExpired(t.Context(), kv.PurgeOptions{Force: true})
	require.NoError(t, err)
	require.Equal(t, int64(1), res.Purged)
	checkStore(t, db)
	require.NoError(t, db.Close())
}

// TestProgressOfAPurgeInATransaction: Progress is called once with the number of deleted keys, also
// at the limit and when the context has ended, and may use the transaction.
func TestProgressOfAPurgeInATransaction(t *testing.T) {
	for name, test := range map[string]struct {
		o     kv.PurgeOptions
		asked int // how often the context may be asked
		want  []int64
		err   error
	}{
		"all":              {kv.PurgeOptions{}, 1000, []int64{600}, nil},
		"limit":            {kv.PurgeOptions{Limit: 300}, 1000, []int64{300}, nil},
		"limit_is_all":     {kv.PurgeOptions{Limit: 600}, 1000, []int64{600}, nil},
		"context":          {kv.PurgeOptions{}, 1, []int64{256}, context.Canceled},
		"context_at_first": {kv.PurgeOptions{}, 0, nil, context.Canceled},
		"undone": {kv.PurgeOptions{OnExpire: func(string, []byte,
			[]byte) error {
			return errMachine
		}}, 1000, nil, errMachine},
	} {
		t.Run(name, func(t *testing.T) {
			db, clock := openClock(t, kv.Options{})
			fillTTL(t, db, 600, time.Second)
			clock.move(time.Second)
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				for _, purge := range []func(context.Context, kv.PurgeOptions) (kv.PurgeResult, error){
					tx.PurgeExpired, tx.CF("default").PurgeExpired,
				} {
					sp := tx.Savepoint()
					var heard []int64
					test.o.Progress = func(done int64) {
						heard = append(heard, done)
						left, err := tx.Count()
						require.NoError(t, err)
						require.Equal(t, 600-done, left)
						require.NoError(t, tx.Put([]byte("done"), nil))
					}
					res, err := purge(&patient{t.Context(), test.asked}, test.o)
					require.ErrorIs(t, err, test.err)
					require.Equal(t, test.want, heard)
					if heard != nil {
						require.Equal(t, heard[0], res.Purged)
					}
					require.NoError(t, tx.RollbackTo(sp))
				}
				return nil
			}))
		})
	}
}

// patient is a context that ends when it was asked so many times: for loops that may not end.
type patient struct {
	context.Context
	asked int
}

func (p *patient) Err() error {
	if p.asked--; p.asked < 0 {
		return context.Canceled
	}
	return nil
}

func TestAutoPurgeEndsWithClose(t *testing.T) {
	purged := make(chan int64, 100)
	clock := newClock()
	db := openOn(t, vfs.NewMemory(), &kv.Options{
		Clock: clock.now, Durability: kv.NoSync, AutoPurge: &kv.AutoPurge{Interval: time.Millisecond},
		Events: &kv.Events{
			Purge: func(cf string, r kv.PurgeResult, _ time.Duration, err error) { purged <- r.Purged },
		},
	})
	fillTTL(t, db, 10, time.Second)
	clock.move(time.Second)
	require.Equal(t, int64(10), <-purged)
	tx := beginTx(t, db, true)
	require.ErrorIs(t, db.Close(), kv.ErrTxnsOpen)
	require.NoError(t, tx.Rollback())
	fillTTL(t, db, 5, time.Second)
	clock.move(time.Second)
	require.Equal(t, int64(5), <-purged, "it goes on")
}

// TestPurgeFitsItsTransactions: if a whole batch exceeds the bound of a transaction, batches are
// smaller.
func TestPurgeFitsItsTransactions(t *testing.T) {
	clock := newClock()
	db := openOn(t, vfs.NewMemory(), &kv.Options{Clock: clock.now, MaxTxnBytes: 16 << 10})
	for i := range 300 {
		require.NoError(t, db.PutTTL(fmt.Appendf(nil, "%0200d", i), nil, time.Second))
	}
	clock.move(time.Minute)
	res, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 300, res.Purged)
	require.Greater(t, res.Batches, 3)
	require.False(t, res.More)
	checkStore(t, db)
}

// TestMoreAfterAnErrorInATransaction: all keys remain, and are due.
func TestMoreAfterAnErrorInATransaction(t *testing.T) {
	clock := newClock()
	db := openOn(t, vfs.NewMemory(), &kv.Options{Clock: clock.now})
	for i := range 10 {
		require.NoError(t, db.PutTTL(fmt.Appendf(nil, "k%d", i), nil, time.Second))
	}
	clock.move(time.Minute)
	o := kv.PurgeOptions{OnExpire: func(string, []byte, []byte) error { return errors.New("no") }}
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		res, err := tx.PurgeExpired(t.Context(), o)
		require.ErrorContains(t, err, "no")
		require.Equal(t, kv.PurgeResult{More: true}, res)
		return nil
	}))
}

// TestPurgeThatHasNoRoomSaysThatMoreIsDue, as a purge does that a context or OnExpire stops.
func TestPurgeThatHasNoRoomSaysThatMoreIsDue(t *testing.T) {
	clock := newClock()
	db := openOn(t, vfs.NewMemory(), &kv.Options{Clock: clock.now, MaxTxnBytes: 8 << 10})
	for i := range 20 {
		require.NoError(t, db.PutTTL(fmt.Append(nil, i), nil, time.Second))
	}
	clock.move(time.Hour)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		require.NoError(t, tx.Put([]byte("large"), make([]byte, 7850)))
		res, err := tx.PurgeExpired(t.Context(), kv.PurgeOptions{})
		require.ErrorIs(t, err, kv.ErrTxnTooLarge)
		n, err := tx.Count()
		require.NoError(t, err)
		require.Equal(t, 21-res.Purged, n)
		require.Less(t, res.Purged, int64(20))
		require.True(t, res.More, "%+v", res)
		return nil
	}))
}
