package kv_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// together makes one-shot writes meet: all wait while a transaction holds the writer lock, in the
// order of writes. It returns their errors.
func together(t *testing.T, db *kv.DB, writes ...func() error) []error {
	t.Helper()
	tx := beginTx(t, db, true)
	errs := make([]error, len(writes))
	var done sync.WaitGroup
	for i, write := range writes {
		done.Go(func() {
			errs[i] = errors.New("did not come back")
			errs[i] = write()
		})
		waitFor(t, fmt.Sprintf("write %d waits", i), func() bool { return kv.Waiting(db) > i })
	}
	require.NoError(t, tx.Rollback())
	done.Wait()
	return errs
}

func add(db *kv.DB, key string) func() error {
	return func() error { _, err := db.Increment([]byte(key), 1, 0); return err }
}

func countOf(t *testing.T, db *kv.DB, key string) int {
	t.Helper()
	v, err := db.Get([]byte(key))
	require.NoError(t, err)
	return int(binary.BigEndian.Uint64(v))
}

func seq(t *testing.T, db *kv.DB) (n uint64) {
	t.Helper()
	require.NoError(t, db.View(func(tx *kv.Tx) error { n = tx.Seq(); return nil }))
	return n
}

func TestWritesThatWaitShareACommit(t *testing.T) {
	db := openTest(t)
	for _, n := range []int{1, 2, kv.MaxShared, kv.MaxShared + 1, 2*kv.MaxShared + 5} {
		before := seq(t, db)
		var writes []func() error
		for range n {
			writes = append(writes, add(db, fmt.Sprint("n", n)))
		}
		for i, err := range together(t, db, writes...) {
			require.NoError(t, err, i)
		}
		require.Equal(t, n, countOf(t, db, fmt.Sprint("n", n)))
		commits := uint64(n+kv.MaxShared-1) / kv.MaxShared
		require.Equal(t, commits, seq(t, db)-before, "%d writes", n)
	}
}

// TestSharedWritesAreInOrder: each reads the writes before it.
func TestSharedWritesAreInOrder(t *testing.T) {
	db := openTest(t)
	var swapped [10]bool
	var writes []func() error
	for i := range swapped {
		writes = append(writes, func() (err error) {
			var old []byte
			if i > 0 {
				old = fmt.Append(nil, i-1)
			}
			swapped[i], err = db.CompareAndSwap([]byte("k"), old, fmt.Append(nil, i), kv.PutOptions{})
			return err
		})
	}
	for i, err := range together(t, db, writes...) {
		require.NoError(t, err)
		require.True(t, swapped[i], i)
	}
}

func TestWritesOfSeveralFamiliesShare(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.CreateCF("f", kv.CFOptions{DefaultTTL: time.Hour}))
	before := seq(t, db)
	f := db.CF("f")
	errs := together(t, db,
		func() error { return db.Put([]byte("a"), []byte("default")) },
		func() error { return f.Put([]byte("a"), []byte("f")) },
		func() error { return db.CF("none").Put([]byte("a"), nil) },
		func() error { return f.PutTTL([]byte("b"), nil, time.Minute) },
	)
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.ErrorIs(t, errs[2], kv.ErrCFNotFound)
	require.NoError(t, errs[3])
	require.EqualValues(t, 1, seq(t, db)-before)
	v, err := f.Get([]byte("a"))
	require.NoError(t, err)
	require.Equal(t, "f", string(v))
	left, err := f.TTL([]byte("a"))
	require.NoError(t, err)
	require.Greater(t, left, 59*time.Minute)
	checkStore(t, db)
}

// TestErrorInAGroupIsTheErrorAlone: each write returns what it would return alone, and the other
// writes of its group are not affected.
func TestErrorInAGroupIsTheErrorAlone(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.Put([]byte("text"), []byte("no counter")))
	errs := together(t, db,
		add(db, "text"),
		add(db, "n"),
		func() error { return db.Put(nil, nil) },
		func() error { return db.Persist([]byte("absent")) },
		add(db, "n"),
		func() error { return db.PutTTL([]byte("k"), nil, -1) },
	)
	require.ErrorIs(t, errs[0], kv.ErrNotCounter)
	require.NoError(t, errs[1])
	require.ErrorIs(t, errs[2], kv.ErrKeyEmpty)
	require.ErrorIs(t, errs[3], kv.ErrNotFound)
	require.NoError(t, errs[4])
	require.ErrorIs(t, errs[5], kv.ErrInvalidTTL)
	require.Equal(t, 2, countOf(t, db, "n"))
	checkStore(t, db)
}

