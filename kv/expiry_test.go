package kv_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// openClock is openTest with a clock of the test's.
func openClock(t testing.TB, o kv.Options) (*kv.DB, *testClock) {
	t.Helper()
	clock := newClock()
	o.Clock, o.Durability = clock.now, kv.NoSync
	return openOn(t, vfs.NewMemory(), &o), clock
}

// fillTTL puts n keys with that ttl into "default".
func fillTTL(t testing.TB, db *kv.DB, n int, ttl time.Duration) {
	t.Helper()
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range n {
			if err := tx.PutTTL(fmt.Appendf(nil, "k%06d", i), []byte("value"), ttl); err != nil {
				return err
			}
		}
		return nil
	}))
}

func count(t testing.TB, db *kv.DB) int64 {
	t.Helper()
	n, err := db.Count()
	require.NoError(t, err)
	return n
}

func TestHiddenTreesAppearWithTheFirstCommittedWriteOrNotAtAll(t *testing.T) {
	db, _ := openClock(t, kv.Options{})
	exist := func(tx *kv.Tx) [2]bool {
		f, err := kv.FindFamily(tx, "default")
		require.NoError(t, err)
		return [2]bool{kv.RawTx(tx).Exists(f.KeyIndex()), kv.RawTx(tx).Exists(f.ExpiryIndex())}
	}
	no := errors.New("no")
	require.ErrorIs(t, db.Update(func(tx *kv.Tx) error {
		require.NoError(t, tx.PutTTL([]byte("k"), nil, time.Hour))
		require.Equal(t, [2]bool{true, true}, exist(tx))
		return no
	}), no)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		require.Equal(t, [2]bool{}, exist(tx))
		save := tx.Savepoint()
		require.NoError(t, tx.PutTTL([]byte("k"), nil, time.Hour))
		require.NoError(t, tx.RollbackTo(save))
		require.Equal(t, [2]bool{}, exist(tx))
		return tx.PutTTL([]byte("k"), nil, time.Hour)
	}))
	names, err := db.ListCFs()
	require.NoError(t, err)
	require.Equal(t, []string{"default"}, names)
	require.Equal(t, int64(1), db.Stats().Families["default"].TTLRows)
}

func TestTTLOfAnExpiredKeyAnswersTheSameWhenAskedTwice(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	k := []byte("k")
	require.NoError(t, db.PutTTL(k, []byte("v"), time.Second))
	left, err := db.TTL(k)
	require.NoError(t, err)
	require.Equal(t, time.Second, left)
	clock.move(time.Second)
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		_, err := tx.Get(k) // leaves a note
		require.ErrorIs(t, err, kv.ErrNotFound)
		return nil
	}))
	for range 2 {
		left, err = db.TTL(k)
		require.NoError(t, err)
		require.Zero(t, left)
		_, err = db.Expiry(k)
		require.ErrorIs(t, err, kv.ErrNotFound)
	}
	require.Equal(t, int64(1), count(t, db))
	_, err = db.Get(k)
	require.ErrorIs(t, err, kv.ErrNotFound)
	require.Equal(t, int64(1), count(t, db), "a read waits for a batch")
	require.NoError(t, db.Delete([]byte("other")))
	require.Zero(t, count(t, db), "the next write takes the key along")
	_, err = db.TTL(k)
	require.ErrorIs(t, err, kv.ErrNotFound)
	require.Equal(t, int64(1), db.Stats().Families["default"].Evicted)
	require.Zero(t, db.Stats().Families["default"].Purged)
}

func TestSnapshotSeesTheKeyForItsWholeLife(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	fillTTL(t, db, 300, time.Second)
	old, err := db.Begin(t.Context(), false)
	require.NoError(t, err)
	clock.move(time.Hour)
	res, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{})
	require.NoError(t, err)
	require.Equal(t, kv.PurgeResult{Purged: 300, Batches: 2}, res)
	n := 0
	for range old.All() {
		n++
	}
	require.Equal(t, 300, n)
	left, err := old.TTL([]byte("k000000"))
	require.NoError(t, err)
	require.Equal(t, time.Second, left)
	require.NoError(t, old.Rollback())
}

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

