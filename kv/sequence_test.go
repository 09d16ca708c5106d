package kv_test

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

func TestSequenceBelongsToTheFamily(t *testing.T) {
	db := openTest(t)
	require.NoError(t, db.CreateCF("f", kv.CFOptions{}))
	next := func(f *kv.Family, want uint64) {
		t.Helper()
		got, err := f.NextSequence()
		require.NoError(t, err)
		require.Equal(t, want, got)
		last, err := f.Sequence()
		require.NoError(t, err)
		require.Equal(t, want, last)
	}
	last, err := db.CF("f").Sequence()
	require.NoError(t, err)
	require.Zero(t, last)
	next(db.CF("f"), 1)
	next(db.CF("f"), 2)
	next(db.CF("default"), 1)
	require.NoError(t, db.CF("f").Clear())
	next(db.CF("f"), 3)
	require.NoError(t, db.RenameCF("f", "g"))
	next(db.CF("g"), 4)
	require.NoError(t, db.DropCF("g"))
	require.NoError(t, db.CreateCF("g", kv.CFOptions{}))
	next(db.CF("g"), 1)
	n, err := db.CF("g").Count()
	require.NoError(t, err)
	require.Zero(t, n, "a number is no row")
}

// TestSequenceNumbersAreUnique: concurrent one-shot calls share transactions, and each gets a number
// of its own.
func TestSequenceNumbersAreUnique(t *testing.T) {
	db := openTest(t)
	const callers, calls = 8, 50
	numbers := make([][]uint64, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for range calls {
				n, err := db.NextSequence()
				if err != nil {
					t.Error(err)
					return
				}
				numbers[i] = append(numbers[i], n)
			}
		})
	}
	wg.Wait()
	all := slices.Sorted(slices.Values(slices.Concat(numbers...)))
	for i, n := range all {
		require.Equal(t, uint64(i+1), n)
	}
	require.Len(t, all, callers*calls)
}

// TestSequenceIsCommittedWithItsRow: numbers of transactions that were rolled back are given again;
// others never, after a reopen too.
func TestSequenceIsCommittedWithItsRow(t *testing.T) {
	fs := vfs.NewMemory()
	db := openOn(t, fs, &kv.Options{})
	take := func(tx *kv.Tx) error {
		n, err := tx.NextSequence()
		if err != nil {
			return err
		}
		return tx.Put(binary.BigEndian.AppendUint64(nil, n), nil)
	}
	require.NoError(t, db.Update(take))
	tx, err := db.Begin(context.Background(), true)
	require.NoError(t, err)
	require.NoError(t, take(tx))
	require.NoError(t, tx.Rollback())
	require.NoError(t, db.Update(take))
	require.NoError(t, db.Close())
	db = openOn(t, fs, &kv.Options{})
	require.NoError(t, db.Update(take))
	last, err := db.Sequence()
	require.NoError(t, err)
	require.Equal(t, uint64(3), last)
	rows, err := db.Count()
	require.NoError(t, err)
	require.Equal(t, int64(3), rows)
}

func TestSequenceErrors(t *testing.T) {
	db := openTest(t)
	_, err := db.CF("absent").NextSequence()
	require.ErrorIs(t, err, kv.ErrCFNotFound)
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		_, err := tx.NextSequence()
		require.ErrorIs(t, err, kv.ErrReadOnlyTxn)
		return nil
	}))
	tx := beginTx(t, db, true)
	require.NoError(t, putLast(tx, []byte("\xff\xff\xff\xff\xff\xff\xff\xff")))
	_, err = tx.NextSequence()
	require.ErrorIs(t, err, kv.ErrNotCounter)
	require.Equal(t,
		`kv: not a counter, or it would overflow: the sequence of the family has ended: "default"`,
		err.Error())
	require.NoError(t, tx.Rollback())
	require.NoError(t, db.Close())
	_, err = db.NextSequence()
	require.ErrorIs(t, err, kv.ErrClosed)
}

// putLast stores a value in the metadata row of the sequence of "default".
func putLast(tx *kv.Tx, value []byte) error {
	f, err := kv.FindFamily(tx, "default")
	if err != nil {
		return err
	}
	raw := kv.RawTx(tx)
	if !raw.Exists(f.Metadata()) {
		if err := raw.Create(f.Metadata()); err != nil {
			return err
		}
	}
	_, err = raw.Put(f.Metadata(), []byte("sequence-last"), value, 0)
	return err
}

func TestCheckFindsADamagedSequence(t *testing.T) {
	db, err := kv.OpenMemory(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, db.Update(func(tx *kv.Tx) error { return putLast(tx, []byte("four")) }))
	var all []string
	for p := range db.Check(t.Context()) {
		require.Equal(t, "catalog", p.Kind)
		require.Equal(t, "default", p.Family)
		all = append(all, p.Detail)
	}
	require.Len(t, all, 1)
	require.Contains(t, all[0], "sequence-last of 4 bytes")
	_, err = db.NextSequence()
	require.ErrorIs(t, err, kv.ErrCorrupt)
}
