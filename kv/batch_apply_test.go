package kv_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/ttl"
	"github.com/ebbkv/ebb/txn"
)

// ahead counts the writes of the log that are started, knows whether one is on its way, and asks a
// function before each other call of the file system.
type ahead struct {
	started  atomic.Int64
	inFlight atomic.Bool
	hook     func(call string) error // nil: none
}

func (a *ahead) ask(call, _ string) error {
	switch {
	case call == "start_write":
		a.started.Add(1)
		a.inFlight.Store(true)
	case call == "end_write":
		a.inFlight.Store(false)
	case call == "grow": // also by goroutines that preallocate, beside the test's own
	case a.hook != nil:
		return a.hook(call)
	}
	return nil
}

// breakBeside breaks the disk at the first read beside a write of the log: nothing works any more
// but the end of that write.
func (a *ahead) breakBeside(broken *atomic.Bool) {
	a.hook = func(call string) error {
		if call == "read" && a.inFlight.Load() {
			broken.Store(true)
		}
		if broken.Load() {
			return errMachine
		}
		return nil
	}
}

// openAhead opens a store on a disk in memory that offers direct writes.
func openAhead(t *testing.T, disk vfs.FS, o *kv.Options) (*kv.DB, *ahead) {
	t.Helper()
	fsys := new(ahead)
	db, err := openfs.Open(&hookFS{disk, fsys.ask}, path, o, txn.Options{SegmentSize: 256 << 10, NoMap: true})
	require.NoError(t, err)
	return db, fsys
}

// again opens the store as a crash of the process leaves it.
func again(t *testing.T, disk *crashfs.Disk) *kv.DB {
	t.Helper()
	db, err := openfs.Open(crashed(t, disk), path, nil, txn.Options{NoMap: true})
	require.NoError(t, err)
	t.Cleanup(func() { checkStore(t, db); require.NoError(t, db.Close()) })
	return db
}

func puts(db *kv.DB, n int) *kv.Batch {
	b := db.NewBatch()
	for i := range n {
		b.Put(fmt.Appendf(nil, "key %05d", i*37), fmt.Append(nil, "value", i))
	}
	return b
}

// enough is the number of changes from which on a batch is logged while it is applied.
const enough = 16

// A loggedBatch is a batch, and how many writes of the log are started while one is applied.
type loggedBatch struct {
	o    *kv.Options
	want int64
	make func(db *kv.DB) *kv.Batch
}

