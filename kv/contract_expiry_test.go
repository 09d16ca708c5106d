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
	old := beginTx(t, db, false)
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

// TestFamilyWithoutExpiriesReadsNoMore opens a store anew for each call, so that each page it
// touches is read from the file once, and counts these reads.
func TestFamilyWithoutExpiriesReadsNoMore(t *testing.T) {
	racetest.OneGoroutine(t)
	pages := func(timed bool, family string, call func(f *kv.Family) error) uint64 {
		fsys := vfs.NewMemory()
		open := func() *kv.DB {
			db := mustOpenOn(t, fsys, &kv.Options{Clock: newClock().now}, txn.Options{NoMap: true})
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
		require.Equal(t, pages(false, "plain", call), pages(true, "plain", call),
			"%s beside a family with expiries", name)
	}
	plain := pages(false, "timed", get(timedKey))
	require.Equal(t, plain, pages(true, "timed", get(permanentKey)), "a permanent key costs one descent")
	require.Equal(t, plain, pages(true, "timed", get(timedKey)), "and so does one that expires")
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
	db := openOn(t, vfs.NewMemory(),
		&kv.Options{Durability: kv.NoSync, Clock: func() time.Time { readings++; return at }})
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
	for before, want := range map[time.Time]int{last: 0, last.Add(time.Millisecond): 1,
		last.Add(time.Hour): 1, {}: 1} {
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