// TestPurgeFollowsItsFamily whatever happens to its name between two batches, and leaves another
// one alone that gets it.
func TestPurgeFollowsItsFamily(t *testing.T) {
	const due = 5
	for name, test := range map[string]struct {
		change func(tx *kv.Tx) error
		purged int64
	}{
		"rename": {func(tx *kv.Tx) error { return tx.RenameCF("f", "g") }, due},
		"rename_and_create": {func(tx *kv.Tx) error {
			return errors.Join(tx.RenameCF("f", "g"), tx.CreateCF("f", kv.CFOptions{}), tx.CF("f").PutTTL([]byte("k"), nil, 1))
		}, due},
		"drop": {func(tx *kv.Tx) error { return tx.DropCF("f") }, 1},
		"drop_and_create": {func(tx *kv.Tx) error {
			return errors.Join(tx.DropCF("f"), tx.CreateCF("f", kv.CFOptions{}), tx.CF("f").PutTTL([]byte("k"), nil, 1))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var last string
			o := kv.Options{
				Events: &kv.Events{Purge: func(cf string, _ kv.PurgeResult, _ time.Duration, _ error) { last = cf }},
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

// TestErrorOfAContextThatOnExpireReturns undoes a purge in a transaction as every other error of
// OnExpire does: it was taken for one that the purge had met between two batches, whose keys stay
// deleted.
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

func TestIteratingOverExpiredKeysIsBounded(t *testing.T) {
	n := 100_000
	if racetest.Enabled {
		n = 5_000
	}
	db, clock := openClock(t, kv.Options{})
	fillTTL(t, db, n, time.Second)
	require.NoError(t, db.Put([]byte("z"), nil))
	clock.move(time.Second)
	before := db.Stats().Commits
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		c := tx.Cursor()
		allocs := testing.AllocsPerRun(1, func() { require.True(t, c.First()) })
		require.Equal(t, "z", string(c.Key()))
		require.Less(t, allocs, 5000.0)
		require.False(t, c.Prev())
		return nil
	}))
	require.Equal(t, before, db.Stats().Commits, "a read commits nothing")
	require.LessOrEqual(t, kv.Notes(db), 1024)
	require.NoError(t, db.Put([]byte("y"), nil))
	require.Equal(t, before+2, db.Stats().Commits, "one batch of evictions, and the put")
	require.Equal(t, int64(256), db.Stats().Families["default"].Evicted)
}

// TestOneShotReadsEvictInBatches has a story: 20,000 gets of expired keys, one after the other,
// made 18,980 commits, and each of them copied the pages that the one before had copied.
func TestOneShotReadsEvictInBatches(t *testing.T) {
	const n, batch = 2000, 256
	db, clock := openClock(t, kv.Options{})
	fillTTL(t, db, n, time.Second)
	clock.move(time.Second)
	before := db.Stats()
	for i := range n {
		_, err := db.Get(fmt.Appendf(nil, "k%06d", i))
		require.ErrorIs(t, err, kv.ErrNotFound)
	}
	after := db.Stats()
	require.EqualValues(t, n/batch, after.Commits-before.Commits)
	require.EqualValues(t, n/batch*batch, after.Families["default"].Evicted)
	require.EqualValues(t, n%batch, count(t, db), "less than a batch waits")
	require.NoError(t, db.Put([]byte("z"), nil))
	require.EqualValues(t, 1, count(t, db), "the next write takes it along")
	require.EqualValues(t, n/batch+2, db.Stats().Commits-before.Commits)
	require.Zero(t, kv.Notes(db))
}

func TestReadNeverTouchesACallersTransaction(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	require.NoError(t, db.PutTTL([]byte("k"), nil, time.Second))
	clock.move(time.Second)
	tx, err := db.Begin(t.Context(), true)
	require.NoError(t, err)
	require.NoError(t, tx.Put([]byte("other"), nil))
	for range 3 {
		_, err := tx.Get([]byte("k"))
		require.ErrorIs(t, err, kv.ErrNotFound)
		_, err = db.Get([]byte("k"))
		require.ErrorIs(t, err, kv.ErrNotFound, "also while the writer is busy")
	}
	require.NoError(t, tx.Rollback())
	require.Equal(t, int64(1), count(t, db), "nothing was committed")
}

// TestEvictionIsCheckedAgain: between the note and the eviction the key gets another life.
func TestEvictionIsCheckedAgain(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	k := []byte("k")
	require.NoError(t, db.PutTTL(k, nil, time.Second))
	clock.move(time.Second)
	tx, err := db.Begin(t.Context(), true)
	require.NoError(t, err)
	require.NoError(t, tx.PutTTL(k, []byte("new"), time.Second))
	_, err = db.Get(k)
	require.ErrorIs(t, err, kv.ErrNotFound)
	require.Equal(t, 1, kv.Notes(db))
	require.NoError(t, tx.Commit())
	require.NoError(t, db.Put([]byte("x"), nil))
	value, err := db.Get(k)
	require.NoError(t, err)
	require.Equal(t, "new", string(value))
	require.Zero(t, kv.Notes(db))
	// A clock that was wrong when the key was noted deletes nothing.
	clock.move(time.Hour)
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		_, err := tx.Get(k)
		require.ErrorIs(t, err, kv.ErrNotFound)
		return nil
	}))
	clock.move(-time.Hour)
	require.NoError(t, db.Put([]byte("x"), nil))
	_, err = db.Get(k)
	require.NoError(t, err)
}