// TestBatchIsLoggedWhileItIsApplied if its changes are known and the batch is large enough; the
// result is the same either way.
func TestBatchIsLoggedWhileItIsApplied(t *testing.T) {
	for name, c := range map[string]loggedBatch{
		"rows":     {want: 1, make: func(db *kv.DB) *kv.Batch { return puts(db, enough) }},
		"few_rows": {make: func(db *kv.DB) *kv.Batch { return puts(db, enough-1) }},
		"deletions": {want: 1, make: func(db *kv.DB) *kv.Batch {
			b := db.NewBatch()
			for i := range enough {
				b.Delete(fmt.Append(nil, i)) // none is there
			}
			return b
		}},
		"of_another_family":      {want: 1, make: twentyOf("plain")},
		"where_a_key_expires":    {make: twentyOf("timed")},
		"that_expire_by_default": {want: 1, make: twentyOf("usual")},
		"of_two_families": {make: func(db *kv.DB) *kv.Batch {
			b := puts(db,
				20)
			twenty(b.CF("timed"))
			return b
		}},
		"with_an_expiry": {make: func(db *kv.DB) *kv.Batch {
			b := puts(db, 20)
			b.PutTTL([]byte("k"), nil, time.Hour)
			return b
		}},
		"with_expiries": {want: 1, make: func(db *kv.DB) *kv.Batch {
			b := puts(db, 20)
			for i := range enough / 2 { // each is a row of two indexes
				b.PutTTL(fmt.Append(nil, i), nil, time.Hour)
			}
			return b
		}},
		"with_expiries_in_families": {want: 1, make: func(db *kv.DB) *kv.Batch {
			b := puts(db, 20)
			for i := range enough / 4 {
				b.CF("plain").PutTTL(fmt.Append(nil, i), nil, time.Hour)
				b.CF("timed").PutTTL(fmt.Append(nil, i), nil, time.Minute)
				b.PutTTL(fmt.Append(nil, i), nil, time.Hour)
				b.Delete(fmt.Append(nil, i))
			}
			return b
		}},
		"with_expiries_and_a_range": {want: 1, make: func(db *kv.DB) *kv.Batch {
			b := puts(db, 20)
			for i := range 2 * enough {
				b.PutTTL(fmt.Append(nil, i), nil, time.Hour)
				if i == enough {
					b.DeleteRange([]byte("1"), []byte("2"))
				}
			}
			return b
		}},
		"with_expiries_and_a_large_value": {make: func(db *kv.DB) *kv.Batch {
			b := db.NewBatch()
			for i := range enough {
				b.PutTTL(fmt.Append(nil, i), make([]byte, 300*i*i), time.Hour)
			}
			return b
		}},
		"with_too_many_expiries": {make: func(db *kv.DB) *kv.Batch {
			b := db.NewBatch()
			for i := range 10_000 {
				b.PutTTL(fmt.Append(nil, i), nil, time.Hour)
			}
			return b
		}},
		"with_a_range": {make: func(db *kv.DB) *kv.Batch {
			b := puts(db, 20)
			b.DeleteRange([]byte("key 00100"), nil)
			return b
		}},
		"with_a_large_value": {make: func(db *kv.DB) *kv.Batch {
			b := puts(db, 20)
			b.Put([]byte("k"), make([]byte, 5000))
			return b
		}},
		"too_large": {make: func(db *kv.DB) *kv.Batch { return puts(db, 20000) }},
		"that_wait_for_no_sync": {o: &kv.Options{Durability: kv.NoSync},
			make: func(db *kv.DB) *kv.Batch { return puts(db, 20) }},
		"of_a_bound_store": {o: &kv.Options{MaxBytes: 64 << 20},
			make: func(db *kv.DB) *kv.Batch { return puts(db, 20) }},
	} {
		t.Run(name, func(t *testing.T) { requireLogged(t, c) })
	}
}

// requireLogged applies the batch twice, and compares the store, and its files, with one that makes
// each change by itself.
func requireLogged(t *testing.T, c loggedBatch) {
	disk := crashfs.New(crashfs.Options{Direct: true, Untraced: true})
	o := kv.Options{}
	if c.o != nil {
		o = *c.o
	}
	clock := newClock()
	clock.ms.Store(time.Now().UnixMilli())
	// Each batch gives other expiries.
	o.Clock = func() time.Time { clock.move(time.Second); return clock.now() }
	db, fsys := openAhead(t, disk, &o)
	plainDB := openTest(t) // does everything one call after the other
	for _, db := range []*kv.DB{db, plainDB} {
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			return errors.Join(tx.CreateCF("plain", kv.CFOptions{}),
				tx.CreateCF("usual", kv.CFOptions{DefaultTTL: time.Hour}),
				tx.CreateCF("timed", kv.CFOptions{}),
				tx.CF("timed").PutTTL([]byte("x"), nil, time.Hour))
		}))
	}
	require.Zero(t, fsys.started.Load())
	b := c.make(db)
	for range 2 {
		require.NoError(t, db.Apply(t.Context(), b))
		require.NoError(t, plainDB.Apply(t.Context(), b)) // in memory, through the cache
	}
	require.Equal(t, 2*c.want, fsys.started.Load())
	require.False(t, fsys.inFlight.Load())
	require.NoError(t, db.Sync())
	left := again(t, disk)
	for _, family := range []string{"default", "plain", "usual", "timed"} {
		require.Equal(t, rows(t, plainDB, family), rows(t, db, family))
		require.Equal(t, rows(t, plainDB, family), rows(t, left, family))
		require.Equal(t, expiring(t, db, family), expiring(t, left, family))
	}
	require.NoError(t, db.Close())
}

