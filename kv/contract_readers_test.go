package kv_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// TestValueStaysUntilTheTransactionEnds, also one that the transaction itself has written, and then
// rolled back or deleted. The file is a real one, whose pages are mapped: writes to them show in
// slices that point there.
func TestValueStaysUntilTheTransactionEnds(t *testing.T) {
	// One page, which a deletion gives to the tree; one that a rollback gives to the next value;
	// some pages; many.
	for _, size := range []int{2500, 20_000, 6000, 300_000}[:racetest.Sample(4, 2)] {
		value := func(b byte) []byte { return bytes.Repeat([]byte{b}, size) }
		for name, undo := range map[string]func(tx *kv.Tx, sp kv.Savepoint) error{
			"rollback": func(tx *kv.Tx, sp kv.Savepoint) error { return tx.RollbackTo(sp) },
			"delete":   func(tx *kv.Tx, _ kv.Savepoint) error { return tx.Delete([]byte("a")) },
			"put":      func(tx *kv.Tx, _ kv.Savepoint) error { return tx.Put([]byte("a"), value('c')) },
		} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				db, err := openfs.Open(nil, filepath.Join(t.TempDir(), "a.ebb"),
					&kv.Options{CacheBytes: 1 << 20}, txn.Options{})
				require.NoError(t, err)
				defer func() { require.NoError(t, db.Close()) }()
				require.NoError(t, db.Update(func(tx *kv.Tx) error {
					var sp kv.Savepoint
					if name == "rollback" {
						sp = tx.Savepoint() // pages of transactions without one are used again sooner
					}
					for _, key := range []string{"a", "aa", "ab"} {
						require.NoError(t, tx.Put([]byte(key), value('a')))
					}
					got, err := tx.Get([]byte("a"))
					require.NoError(t, err)
					require.NoError(t, undo(tx, sp))
					for i := range 4 << 20 / size {
						require.NoError(t, tx.Put(fmt.Appendf(nil, "b%d", i), value('b')))
						require.NoError(t, tx.Put(fmt.Appendf(nil, "c%d", i), make([]byte, 900)))
					}
					require.True(t, bytes.Equal(value('a'), got))
					return nil
				}))
			})
		}
	}
}

// churn overwrites the same rows in many commits, with a checkpoint now and then.
func churn(t *testing.T, db *kv.DB, rounds int) {
	t.Helper()
	for i := range rounds {
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			for k := range 40 {
				key := fmt.Appendf(nil, "%03d", (i*7+k*11)%400)
				if err := tx.Put(key, fmt.Appendf(nil, "%0200d", i)); err != nil {
					return err
				}
			}
			return nil
		}))
		if i%20 == 19 {
			require.NoError(t, db.Checkpoint(context.Background()))
		}
	}
}

// TestReaderOpenForHours holds a snapshot over many commits and checkpoints, on a clock of the test's
// own. It reads the same throughout; writers never wait; Stats reports its age; the file grows by its
// pinned pages, not with every commit; and after its end all of them are reused.
func TestReaderOpenForHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := mustOpenOn(t, vfs.NewMemory(), nil, txn.Options{SegmentSize: 64 << 10, Inline: true})
		churn(t, db, 40)
		churn(t, db, 100)
		plain := db.Stats().FileBytes

		tx := beginTx(t, db, false)
		sum := snapshot(t, tx)
		pinned := int64(0)
		for hour := range 5 {
			time.Sleep(time.Hour)
			churn(t, db, 100)
			stats := db.Stats()
			require.Equal(t, 1, stats.Readers)
			require.Equal(t, time.Duration(hour+1)*time.Hour, stats.OldestReaderAge,
				"writers have not waited")
			now := snapshot(t, tx)
			require.Equal(t, sum, now)
			if hour == 0 {
				pinned = stats.PinnedBytes
				require.NotZero(t, pinned)
			}
			require.Equal(t, pinned, stats.PinnedBytes, "the snapshot is no larger than it was")
			require.LessOrEqual(t, stats.FileBytes, plain+pinned+(256<<10),
				"one step of growth above what is pinned")
		}
		grown := db.Stats().FileBytes
		require.NoError(t, tx.Rollback())
		require.Zero(t, db.Stats().OldestReaderAge)
		churn(t, db, 100)
		require.Zero(t, db.Stats().PinnedBytes)
		require.LessOrEqual(t, db.Stats().FileBytes, grown, "what was pinned is used again")
		checkStore(t, db)
		require.NoError(t, db.Close())
	})
}

// snapshot reads all that a transaction sees.
func snapshot(t *testing.T, tx *kv.Tx) (all string) {
	t.Helper()
	n := 0
	for k, v := range tx.All() {
		n++
		all += string(k) + "=" + string(v) + "\n"
	}
	require.NoError(t, tx.Err())
	require.Equal(t, 400, n)
	return all
}

// TestRowsInOrderBesideReaders applies batches of rows in ascending order to a store with NoSync,
// concurrently with checkpoints, syncs, changes of recent rows, and readers, each of which sees whole
// batches. Then it opens the store again after Close.
func TestRowsInOrderBesideReaders(t *testing.T) {
	const size = 400
	batches := racetest.Sample(150, 60)
	at := filepath.Join(t.TempDir(), "test.ebb")
	o := &kv.Options{Durability: kv.NoSync, CacheBytes: 4 << 20, CheckpointBytes: 1 << 20}
	db, err := openfs.Open(vfs.OS, at, o, txn.Options{SegmentSize: 256 << 10})
	require.NoError(t, err)
	key := func(i int) []byte { return fmt.Appendf(nil, "key %08d", i) }
	read := func(tx *kv.Tx) (int, error) { return readBatches(tx, key, size) }
	var done atomic.Bool
	var readers sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		readers.Go(func() {
			for last := 0; !done.Load() && errs[i] == nil; time.Sleep(time.Duration(i) * time.Millisecond) {
				errs[i] = db.View(func(tx *kv.Tx) error {
					n, err := read(tx)
					if err == nil && n < last {
						err = fmt.Errorf("%d rows after %d", n, last)
					}
					last = n
					return err
				})
			}
		})
	}
	b := db.NewBatch()
	value := make([]byte, 120)
	for i := range batches {
		b.Reset()
		for k := i * size; k < (i+1)*size; k++ {
			binary.BigEndian.PutUint64(value, uint64(k))
			if k%97 == 0 {
				b.PutTTL(key(k), value, time.Hour)
			} else {
				b.Put(key(k), value)
			}
		}
		require.NoError(t, db.Apply(context.Background(), b))
		switch i % 10 {
		case 3:
			require.NoError(t, db.Sync())
		case 7: // rows of leaves that the log names
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				for k := i * size; k < (i+1)*size; k += 7 {
					v, err := tx.Get(key(k))
					if err != nil {
						return err
					}
					if err := tx.Put(key(k), append(v, "changed"...)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
	done.Store(true)
	readers.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	for range 2 {
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			n, err := read(tx)
			require.Equal(t, batches*size, n)
			return err
		}))
		require.NoError(t, db.Close())
		db = mustOpen(t, at, o)
	}
	require.NoError(t, db.Close())
}

// readBatches counts the rows: whole batches of size rows, in order.
func readBatches(tx *kv.Tx, key func(int) []byte, size int) (n int, err error) {
	for k, v := range tx.All() {
		if string(k) != string(key(n)) || len(v) < 8 || binary.BigEndian.Uint64(v) != uint64(n) {
			return n, fmt.Errorf("row %d is %q", n, k)
		}
		n++
	}
	if n%size != 0 {
		err = fmt.Errorf("%d rows are no whole batches", n)
	}
	return n, err
}