// TestTransactionBehindAnEvictionAimsAsAnyOther: the eviction commits in its place and begins it
// again. Of a commit that waits for no sync no large value may lie in the main file alone, or that
// has to be synced for it.
func TestTransactionBehindAnEvictionAimsAsAnyOther(t *testing.T) {
	for name, put := range map[string]func(db *kv.DB, key, value []byte) error{
		"one_shot": func(db *kv.DB, key, value []byte) error { return db.Put(key, value) },
		"update": func(db *kv.DB, key, value []byte) error {
			return db.Update(func(tx *kv.Tx) error { return tx.Put(key, value) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock, syncs := newClock(), 0
			fsys := &hookFS{vfs.NewMemory(), func(call, name string) error {
				if name == path && (call == "sync" || call == "syncdata") {
					syncs++
				}
				return nil
			}}
			o := &kv.Options{Clock: clock.now, Durability: kv.NoSync, CheckpointBytes: 1 << 30}
			db, err := kv.OpenFS(fsys, path, o, kv.Tuning{SegmentSize: 64 << 10, Inline: true})
			require.NoError(t, err)
			require.NoError(t, db.PutTTL(small, nil, time.Second))
			clock.move(time.Second)
			require.NoError(t, db.View(func(tx *kv.Tx) error {
				_, err := tx.Get(small)
				require.ErrorIs(t, err, kv.ErrNotFound)
				return nil
			}))
			require.Equal(t, 1, kv.Notes(db))
			syncs = 0
			require.NoError(t, put(db, []byte("large"), make([]byte, 1<<20)))
			require.Zero(t, syncs, "of the main file")
			require.Zero(t, kv.Notes(db))
			require.EqualValues(t, 1, count(t, db))
			checkStore(t, db)
			require.NoError(t, db.Close())
		})
	}
}

func TestOfAHundredTakersOneWins(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	k := []byte("lease")
	require.NoError(t, db.PutTTL(k, []byte("old"), time.Second))
	clock.move(time.Second)
	var won atomic.Int64
	var wait sync.WaitGroup
	for i := range 100 {
		wait.Go(func() {
			owner := fmt.Append(nil, i)
			var ok bool
			var err error
			if i%2 == 0 {
				ok, err = db.PutWith(k, owner, kv.PutOptions{IfAbsent: true, TTL: time.Minute})
			} else {
				ok, err = db.CompareAndSwap(k, nil, owner, kv.PutOptions{TTL: time.Minute})
			}
			if err == nil && ok {
				won.Add(1)
			}
		})
	}
	wait.Wait()
	require.Equal(t, int64(1), won.Load())
}

func TestClockThatJumpedForwardDeletesNothing(t *testing.T) {
	clock, fsys := newClock(), vfs.NewMemory()
	var mono atomic.Int64
	open := func() *kv.DB {
		db, err := kv.OpenFS(fsys, path, &kv.Options{Clock: clock.now, Durability: kv.NoSync},
			kv.Tuning{SegmentSize: 64 << 10, Monotonic: func() time.Duration { return time.Duration(mono.Load()) }})
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

// TestStaleExpiryRowAloneIsRemoved: such rows only come from damage, and Check tells of them.
func TestStaleExpiryRowAloneIsRemoved(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	fillTTL(t, db, 2, time.Second)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		f, err := kv.FindFamily(tx, "default")
		require.NoError(t, err)
		_, err = kv.RawTx(tx).Put(f.ExpiryIndex(), []byte("\x00\x00\x00\x00\x00\x00\x00\x01k000000"), nil, 0)
		return err
	}))
	var found []string
	for p := range db.Check(t.Context()) {
		found = append(found, p.Kind+" "+p.Detail[:2])
	}
	require.Equal(t, []string{"expiry I4", "expiry I1"}, found)
	res, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{})
	require.NoError(t, err)
	require.Zero(t, res.Purged)
	require.Equal(t, int64(2), count(t, db))
	clock.move(time.Second)
	res, err = db.PurgeExpired(t.Context(), kv.PurgeOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(2), res.Purged)
}