func twentyOf(family string) func(db *kv.DB) *kv.Batch {
	return func(db *kv.DB) *kv.Batch {
		b := db.NewBatch()
		twenty(b.CF(family))
		return b
	}
}

func twenty(b *kv.BatchCF) {
	for i := range 20 {
		b.Put(fmt.Append(nil, i), nil)
	}
}

// TestSharedWritesAreLoggedWhileTheyAreApplied, and each runs alone if that fails.
func TestSharedWritesAreLoggedWhileTheyAreApplied(t *testing.T) {
	for _, fail := range []bool{false, true} {
		requireShared(t, fail, full,
			func(db *kv.DB, key []byte) error { return db.Put(key, []byte("changed")) })
		requireShared(t, fail, fullOfExpiries,
			func(db *kv.DB, key []byte) error { return db.PutTTL(key, []byte("changed"), 1000*time.Hour) })
	}
	t.Run("one_is_refused", func(t *testing.T) {
		_, db, fsys := full(t)
		writes := []func() error{func() error { return db.Put(nil, nil) }}
		for i := range 30 {
			writes = append(writes, func() error { return db.Put(fmt.Append(nil, i), nil) })
		}
		errs := together(t, db, writes...)
		require.ErrorIs(t, errs[0], kv.ErrKeyEmpty)
		require.NoError(t, errors.Join(errs[1:]...))
		require.Zero(t, fsys.started.Load(), "what it would do is not known")
		require.NoError(t, db.Close())
	})
}

// requireShared makes writes that share a transaction, and fails a read beside the write of their
// record or none.
func requireShared(t *testing.T, fail bool, full func(*testing.T) (*crashfs.Disk, *kv.DB, *ahead),
	put func(db *kv.DB, key []byte) error) {
	t.Helper()
	disk, db, fsys := full(t)
	failed := false
	fsys.hook = func(call string) error {
		if fail && !failed && call == "read" && fsys.inFlight.Load() {
			failed = true
			return errMachine
		}
		return nil
	}
	var writes []func() error
	for i := range 30 {
		writes = append(writes, func() error { return put(db, fmt.Appendf(nil, "key %05d", i*600*37)) })
	}
	writes = append(writes, func() error { return db.Delete([]byte("key 00037")) })
	for i, err := range together(t, db, writes...) {
		require.NoError(t, err, i)
	}
	require.EqualValues(t, 1, fsys.started.Load())
	require.Equal(t, fail, failed)
	left := again(t, disk)
	require.Equal(t, 30, countChanged(t, left))
	require.Equal(t, expiring(t, db, "default"), expiring(t, left, "default"))
	_, err := left.Get([]byte("key 00037"))
	require.ErrorIs(t, err, kv.ErrNotFound)
	checkStore(t, db)
	require.NoError(t, db.Close())
}

// TestSharedWriteThatIsOneTooMany for those that are applied together gives the first key another
// expiry; its index changes are buffered with theirs.
func TestSharedWriteThatIsOneTooMany(t *testing.T) {
	db := openTest(t)
	var writes []func() error
	for i := range ttl.ApplyRows {
		writes = append(writes, func() error {
			return db.PutTTL(fmt.Appendf(nil, "%02d", i), nil,
				time.Hour)
		})
	}
	writes = append(writes, func() error { return db.PutTTL([]byte("00"), nil, time.Minute) })
	require.NoError(t, errors.Join(together(t, db, writes...)...))
	left, err := db.TTL([]byte("00"))
	require.NoError(t, err)
	require.LessOrEqual(t, left, time.Minute)
	require.Len(t, expiring(t, db, "default"), ttl.ApplyRows)
	checkStore(t, db)
}