// TestRowsThatShareAreInOrder: puts and deletes of few keys in two families share a transaction. The
// result is that of the same writes one by one.
func TestRowsThatShareAreInOrder(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.CreateCF("f", kv.CFOptions{}))
	rng := rand.New(rand.NewPCG(1, 2))
	want := map[string]string{}
	for range 30 {
		var writes []func() error
		for i := range 1 + rng.IntN(kv.MaxShared) {
			family, key, value := "default", fmt.Append(nil, "k", rng.IntN(8)), fmt.Append(nil, "v", i)
			if rng.IntN(6) == 0 {
				family = "f"
			}
			cf := db.CF(family)
			switch rng.IntN(4) {
			case 0:
				writes = append(writes, func() error { return cf.Delete(key) })
				delete(want, family+string(key))
			case 1:
				writes = append(writes, func() error { return cf.PutTTL(key, value, time.Hour) })
				want[family+string(key)] = string(value) + " for a while"
			default:
				writes = append(writes, func() error { return cf.Put(key, value) })
				want[family+string(key)] = string(value)
			}
		}
		before := seq(t, db)
		require.NoError(t, errors.Join(together(t, db, writes...)...))
		require.EqualValues(t, 1, seq(t, db)-before)
		have := map[string]string{}
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			for _, family := range []string{"default", "f"} {
				for key, value := range tx.CF(family).All() {
					have[family+string(key)] = string(value)
					if left, err := tx.CF(family).TTL(key); err != nil {
						return err
					} else if left != kv.NoExpiry {
						have[family+string(key)] += " for a while"
					}
				}
			}
			return nil
		}))
		require.Equal(t, want, have)
	}
	checkStore(t, db)
}

// TestOneOfTheRowsThatShareIsBad: its write returns the error, and the rows around it share.
func TestOneOfTheRowsThatShareIsBad(t *testing.T) {
	bad := map[string]func(db *kv.DB) error{
		"key":    func(db *kv.DB) error { return db.Put(nil, nil) },
		"delete": func(db *kv.DB) error { return db.Delete(make([]byte, db.MaxKeySize()+1)) },
		"ttl":    func(db *kv.DB) error { return db.PutTTL([]byte("k"), nil, 0) },
	}
	errs := map[string]error{"key": kv.ErrKeyEmpty, "delete": kv.ErrKeyTooLarge, "ttl": kv.ErrInvalidTTL}
	const rows = 20 // more than are carried out together
	for name, call := range bad {
		for at := range rows {
			db := openTest(t)
			before := seq(t, db)
			var writes []func() error
			for i := range rows {
				writes = append(writes, func() error { return db.Put(fmt.Append(nil, i), nil) })
			}
			writes[at] = func() error { return call(db) }
			for i, err := range together(t, db, writes...) {
				if i == at {
					require.ErrorIs(t, err, errs[name])
				} else {
					require.NoError(t, err)
				}
			}
			n, err := db.Count()
			require.NoError(t, err)
			require.EqualValues(t, rows-1, n, "%s %d", name, at)
			require.EqualValues(t, 1, seq(t, db)-before, "%s %d", name, at)
		}
	}
}

// TestWriteThatFailsHalfWayFailsAlone: a value that finds no space has changed pages before.
func TestWriteThatFailsHalfWayFailsAlone(t *testing.T) {
	large := func(db *kv.DB) func() error {
		return func() error { return db.Put([]byte("large"), make([]byte, 8<<20)) }
	}
	t.Run("beside counters", func(t *testing.T) {
		db := openOn(t, vfs.NewMemory(), &kv.Options{MaxBytes: 4 << 20})
		errs := together(t, db, add(db, "n"), large(db), add(db, "n"))
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], kv.ErrNoSpace)
		require.NoError(t, errs[2])
		require.Equal(t, 2, countOf(t, db, "n"))
		checkStore(t, db)
	})
	t.Run("beside rows", func(t *testing.T) {
		db := openOn(t, vfs.NewMemory(), &kv.Options{MaxBytes: 4 << 20})
		put := func(key string) func() error { return func() error { return db.Put([]byte(key), nil) } }
		errs := together(t, db, put("a"), put("b"), large(db), put("c"), put("d"))
		require.ErrorIs(t, errs[2], kv.ErrNoSpace)
		require.NoError(t, errors.Join(errs[0], errs[1], errs[3], errs[4]))
		n, err := db.Count()
		require.NoError(t, err)
		require.EqualValues(t, 4, n)
		checkStore(t, db)
	})
}

// TestLargeWritesDoNotShare: writes that do not fit into a shared transaction run alone.
func TestLargeWritesDoNotShare(t *testing.T) {
	db := openTest(t)
	before := seq(t, db)
	var writes []func() error
	for i := range 4 {
		writes = append(writes, func() error { return db.Put(fmt.Append(nil, i), make([]byte, 300<<10)) })
	}
	for _, err := range together(t, db, writes...) {
		require.NoError(t, err)
	}
	require.EqualValues(t, 4, seq(t, db)-before)
	n, err := db.Count()
	require.NoError(t, err)
	require.EqualValues(t, 4, n)
}

