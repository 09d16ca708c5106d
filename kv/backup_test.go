package kv_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// TestRestoredStoreKeepsExpiries, families with their options, and the clock mark: a clock that was
// set back brings no expired key back.
func TestRestoredStoreKeepsExpiries(t *testing.T) {
	clock := newClock()
	db := openOn(t, vfs.NewMemory(), &kv.Options{Clock: clock.now})
	require.NoError(t, db.CreateCF("sessions", kv.CFOptions{DefaultTTL: time.Hour}))
	require.NoError(t, db.CF("sessions").Put([]byte("a"), []byte("1")))
	require.NoError(t, db.PutTTL([]byte("short"), []byte("2"), time.Minute))
	fill(t, db, "plain")
	var full, inc bytes.Buffer
	info, err := db.Backup(t.Context(), &full, kv.BackupOptions{})
	require.NoError(t, err)
	require.Empty(t, info.Base)
	require.EqualValues(t, full.Len(), info.Bytes)
	require.Equal(t, clock.now(), info.MadeAt)
	saved, err := json.Marshal(info)
	require.NoError(t, err)
	var since kv.BackupInfo
	require.NoError(t, json.Unmarshal(saved, &since))

	clock.move(61 * time.Second)
	_, err = db.Get([]byte("short"))
	require.ErrorIs(t, err, kv.ErrNotFound)
	fill(t, db, "later")
	var done, total int64
	next, err := db.Backup(t.Context(), &inc, kv.BackupOptions{Since: &since, Progress: func(d, all int64) {
		done, total = d, all
	}})
	require.NoError(t, err)
	require.Equal(t, info.ID, next.Base)
	require.Equal(t, next.PageBytes, done)
	require.Equal(t, next.PageBytes, total)
	require.Less(t, next.PageBytes, next.StoreBytes)

	read, err := kv.ReadBackupInfo(bytes.NewReader(inc.Bytes()))
	require.NoError(t, err)
	require.Zero(t, read.Bytes)
	read.Bytes, read.MadeAt, next.MadeAt = next.Bytes, next.MadeAt.UTC(), next.MadeAt.UTC()
	require.Equal(t, next, read)
	all, err := kv.VerifyBackup(t.Context(), bytes.NewReader(full.Bytes()), bytes.NewReader(inc.Bytes()))
	require.NoError(t, err)
	require.Equal(t, next.ID, all.ID)
	require.EqualValues(t, full.Len()+inc.Len(), all.Bytes)

	disk := vfs.NewMemory()
	require.NoError(t, openfs.Restore(t.Context(), disk, path, txn.Options{}, &full, &inc))
	clock.move(-31 * time.Second) // "short" would live for another 30 s
	restored := openOn(t, disk, &kv.Options{Clock: clock.now})
	_, err = restored.Get([]byte("short"))
	require.ErrorIs(t, err, kv.ErrNotFound)
	left, err := restored.CF("sessions").TTL([]byte("a"))
	require.NoError(t, err)
	require.Equal(t, time.Hour-61*time.Second, left)
	require.Equal(t, rows(t, db, "default"), rows(t, restored, "default"))
	o, err := restored.CFOptions("sessions")
	require.NoError(t, err)
	require.Equal(t, time.Hour, o.DefaultTTL)
}

// TestBackupErrors: each wrong use has its error, and the store stays usable.
func TestBackupErrors(t *testing.T) {
	disk := vfs.NewMemory()
	db := openOn(t, disk, quick)
	fill(t, db, "a")
	_, err := db.Backup(t.Context(), nil, kv.BackupOptions{})
	require.ErrorIs(t, err, kv.ErrInvalidOptions)
	for _, since := range []kv.BackupInfo{
		{}, {StoreID: "00", ID: "1-0000000000000001"}, {StoreID: "00112233445566778899aabbccddeeff",
			ID: "1-1"},
		{StoreID: "00112233445566778899aabbccddeeff", ID: "1-0000000000000001 "},
	} {
		_, err := db.Backup(t.Context(), io.Discard, kv.BackupOptions{Since: &since})
		require.ErrorIs(t, err, kv.ErrInvalidOptions)
	}
	other := openTest(t)
	info, err := other.Backup(t.Context(), io.Discard, kv.BackupOptions{})
	require.NoError(t, err)
	_, err = db.Backup(t.Context(), io.Discard, kv.BackupOptions{Since: &info})
	require.ErrorIs(t, err, kv.ErrBackupBase)
	require.NotContains(t, err.Error(), "txn")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = db.Backup(ctx, io.Discard, kv.BackupOptions{})
	require.ErrorIs(t, err, context.Canceled)
	fill(t, db, "b")
	require.ErrorIs(t, kv.Restore(t.Context(), ""), kv.ErrInvalidPath)
	_, err = kv.ReadBackupInfo(bytes.NewReader([]byte("no backup")))
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.NoError(t, db.Close())
	_, err = db.Backup(t.Context(), io.Discard, kv.BackupOptions{})
	require.ErrorIs(t, err, kv.ErrClosed)
	readOnly := mustOpenOn(t, disk, &kv.Options{ReadOnly: true}, txn.Options{})
	_, err = readOnly.Backup(t.Context(), io.Discard, kv.BackupOptions{})
	require.ErrorIs(t, err, kv.ErrReadOnlyDB)
	require.NoError(t, readOnly.Close())
}

// TestRestoreOnTheDisk of the system: a backup file, an existing path, the mode of the new file.
func TestRestoreOnTheDisk(t *testing.T) {
	dir := t.TempDir()
	db := mustOpen(t, filepath.Join(dir, "a.ebb"), nil)
	require.NoError(t, db.Put([]byte("large"), make([]byte, 3<<20)))
	fill(t, db, "a", "b")
	file, err := os.Create(filepath.Join(dir, "full"))
	require.NoError(t, err)
	_, err = db.Backup(t.Context(), file, kv.BackupOptions{})
	require.NoError(t, err)
	at := filepath.Join(dir, "b.ebb")
	restore := func(path string) error {
		_, err := file.Seek(0, io.SeekStart)
		require.NoError(t, err)
		return kv.Restore(t.Context(), path, file)
	}
	require.NoError(t, restore(at))
	again := mustOpen(t, at, &kv.Options{MustExist: true})
	require.Equal(t, rows(t, db, "default"), rows(t, again, "default"))
	checkStore(t, again)
	require.NoError(t, again.Close())
	err = restore(at)
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, at)
	require.ErrorIs(t, restore(filepath.Join(dir, "none", "c.ebb")), fs.ErrNotExist)
	require.NoError(t, file.Truncate(100<<10))
	err = restore(filepath.Join(dir, "c.ebb"))
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, file.Name())
	require.NoError(t, file.Close())
	require.NoError(t, db.Close())
}

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
	copied := mustOpen(t, path, &kv.Options{Clock: clock.now, MustExist: true})
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
	tx := beginTx(t, db, false)
	require.NoError(t, tx.Rollback())
	_, err := tx.WriteTo(&bytes.Buffer{})
	require.ErrorIs(t, err, kv.ErrTxnDone)
}