// TestProgressOfAPurgeInATransaction: it hears once of what was deleted, also at the limit and when
// the context has ended, and may use the transaction.
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
		"undone":           {kv.PurgeOptions{OnExpire: func(string, []byte, []byte) error { return errMachine }}, 1000, nil, errMachine},
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

// TestIndexRowsOfLostDataRowsAreRemoved tells the story of a purge that met more of them than go
// into a batch: it did not take their deletion for a change, rolled it back, and found the same
// rows again, for ever.
func TestIndexRowsOfLostDataRowsAreRemoved(t *testing.T) {
	const lost = 5
	for name, o := range map[string]kv.PurgeOptions{"limit": {Limit: 1}, "batch": {Batch: 1}, "large_batch": {Batch: 2}, "all": {}} {
		t.Run(name, func(t *testing.T) {
			db, clock := openClock(t, kv.Options{})
			fillTTL(t, db, lost+1, time.Second)
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				f, err := kv.FindFamily(tx, "default")
				require.NoError(t, err)
				for i := range lost {
					_, err := kv.RawTx(tx).Delete(f.Data(), fmt.Appendf(nil, "k%06d", i))
					require.NoError(t, err)
				}
				return nil
			}))
			clock.move(time.Second)
			var heard []string
			o.OnExpire = func(_ string, key, _ []byte) error { heard = append(heard, string(key)); return nil }
			res, err := db.PurgeExpired(&patient{t.Context(), 1000}, o)
			require.NoError(t, err)
			require.Equal(t, int64(1), res.Purged, "a lost row is no key")
			require.False(t, res.More)
			require.Equal(t, []string{"k000005"}, heard)
			require.Zero(t, db.Stats().Families["default"].TTLRows)
		})
	}
}

// TestKeyIndexValueOfWrongLengthIsCorrupt, not "no ttl": reads take the expiry from the data row, so
// they still return it; a call that reads the index reports the damage.
func TestKeyIndexValueOfWrongLengthIsCorrupt(t *testing.T) {
	clock := newClock()
	db, err := kv.OpenMemory(&kv.Options{Durability: kv.NoSync, Clock: clock.now})
	require.NoError(t, err)
	fillTTL(t, db, 1, time.Hour)
	damageRow(t, db, func(f *cf.Family) txn.TreeID { return f.KeyIndex() }, []byte("short"), 0)
	left, err := db.TTL([]byte("k000000"))
	require.NoError(t, err)
	require.Equal(t, time.Hour, left)
	requireExpiryProblems(t, db)
	clock.move(time.Hour)
	_, err = db.Get([]byte("k000000"))
	require.ErrorIs(t, err, kv.ErrNotFound)
	_, err = db.PurgeExpired(t.Context(), kv.PurgeOptions{})
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.NoError(t, db.Close())
}

// TestVerbThatMissesAnIndexIsTheLastOfItsTransaction tells the story of a delete that did not find
// the expiry index of a damaged store. It had deleted the data row by then, its error was one of
// the room below, and the transaction could commit that.
func TestVerbThatMissesAnIndexIsTheLastOfItsTransaction(t *testing.T) {
	key := []byte("k000000")
	for name, verb := range map[string]func(tx *kv.Tx) error{
		"Put":     func(tx *kv.Tx) error { return tx.Put(key, nil) },
		"PutTTL":  func(tx *kv.Tx) error { return tx.PutTTL(key, nil, time.Minute) },
		"Expire":  func(tx *kv.Tx) error { return tx.Expire(key, time.Minute) },
		"Delete":  func(tx *kv.Tx) error { return tx.Delete(key) },
		"Persist": func(tx *kv.Tx) error { return tx.Persist(key) },
	} {
		t.Run(name, func(t *testing.T) {
			db, err := kv.OpenMemory(quick)
			require.NoError(t, err)
			fillTTL(t, db, 3, time.Hour)
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				f, err := kv.FindFamily(tx, "default")
				require.NoError(t, err)
				return kv.RawTx(tx).Drop(f.ExpiryIndex())
			}))
			tx, err := db.Begin(t.Context(), true)
			require.NoError(t, err)
			err = verb(tx)
			require.ErrorIs(t, err, kv.ErrCorrupt)
			require.ErrorContains(t, err, `family "default": I4: expiry index`)
			require.Equal(t, err, tx.Err())
			require.Equal(t, err, tx.Commit())
			value, err := db.Get(key)
			require.NoError(t, err)
			require.Equal(t, "value", string(value))
			require.NoError(t, db.Close())
		})
	}
}

