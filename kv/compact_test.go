package kv_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// TestCompactKeepsAllFamilies: plain rows, rows that expire, large values, sequences and partitions
// are the same after it, and again after reopening; the file is shorter.
func TestCompactKeepsAllFamilies(t *testing.T) {
	racetest.OneGoroutine(t)
	fsys, clock := vfs.NewMemory(), newClock()
	o := &kv.Options{Clock: clock.now, Durability: kv.NoSync}
	db := mustOpenOn(t, fsys, o, txn.Options{SegmentSize: 64 << 10})
	require.NoError(t, db.CreateCF("m", kv.CFOptions{Retention: time.Hour, Partition: time.Minute}))
	require.NoError(t, db.CreateCF("s", kv.CFOptions{DefaultTTL: time.Hour}))
	start := clock.now()
	for i := range 4000 {
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			if i%100 == 0 {
				clock.move(time.Second)
			}
			if err := tx.Put(fmt.Appendf(nil, "%05d", i*7919%4000), make([]byte, 900+i%50*100)); err != nil {
				return err
			}
			if _, err := tx.NextSequence(); err != nil {
				return err
			}
			if err := tx.CF("m").Append(clock.now(), fmt.Appendf(nil, "%05d", i),
				make([]byte, 50)); err != nil {
				return err
			}
			return tx.CF("s").Put(fmt.Appendf(nil, "%05d", i), []byte("session"))
		}))
	}
	require.NoError(t, db.Checkpoint(t.Context()))
	require.NoError(t, db.DeleteRange([]byte("00100"), []byte("03900")))
	require.NoError(t, db.CF("s").DeleteRange([]byte("00100"), []byte("03900")))

	content := func(db *kv.DB) (all []string) {
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			for _, cf := range []string{"default", "s"} {
				for k, v := range tx.CF(cf).All() {
					at, err := tx.CF(cf).Expiry(k)
					if err != nil {
						return err
					}
					all = append(all, fmt.Sprint(cf, string(k), len(v), at.UnixMilli()))
				}
			}
			for k, v := range tx.CF("m").ScanTime(start, clock.now().Add(time.Second), false) {
				all = append(all, fmt.Sprint(k, v))
			}
			return nil
		}))
		return all
	}
	want := content(db)
	require.Greater(t, len(want), 4000)
	var r kv.CompactResult
	steps, last := 0, int64(0)
	require.NoError(t, db.Compact(t.Context(), kv.CompactOptions{Result: &r, StepBytes: 40_000,
		Progress: func(done, total int64) {
			require.LessOrEqual(t, done, total)
			steps, last = steps+1, done
			_, err := db.CF("s").Get([]byte("00001")) // the store is in use
			require.NoError(t, err)
		}}))
	s := db.Stats()
	require.Greater(t, steps, 5)
	require.Equal(t, last, r.MovedBytes)
	require.Empty(t, r.LimitedBy)
	require.Equal(t, s.FileBytes, r.BytesAfter)
	require.Less(t, r.BytesAfter, r.BytesBefore/3)
	require.Less(t, r.BytesAfter, (s.FileBytes-s.FreeBytes)*12/10)
	require.Equal(t, want, content(db))
	checkStore(t, db)
	require.NoError(t, db.Close())
	db = openOn(t, fsys, o)
	require.Equal(t, want, content(db))
	n, err := db.NextSequence()
	require.NoError(t, err)
	require.EqualValues(t, 4001, n)
	clock.move(2 * time.Hour)
	parts, err := db.CF("m").DropExpired(t.Context())
	require.NoError(t, err)
	require.Greater(t, parts, 0)
}

// TestCompactFillKeepsRowsAndExpiries: the rows of which two thirds were deleted are in as many fewer
// pages as it says, and the expiry indexes fit them.
func TestCompactFillKeepsRowsAndExpiries(t *testing.T) {
	fsys, clock := vfs.NewMemory(), newClock()
	db := openOn(t, fsys, &kv.Options{Clock: clock.now, Durability: kv.NoSync})
	require.NoError(t, db.CreateCF("s", kv.CFOptions{DefaultTTL: time.Hour}))
	key := func(i int) []byte { return fmt.Appendf(nil, "%05d", i) }
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 3000 {
			if err := tx.CF("s").PutTTL(key(i), key(i), time.Duration(1+i%50)*time.Minute); err != nil {
				return err
			}
		}
		for i := range 3000 {
			if i%3 > 0 {
				if err := tx.CF("s").Delete(key(i)); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	require.NoError(t, db.Checkpoint(t.Context()))
	before := db.Stats()
	var r kv.CompactResult
	require.NoError(t, db.Compact(t.Context(), kv.CompactOptions{Fill: true, Result: &r}))
	after := db.Stats()
	used := before.FileBytes - before.FreeBytes
	require.Greater(t, r.SavedBytes, used/4)
	require.LessOrEqual(t, after.FileBytes-after.FreeBytes, used-r.SavedBytes+4*4096)
	checkStore(t, db)
	clock.move(25*time.Minute + time.Second)
	for i := range 3000 {
		_, err := db.CF("s").Get(key(i))
		require.Equal(t, i%3 == 0 && i%50 >= 25, err == nil, "%d: %v", i, err)
	}
	n, err := db.CF("s").PurgeExpired(t.Context(), kv.PurgeOptions{})
	require.NoError(t, err)
	require.Positive(t, n.Purged)
	checkStore(t, db)
}

// TestCompactErrors: each kind of store and option that it refuses.
func TestCompactErrors(t *testing.T) {
	fsys := vfs.NewMemory()
	db := openOn(t, fsys, nil)
	require.ErrorIs(t, db.Compact(t.Context(), kv.CompactOptions{StepBytes: -1}), kv.ErrInvalidOptions)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, db.Compact(ctx, kv.CompactOptions{}), context.Canceled)
	require.NoError(t, db.Compact(nil, kv.CompactOptions{})) //nolint:staticcheck // nil is documented
	require.NoError(t, db.Put([]byte("a"), nil))
	require.NoError(t, db.Update(func(*kv.Tx) error { // the write transaction is open
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, db.Compact(ctx, kv.CompactOptions{}), context.DeadlineExceeded)
		return nil
	}))
	require.NoError(t, db.Close())
	require.ErrorIs(t, db.Compact(t.Context(), kv.CompactOptions{}), kv.ErrClosed)
	read := openOn(t, fsys, &kv.Options{ReadOnly: true})
	require.ErrorIs(t, read.Compact(t.Context(), kv.CompactOptions{}), kv.ErrReadOnlyDB)
}