// TestSharedInstantIsReadAfterTheLastCame: no expiry is counted from an instant before its call.
func TestSharedInstantIsReadAfterTheLastCame(t *testing.T) {
	clock := newClock()
	db := openOn(t, vfs.NewMemory(), &kv.Options{Clock: clock.now})
	errs := together(t, db,
		add(db, "n"),
		func() error { clock.move(time.Hour); return db.PutTTL([]byte("k"), nil, time.Minute) },
	)
	require.NoError(t, errors.Join(errs...))
	left, err := db.TTL([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, time.Minute, left)
}

// underWay is a store with one write whose commit is under way: its log waits for a signal with
// each group that it has made durable.
type underWay struct {
	*kv.DB
	t       *testing.T
	before  uint64 // commits
	release chan struct{}
	writes  sync.WaitGroup
}

func newUnderWay(t *testing.T, d kv.Durability) *underWay {
	u := &underWay{t: t, release: make(chan struct{})}
	var armed atomic.Bool
	u.DB = openOn(t, vfs.NewMemory(), &kv.Options{Durability: d, Events: &kv.Events{
		CommitGroup: func(int, int64, time.Duration) {
			if armed.Load() {
				<-u.release
			}
		},
	}})
	u.before = u.Stats().Commits
	armed.Store(true)
	u.write()
	waitFor(t, "the first is on its way", func() bool { return u.commits() == 1 })
	return u
}

// write adds one to a counter, beside the test.
func (u *underWay) write() {
	u.writes.Go(func() { require.NoError(u.t, add(u.DB, "n")()) })
}

func (u *underWay) commits() int { return int(u.Stats().Commits - u.before) }

// end lets the log go on, and looks at what there is then.
func (u *underWay) end(writes, commits int) {
	u.t.Helper()
	close(u.release)
	u.writes.Wait()
	require.Equal(u.t, commits, u.commits())
	require.Equal(u.t, writes, countOf(u.t, u.DB, "n"))
}

// waitFor polls what no event tells of.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); runtime.Gosched() {
		require.True(t, time.Now().Before(deadline), what)
	}
}

// TestWritesThatComeDuringASyncShareTheNextOne: the leader waits for the writes whose sync is under
// way, and takes all writes in the queue.
func TestWritesThatComeDuringASyncShareTheNextOne(t *testing.T) {
	u := newUnderWay(t, kv.Sync)
	for i := range 3 {
		u.write()
		waitFor(t, "the next ones wait", func() bool { return kv.Waiting(u.DB) == i+1 })
	}
	for range 100 {
		runtime.Gosched()
	}
	require.Equal(t, 1, u.commits(), "a record of its own would wait as long")
	u.end(4, 2)
}

// TestHalvesOfALargeGroupTakeTurns: a group that fills a transaction does not wait for writes in flight.
func TestHalvesOfALargeGroupTakeTurns(t *testing.T) {
	u := newUnderWay(t, kv.Sync)
	for range kv.MaxShared {
		u.write()
	}
	waitFor(t, "the crowd has committed", func() bool { return u.commits() == 2 && kv.Waiting(u.DB) == 0 })
	u.end(1+kv.MaxShared, 2)
}

// TestHalvesOfALargeGroupWaitForEachOther: while one half of a group is in flight, the queued rest shares
// one transaction, too.
func TestHalvesOfALargeGroupWaitForEachOther(t *testing.T) {
	u := newUnderWay(t, kv.Sync)
	for range kv.MaxShared {
		u.write()
	}
	waitFor(t, "the crowd has committed", func() bool { return u.commits() == 2 && kv.Waiting(u.DB) == 0 })
	const rest = kv.MaxShared / 2
	for i := range rest {
		u.write()
		waitFor(t, "the next ones wait", func() bool { return kv.Waiting(u.DB) == i+1 })
	}
	for range 100 {
		runtime.Gosched()
	}
	require.Equal(t, 2, u.commits(), "more of them than those who wait are away")
	for range kv.MaxShared - rest {
		u.write()
	}
	waitFor(t, "the other half has committed", func() bool { return u.commits() == 3 })
	close(u.release) // a few may have come too late, and share the fourth
	u.writes.Wait()
	require.Equal(t, 1+2*kv.MaxShared, countOf(t, u.DB, "n"))
}

// TestWritesThatAskForNoSyncDoNotWaitForOne: they have no sync to share.
func TestWritesThatAskForNoSyncDoNotWaitForOne(t *testing.T) {
	u := newUnderWay(t, kv.NoSync)
	u.write()
	waitFor(t, "the second has committed", func() bool { return u.commits() == 2 })
	u.end(2, 2)
}

// TestBulkLoadBehindACommitThatIsUnderWay sees the rows of that commit, as every writer does, and
// does not retry in a loop until its sync has ended.
func TestBulkLoadBehindACommitThatIsUnderWay(t *testing.T) {
	u := newUnderWay(t, kv.Sync)
	_, err := u.BulkLoad(t.Context(), "default", numbered(1))
	require.ErrorIs(t, err, kv.ErrCFNotEmpty)
	u.end(1, 1)
}