// TestTagThatIsNoExpiryIsCorrupt for every read of the row.
func TestTagThatIsNoExpiryIsCorrupt(t *testing.T) {
	db, err := kv.OpenMemory(quick)
	require.NoError(t, err)
	fillTTL(t, db, 1, time.Hour)
	damageRow(t, db, func(f *cf.Family) txn.TreeID { return f.Data() }, []byte("v"), -5)
	_, err = db.Get([]byte("k000000"))
	require.ErrorIs(t, err, kv.ErrCorrupt)
	_, err = db.TTL([]byte("k000000"))
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorIs(t, db.View(func(tx *kv.Tx) error {
		for range tx.All() {
		}
		return tx.Err()
	}), kv.ErrCorrupt)
	requireExpiryProblems(t, db)
	require.NoError(t, db.Close())
}

// damageRow writes a row of one tree past the rules.
func damageRow(t *testing.T, db *kv.DB, tree func(*cf.Family) txn.TreeID, value []byte, tag int64) {
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		f, err := kv.FindFamily(tx, "default")
		require.NoError(t, err)
		_, err = kv.RawTx(tx).Put(tree(f), []byte("k000000"), value, tag)
		return err
	}))
}

func requireExpiryProblems(t *testing.T, db *kv.DB) {
	kinds := map[string]bool{}
	for p := range db.Check(t.Context()) {
		kinds[p.Kind] = true
	}
	require.Equal(t, map[string]bool{"expiry": true}, kinds)
}

// TestFamilyWithoutExpiriesReadsNoMore opens a store anew for each call, so that each page it
// touches is read from the file once, and counts these reads.
func TestFamilyWithoutExpiriesReadsNoMore(t *testing.T) {
	pages := func(timed bool, family string, call func(f *kv.Family) error) uint64 {
		fsys := vfs.NewMemory()
		open := func() *kv.DB {
			db, err := kv.OpenFS(fsys, path, &kv.Options{Clock: newClock().now}, kv.Tuning{NoMap: true})
			require.NoError(t, err)
			return db
		}
		db := open()
		for _, name := range []string{"plain", "timed"} {
			require.NoError(t, db.CreateCF(name, kv.CFOptions{}))
		}
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			for i := range 5000 {
				k, v := fmt.Appendf(nil, "k%06d", i), make([]byte, 100)
				require.NoError(t, tx.CF("plain").Put(k, v))
				if timed && i%2 == 0 {
					require.NoError(t, tx.CF("timed").PutTTL(k, v, time.Hour))
				} else {
					require.NoError(t, tx.CF("timed").Put(k, v))
				}
			}
			return nil
		}))
		require.NoError(t, db.Close())
		db = open()
		before := kv.PagesRead(db)
		require.NoError(t, call(db.CF(family)))
		n := kv.PagesRead(db) - before
		require.NoError(t, db.Close())
		return n
	}
	timedKey, permanentKey := []byte("k002000"), []byte("k002001")
	get := func(key []byte) func(f *kv.Family) error {
		return func(f *kv.Family) error { _, err := f.Get(key); return err }
	}
	for name, call := range map[string]func(f *kv.Family) error{
		"get":    get(timedKey),
		"put":    func(f *kv.Family) error { return f.Put(timedKey, []byte("new")) },
		"delete": func(f *kv.Family) error { return f.Delete(timedKey) },
	} {
		require.Equal(
			t,
			pages(false, "plain", call),
			pages(true, "plain", call),
			"%s beside a family with expiries",
			name,
		)
	}
	plain := pages(false, "timed", get(timedKey))
	require.Equal(t, plain, pages(true, "timed", get(permanentKey)), "a permanent key costs one descent")
	require.Equal(t, plain, pages(true, "timed", get(timedKey)), "and so does one that expires")
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
	tx, err := db.Begin(t.Context(), true)
	require.NoError(t, err)
	require.ErrorIs(t, db.Close(), kv.ErrTxnsOpen)
	require.NoError(t, tx.Rollback())
	fillTTL(t, db, 5, time.Second)
	clock.move(time.Second)
	require.Equal(t, int64(5), <-purged, "it goes on")
}

