package kv_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// TestWriteToWritesACompactStore: the file of a snapshot opens without recovery, and has the rows,
// expiries, options and sequences of every family, also of a time-partitioned one, and no more pages
// than its rows need. The original has lost nine tenths of its rows.
func TestWriteToWritesACompactStore(t *testing.T) {
	db, clock := openTimed(t, kv.Options{}, time.Hour, time.Minute)
	require.NoError(t, db.CreateCF("other", kv.CFOptions{DefaultTTL: time.Minute}))
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 20_000 {
			if err := tx.Put(fmt.Appendf(nil, "%08d", i), make([]byte, 100)); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 20_000 {
			if i%10 != 0 {
				if err := tx.Delete(fmt.Appendf(nil, "%08d", i)); err != nil {
					return err
				}
			}
		}
		_, err := tx.CF("other").NextSequence()
		return errors.Join(err,
			tx.PutTTL([]byte("ttl"), []byte("v"), 1234*time.Millisecond),
			tx.CF("other").Put([]byte("usual"), bytes.Repeat([]byte("large"), 10_000)),
			tx.CF("m").Append(tx.Now(), []byte("k"), []byte("v")))
	}))
	path := filepath.Join(t.TempDir(), "copy.ebb")
	var file bytes.Buffer
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		n, err := tx.WriteTo(&file)
		require.EqualValues(t, file.Len(), n)
		return err
	}))
	rows := 2000 * (8 + 100)
	require.Less(t, file.Len(), rows*115/100+64<<10+12*4096)
	require.NoError(t, os.WriteFile(path, file.Bytes(), 0o600))
	copied, err := kv.Open(path, &kv.Options{Clock: clock.now, MustExist: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, copied.Close()) }()
	require.True(t, copied.RecoveryInfo().Clean)
	for p := range copied.Check(t.Context()) {
		t.Error(p)
	}
	stored, err := copied.Count()
	require.NoError(t, err)
	require.EqualValues(t, 2001, stored)
	left, err := copied.TTL([]byte("ttl"))
	require.NoError(t, err)
	require.Equal(t, 1234*time.Millisecond, left)
	size, err := copied.CF("other").Size([]byte("usual"))
	require.NoError(t, err)
	require.Equal(t, 50_000, size)
	next, err := copied.CF("other").NextSequence()
	require.NoError(t, err)
	require.EqualValues(t, 2, next)
	value, err := copied.CF("m").GetAt(clock.now(), []byte("k"))
	require.NoError(t, err)
	require.Equal(t, "v", string(value))
	o, err := copied.CFOptions("other")
	require.NoError(t, err)
	require.Equal(t, time.Minute, o.DefaultTTL)
}

// failingWriter fails after n bytes.
type failingWriter struct{ n int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.n -= len(p); w.n < 0 {
		return 0, errMachine
	}
	return len(p), nil
}

func TestWriteToReportsWhatKeepsItFromWriting(t *testing.T) {
	db := openTest(t)
	fill(t, db, "a", "b")
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		n, err := tx.WriteTo(&failingWriter{n: 10_000})
		require.ErrorIs(t, err, errMachine)
		require.Positive(t, n)
		_, err = tx.WriteTo(nil)
		require.ErrorIs(t, err, kv.ErrInvalidOptions)
		return nil
	}))
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		_, err := tx.WriteTo(&bytes.Buffer{})
		require.ErrorIs(t, err, kv.ErrInvalidOptions)
		return nil
	}))
	tx, err := db.Begin(t.Context(), false)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	_, err = tx.WriteTo(&bytes.Buffer{})
	require.ErrorIs(t, err, kv.ErrTxnDone)
}