// TestSubmittedRecordsBesideEachOther runs batches, single writes and checkpoints concurrently on a real
// file system.
func TestSubmittedRecordsBesideEachOther(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.ebb")
	db, err := openfs.Open(nil, name, &kv.Options{CheckpointBytes: 256 << 10},
		txn.Options{SegmentSize: 64 << 10})
	require.NoError(t, err)
	var crowd sync.WaitGroup
	for g := range 6 {
		crowd.Go(func() {
			b := db.NewBatch()
			for i := range 60 {
				if g < 3 {
					b.Reset()
					for j := range 40 {
						if key := fmt.Appendf(nil, "%d/%d/%d", g, i, j); i%2 == 0 {
							b.Put(key, make([]byte, 50))
						} else {
							b.PutTTL(key, make([]byte, 50), time.Hour)
						}
					}
					if err := db.Apply(t.Context(), b); err != nil {
						t.Error(err)
					}
				} else if err := db.PutTTL(fmt.Appendf(nil, "%d/%d", g, i), nil, time.Hour); err != nil {
					t.Error(err)
				}
			}
		})
	}
	crowd.Wait()
	n, err := db.Count()
	require.NoError(t, err)
	require.EqualValues(t, 3*60*40+3*60, n)
	checkStore(t, db)
	require.NoError(t, db.Close())
	db = mustOpen(t, name, nil)
	again, err := db.Count()
	require.NoError(t, err)
	require.Equal(t, n, again)
	require.NoError(t, db.Close())
}

// TestBatchForWhichThereIsNoRoomIsNotInTheLog: a record in the log has its pages reserved, or the
// next open would fail for want of them. Refused batches do not use up the log: the deletes that free
// space need it.
func TestBatchForWhichThereIsNoRoomIsNotInTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		full func(*testing.T) (*crashfs.Disk, *kv.DB, *ahead)
		rows func(*kv.DB) *kv.Batch
	}{"rows": {full, changed}, "rows_that_expire": {fullOfExpiries, changedExpiries}} {
		t.Run(name, func(t *testing.T) {
			disk, db, fsys := c.full(t)
			refused := 0
			for i := 0; refused < 20; i++ {
				disk.SetCapacity(disk.Used())
				b := c.rows(db)
				for j := range 50 {
					b.Put(fmt.Appendf(nil, "new %d %d", i, j), make([]byte, 500))
				}
				started := fsys.started.Load()
				err := db.Apply(t.Context(), b)
				if err == nil {
					continue // There was room in the file still.
				}
				require.ErrorIs(t, err, kv.ErrNoSpace)
				require.NotErrorIs(t, err, kv.ErrCommitUnknown)
				require.Equal(t, started, fsys.started.Load())
				refused++
			}
			left := crashedInto(t, crashfs.New(crashfs.Options{Direct: true, Untraced: true}), disk)
			left.SetCapacity(left.Used())
			found := mustOpenOn(t, left, nil, txn.Options{NoMap: true})
			require.Equal(t, rows(t, db, "default"), rows(t, found, "default"))
			require.NoError(t, found.Delete([]byte("key 00037")))
			left.SetCapacity(0)
			require.NoError(t, found.Close())
			for i := range 100 {
				require.NoError(t, db.Delete(fmt.Appendf(nil, "key %05d", i*37)))
			}
			disk.SetCapacity(0)
			require.NoError(t, db.Close())
		})
	}
}

// TestSharedLargeRowsAreAppliedTogether: their record is longer than the bound on the rows of a
// shared transaction, since it has a header for each row.
func TestSharedLargeRowsAreAppliedTogether(t *testing.T) {
	var commits atomic.Int64
	o := &kv.Options{
		PageSize: 64 << 10,
		Events:   &kv.Events{CommitGroup: func(n int, _ int64, _ time.Duration) { commits.Add(int64(n)) }},
	}
	fsys := new(ahead)
	db, err := openfs.Open(
		&hookFS{crashfs.New(crashfs.Options{Direct: true, Untraced: true}), fsys.ask}, path, o,
		txn.Options{NoMap: true, LeastRoom: 4 << 20})
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("first"), nil))
	before := commits.Load()
	var writes []func() error
	for i := range 16 {
		writes = append(writes,
			func() error { return db.Put(fmt.Appendf(nil, "%048d", i), make([]byte, 256<<10/16-48)) })
	}
	for _, err := range together(t, db, writes...) {
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, fsys.started.Load())
	require.EqualValues(t, 1, commits.Load()-before)
	require.NoError(t, db.Close())
}