// TestEverythingAtOnce is for the race detector.
func TestEverythingAtOnce(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	const rounds = 150
	var wait sync.WaitGroup
	for w, work := range []func(i int) error{
		func(i int) error { return db.Put(fmt.Append(nil, i%50), nil) },
		func(i int) error { return db.PutTTL(fmt.Append(nil, i%50), nil, time.Duration(i%5+1)*time.Second) },
		func(i int) error { _, err := db.Has(fmt.Append(nil, i%50)); return err },
		func(i int) error {
			return db.View(func(tx *kv.Tx) error {
				for range tx.All() {
				}
				return nil
			})
		},
		func(i int) error {
			_, err := db.PurgeExpired(context.Background(), kv.PurgeOptions{Batch: 3})
			return err
		},
		func(i int) error {
			if err := db.EnsureCF("x", kv.CFOptions{DefaultTTL: time.Second}); err != nil {
				return err
			}
			_ = db.CF("x").Put([]byte("k"), nil)
			if err := db.DropCF("x"); !errors.Is(err, kv.ErrCFNotFound) {
				return err
			}
			return nil
		},
		func(i int) error { return db.Checkpoint(context.Background()) },
		func(i int) error { clock.move(100 * time.Millisecond); _ = db.Stats(); return nil },
	} {
		wait.Go(func() {
			for i := range rounds {
				if err := work(i); err != nil {
					t.Errorf("worker %d: %v", w, err)
					return
				}
			}
		})
	}
	wait.Wait()
}

func TestBatchCarriesExpiries(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	require.NoError(t, db.CreateCF("short", kv.CFOptions{DefaultTTL: time.Second}))
	b := db.NewBatch()
	b.PutTTL([]byte("a"), nil, 1500*time.Microsecond)
	b.PutExpireAt([]byte("b"), nil, clock.now().Add(time.Minute))
	b.CF("short").Put([]byte("c"), nil)
	clock.move(time.Hour / 2)
	require.ErrorIs(t, db.Apply(t.Context(), b), kv.ErrInvalidTTL, "the instant has passed")
	require.Zero(t, count(t, db))
	b.Reset()
	b.PutTTL([]byte("a"), nil, 1500*time.Microsecond)
	b.CF("short").Put([]byte("c"), nil)
	require.NoError(t, db.Apply(t.Context(), b))
	clock.move(10 * time.Second)
	require.NoError(t, db.Apply(t.Context(), b), "it counts from then on")
	left, err := db.TTL([]byte("a"))
	require.NoError(t, err)
	require.Equal(t, 2*time.Millisecond, left)
	left, err = db.CF("short").TTL([]byte("c"))
	require.NoError(t, err)
	require.Equal(t, time.Second, left)
	b.PutExpireAt([]byte("x"), nil, time.Date(300_000_000, 1, 1, 0, 0, 0, 0, time.UTC))
	require.ErrorIs(t, db.Apply(t.Context(), b), kv.ErrInvalidTTL)
}

func TestLoadedRowsGetTheDefaultTTL(t *testing.T) {
	db, _ := openClock(t, kv.Options{})
	require.NoError(t, db.CreateCF("short", kv.CFOptions{DefaultTTL: time.Second}))
	n, err := db.BulkLoad(t.Context(), "short", numbered(300))
	require.NoError(t, err)
	require.Equal(t, int64(300), n)
	require.Equal(t, int64(300), db.Stats().Families["short"].TTLRows)
	require.NoError(t, db.AlterCF("short", kv.CFOptions{}))
	require.NoError(t, db.CF("short").Put([]byte("x"), nil))
	left, err := db.CF("short").TTL([]byte("x"))
	require.NoError(t, err)
	require.Equal(t, kv.NoExpiry, left, "an altered default is for writes from now on")
}

func TestExpiringIsOrderedAndBounded(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	for i, ttl := range []int{30, 10, 20, 40} {
		require.NoError(t, db.PutTTL(fmt.Append(nil, i), nil, time.Duration(ttl)*time.Second))
	}
	start := clock.now()
	clock.move(15 * time.Second)
	keys := func(before time.Time) (keys []string) {
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			for k := range tx.Expiring(before) {
				keys = append(keys, string(k))
			}
			return nil
		}))
		return keys
	}
	require.Equal(t, []string{"1", "2", "0", "3"}, keys(time.Time{}), "due and still stored ones first")
	require.Equal(t, []string{"1", "2"}, keys(start.Add(30*time.Second)))
	require.Equal(t, []string{"1", "2", "0"}, keys(start.Add(30*time.Second+1)))
	at, ok, err := db.NextExpiry()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, start.Add(10*time.Second), at)
	live, err := db.CountLive()
	require.NoError(t, err)
	require.Equal(t, int64(3), live)
}

// TestOneClockReadingPerTransaction counts them.
func TestOneClockReadingPerTransaction(t *testing.T) {
	var readings int
	at := time.UnixMilli(1_700_000_000_000)
	db := openOn(
		t,
		vfs.NewMemory(),
		&kv.Options{Durability: kv.NoSync, Clock: func() time.Time { readings++; return at }},
	)
	once := func(what string, call func() error) {
		t.Helper()
		readings = 0
		require.NoError(t, call(), what)
		require.Equal(t, 1, readings, what)
	}
	once("put", func() error { return db.PutTTL([]byte("k"), nil, time.Second) })
	at = at.Add(time.Minute)
	once("view", func() error {
		return db.View(func(tx *kv.Tx) error {
			_, err := tx.Has([]byte("k"))
			return err
		})
	})
	once("put with an eviction before it", func() error { return db.PutTTL([]byte("l"), nil, time.Second) })
	require.Equal(t, int64(1), count(t, db))
	at = at.Add(time.Minute)
	once("get of an expired key", func() error { _, err := db.Has([]byte("l")); return err })
	fillTTL(t, db, 256, time.Second)
	at = at.Add(time.Minute)
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		require.False(t, tx.Cursor().First())
		return nil
	}))
	once("get with an eviction after it", func() error { _, err := db.Has([]byte("k000000")); return err })
	require.Zero(t, count(t, db))
	fillTTL(t, db, 600, time.Second)
	at = at.Add(time.Minute)
	once("purge of several batches", func() error {
		_, err := db.PurgeExpired(context.Background(), kv.PurgeOptions{})
		return err
	})
}

// TestPutTTLIsOneRecord: three rows in the log, and nothing else.
func TestPutTTLIsOneRecord(t *testing.T) {
	db, _ := openClock(t, kv.Options{})
	size := func(call func(tx *kv.Tx) error) (n int64) {
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			before := kv.RawTx(tx).Bytes()
			err := call(tx)
			n = kv.RawTx(tx).Bytes() - before
			return err
		}))
		return n
	}
	require.NoError(t, db.PutTTL([]byte("first"), nil, time.Hour))
	key, value := make([]byte, 20), make([]byte, 1000)
	plain := size(func(tx *kv.Tx) error { return tx.Put(key, value) })
	require.NoError(t, db.Delete(key))
	timed := size(func(tx *kv.Tx) error { return tx.PutTTL(key, value, time.Hour) })
	require.LessOrEqual(t, timed-plain, int64(2*(len(key)+8+8)))
	slide := size(func(tx *kv.Tx) error { return tx.Expire(key, 2*time.Hour) })
	require.Less(t, slide, int64(150), "the value is not rewritten")
	require.NoError(t, db.Update(func(tx *kv.Tx) error { return tx.Persist(key) }))
}

// TestExpiringBeyondTheLastExpiry: no instant is too late to ask for what expires before it.
func TestExpiringBeyondTheLastExpiry(t *testing.T) {
	db := openTest(t)
	last := time.UnixMilli(math.MaxInt64)
	require.NoError(t, db.PutExpireAt([]byte("k"), nil, last))
	for before, want := range map[time.Time]int{last: 0, last.Add(time.Millisecond): 1, last.Add(time.Hour): 1, {}: 1} {
		n := 0
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			for range tx.Expiring(before) {
				n++
			}
			return nil
		}))
		require.Equal(t, want, n, before)
	}
}

// TestPurgeFitsItsTransactions: where the bound of a transaction has no room for a whole batch,
// batches are smaller.
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

// TestMoreAfterAnErrorInATransaction: all keys stand, and are due.
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

// TestPurgeThatHasNoRoomSaysThatMoreIsDue, as one does that a context or OnExpire stops.
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
