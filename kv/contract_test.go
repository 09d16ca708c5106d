package kv_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// subject is a store in one of four states, with what its rows need.
type subject struct {
	db  *kv.DB
	old *kv.Tx // a read transaction that was begun while the store was healthy; ended if the store is closed
}

// want is what a call returns in each state; nil: no error.
type want struct{ healthy, readOnly, poisoned, closed error }

// everywhere is a call that is refused alike in every state of an open store.
func everywhere(err error) want { return want{err, err, err, kv.ErrClosed} }

// write is a writing call with an argument that is refused, or, with nil, a good one: what is wrong
// with the store comes first.
func write(err error) want { return want{err, kv.ErrReadOnlyDB, kv.ErrFailed, kv.ErrClosed} }

// read is a reading call without fault.
var read = want{nil, nil, nil, kv.ErrClosed}

// contractRow is a call and what it returns.
type contractRow struct {
	name string
	call func(s subject) error
	want want
}

// contract, with pointContract and lineContract, has a row for each line of the error contract that
// can be met on an open store, except those that begin with a change that is right: see
// TestHandleFollowsItsFamily and TestTransactionAboveTheLimitIsRefused.
var contract = []contractRow{
	{"put/empty_key", func(s subject) error { return s.db.Put(nil, nil) }, write(kv.ErrKeyEmpty)},
	{
		"get/empty_key",
		func(s subject) error { _, err := s.db.Get([]byte{}); return err },
		everywhere(kv.ErrKeyEmpty),
	},
	{
		"get_append/empty_key",
		func(s subject) error { _, err := s.db.GetAppend(nil, nil); return err },
		everywhere(kv.ErrKeyEmpty),
	},
	{"has/empty_key", func(s subject) error { _, err := s.db.Has(nil); return err }, everywhere(kv.ErrKeyEmpty)},
	{
		"size/empty_key",
		func(s subject) error { _, err := s.db.Size(nil); return err },
		everywhere(kv.ErrKeyEmpty),
	},
	{"delete/empty_key", func(s subject) error { return s.db.Delete(nil) }, write(kv.ErrKeyEmpty)},
	{
		"increment/empty_key",
		func(s subject) error { _, err := s.db.Increment(nil, 1, 0); return err },
		write(kv.ErrKeyEmpty),
	},
	{
		"swap/empty_key",
		func(s subject) error { _, err := s.db.CompareAndSwap(nil, nil, nil, kv.PutOptions{}); return err },
		write(kv.ErrKeyEmpty),
	},
	{
		"compare_delete/empty_key",
		func(s subject) error { _, err := s.db.CompareAndDelete(nil, nil); return err },
		write(kv.ErrKeyEmpty),
	},
	{"put/large_key", func(s subject) error { return s.db.Put(largeKey, nil) }, write(kv.ErrKeyTooLarge)},
	{
		"get/large_key",
		func(s subject) error { _, err := s.db.Get(largeKey); return err },
		everywhere(kv.ErrKeyTooLarge),
	},
	{
		"has/large_key",
		func(s subject) error { _, err := s.db.Has(largeKey); return err },
		everywhere(kv.ErrKeyTooLarge),
	},
	{"delete/large_key", func(s subject) error { return s.db.Delete(largeKey) }, write(kv.ErrKeyTooLarge)},
	{"batch/large_key", func(s subject) error {
		b := s.db.NewBatch()
		b.Put(largeKey, nil)
		return s.db.Apply(context.Background(), b)
	}, write(kv.ErrKeyTooLarge)},
	{
		"get/absent",
		func(s subject) error { _, err := s.db.Get([]byte("absent")); return err },
		everywhere(kv.ErrNotFound),
	},
	{
		"size/absent",
		func(s subject) error { _, err := s.db.Size([]byte("absent")); return err },
		everywhere(kv.ErrNotFound),
	},
	{"get/present", func(s subject) error { _, err := s.db.Get([]byte("k")); return err }, read},
	{"list_families", func(s subject) error { _, err := s.db.ListCFs(); return err }, read},
	{"count", func(s subject) error { _, err := s.db.Count(); return err }, read},
	{"empty_bounds_are_allowed", func(s subject) error {
		return s.db.View(func(tx *kv.Tx) error {
			c := tx.CursorIn(kv.ScanOptions{Lower: []byte{}, Upper: []byte{}})
			if !c.Seek(nil) || !c.SeekBefore(nil) {
				return errors.New("no row")
			}
			return c.Err()
		})
	}, read},
	{"iterator_past_its_ends", func(s subject) error {
		return s.db.View(func(tx *kv.Tx) error {
			c := tx.Cursor()
			for range 3 {
				c.Last()
				for range 2 {
					if c.Next() {
						return errors.New("a row behind the last")
					}
				}
			}
			return c.Err()
		})
	}, read},
	{"iterator_after_an_error", func(s subject) error {
		return s.db.View(func(tx *kv.Tx) error {
			c := tx.CF("absent").Cursor()
			for range 3 {
				if c.First() || c.Next() || !errors.Is(c.Err(), kv.ErrCFNotFound) {
					return errors.New("the error did not stay")
				}
			}
			return nil
		})
	}, everywhere(kv.ErrCFNotFound)},
	{"view/nil_callback", func(s subject) error { return s.db.View(nil) }, everywhere(kv.ErrInvalidOptions)},
	{"update/nil_callback", func(s subject) error { return s.db.Update(nil) }, write(kv.ErrInvalidOptions)},
	{"scan/negative_limit", func(s subject) error {
		return s.db.View(func(tx *kv.Tx) error {
			for range tx.Scan(kv.ScanOptions{Limit: -1}) {
			}
			return nil
		})
	}, everywhere(kv.ErrInvalidOptions)},
	{"put/contradictory_options", func(s subject) error {
		_, err := s.db.PutWith([]byte("k"), nil, kv.PutOptions{IfAbsent: true, IfPresent: true})
		return err
	}, write(kv.ErrInvalidOptions)},
	{
		"put_ttl/empty_key",
		func(s subject) error { return s.db.PutTTL(nil, nil, time.Second) },
		write(kv.ErrKeyEmpty),
	},
	{"ttl/empty_key", func(s subject) error { _, err := s.db.TTL(nil); return err }, everywhere(kv.ErrKeyEmpty)},
	{
		"expire/large_key",
		func(s subject) error { return s.db.Expire(largeKey, time.Second) },
		write(kv.ErrKeyTooLarge),
	},
	{
		"ttl/absent",
		func(s subject) error { _, err := s.db.TTL([]byte("absent")); return err },
		everywhere(kv.ErrNotFound),
	},
	{"ttl/permanent", func(s subject) error {
		left, err := s.db.TTL([]byte("k"))
		if err == nil && left != kv.NoExpiry {
			err = errors.New("not NoExpiry")
		}
		return err
	}, read},
	{
		"expiry/absent",
		func(s subject) error { _, err := s.db.Expiry([]byte("absent")); return err },
		everywhere(kv.ErrNotFound),
	},
	{
		"get_ttl/absent",
		func(s subject) error { _, _, err := s.db.GetTTL([]byte("absent")); return err },
		everywhere(kv.ErrNotFound),
	},
	{"count_live", func(s subject) error { _, err := s.db.CountLive(); return err }, read},
	{"next_expiry", func(s subject) error { _, _, err := s.db.NextExpiry(); return err }, read},
	{"put_ttl/zero", func(s subject) error { return s.db.PutTTL([]byte("k"), nil, 0) }, write(kv.ErrInvalidTTL)},
	{
		"put_ttl/negative",
		func(s subject) error { return s.db.PutTTL([]byte("k"), nil, -1) },
		write(kv.ErrInvalidTTL),
	},
	{"put_expire_at/past", func(s subject) error {
		return s.db.PutExpireAt([]byte("k"), nil, time.UnixMilli(1))
	}, write(kv.ErrInvalidTTL)},
	{"put_expire_at/overflow", func(s subject) error {
		return s.db.PutExpireAt([]byte("k"), nil, time.Date(300_000_000, 1, 1, 0, 0, 0, 0, time.UTC))
	}, write(kv.ErrInvalidTTL)},
	{"expire/zero", func(s subject) error { return s.db.Expire([]byte("k"), 0) }, write(kv.ErrInvalidTTL)},
	{
		"expire_at/past",
		func(s subject) error { return s.db.ExpireAt([]byte("k"), time.Time{}) },
		write(kv.ErrInvalidTTL),
	},
	{
		"expire/absent",
		func(s subject) error { return s.db.Expire([]byte("absent"), time.Second) },
		write(kv.ErrNotFound),
	},
	{"persist/absent", func(s subject) error { return s.db.Persist([]byte("absent")) }, write(kv.ErrNotFound)},
	{"batch/zero_ttl", func(s subject) error {
		b := s.db.NewBatch()
		b.PutTTL([]byte("k"), nil, 0)
		return s.db.Apply(context.Background(), b)
	}, write(kv.ErrInvalidTTL)},
	{"put/negative_ttl", func(s subject) error {
		_, err := s.db.PutWith([]byte("k"), nil, kv.PutOptions{TTL: -1})
		return err
	}, write(kv.ErrInvalidTTL)},
	{"put/ttl_with_no_expiry", func(s subject) error {
		_, err := s.db.PutWith([]byte("k"), nil, kv.PutOptions{TTL: 1, NoExpiry: true})
		return err
	}, write(kv.ErrInvalidOptions)},
	{"put/keep_if_absent", func(s subject) error {
		_, err := s.db.PutWith([]byte("k"), nil, kv.PutOptions{KeepTTL: true, IfAbsent: true})
		return err
	}, write(kv.ErrInvalidOptions)},
	{"family/negative_default_ttl", func(s subject) error {
		return s.db.CreateCF("new", kv.CFOptions{DefaultTTL: -1})
	}, write(kv.ErrInvalidTTL)},
	{"purge/negative_limit", func(s subject) error {
		_, err := s.db.PurgeExpired(context.Background(), kv.PurgeOptions{Limit: -1})
		return err
	}, write(kv.ErrInvalidOptions)},
	{"purge/nothing_due", func(s subject) error {
		_, err := s.db.PurgeExpired(context.Background(), kv.PurgeOptions{})
		return err
	}, write(nil)},
	{"purge/absent_family", func(s subject) error {
		_, err := s.db.CF("absent").PurgeExpired(context.Background(), kv.PurgeOptions{})
		return err
	}, write(kv.ErrCFNotFound)},
	{"purge_in_view", func(s subject) error {
		return s.db.View(func(tx *kv.Tx) error {
			_, err := tx.PurgeExpired(context.Background(), kv.PurgeOptions{})
			return err
		})
	}, write(kv.ErrReadOnlyTxn)},
	{"increment/negative_ttl", func(s subject) error {
		_, err := s.db.Increment([]byte("n"), 1, -time.Second)
		return err
	}, write(kv.ErrInvalidTTL)},
	{
		"increment/no_counter",
		func(s subject) error { _, err := s.db.Increment([]byte("k"), 1, 0); return err },
		write(kv.ErrNotCounter),
	},
	{
		"commit_in_view",
		func(s subject) error { return s.db.View((*kv.Tx).Commit) },
		everywhere(kv.ErrManagedTxn),
	},
	{
		"rollback_in_view",
		func(s subject) error { return s.db.View((*kv.Tx).Rollback) },
		everywhere(kv.ErrManagedTxn),
	},
	{"commit_in_update", func(s subject) error { return s.db.Update((*kv.Tx).Commit) }, write(kv.ErrManagedTxn)},
	{
		"rollback_in_update",
		func(s subject) error { return s.db.Update((*kv.Tx).Rollback) },
		write(kv.ErrManagedTxn),
	},
	{"callback_error_is_unchanged", func(s subject) error {
		return s.db.View(func(*kv.Tx) error { return errMachine })
	}, everywhere(errMachine)},
	{"put_in_view", func(s subject) error {
		return s.db.View(func(tx *kv.Tx) error { return tx.Put(nil, nil) })
	}, write(kv.ErrReadOnlyTxn)},
	{"create_family_in_view", func(s subject) error {
		return s.db.View(func(tx *kv.Tx) error { return tx.CreateCF("", kv.CFOptions{}) })
	}, write(kv.ErrReadOnlyTxn)},
	{"rollback_to_in_view", func(s subject) error {
		return s.db.View(func(tx *kv.Tx) error { return tx.RollbackTo(tx.Savepoint()) })
	}, write(kv.ErrReadOnlyTxn)},
	{"transaction_after_its_end", func(s subject) error {
		var kept *kv.Tx
		if err := s.db.View(func(tx *kv.Tx) error { kept = tx; return nil }); err != nil {
			return err
		}
		_, err := kept.Get(nil)
		return err
	}, everywhere(kv.ErrTxnDone)},
	{"update_in_a_cancelled_context", func(s subject) error {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return s.db.UpdateContext(ctx, func(*kv.Tx) error { return nil })
	}, write(context.Canceled)},
	{
		"family/empty_name",
		func(s subject) error { return s.db.CreateCF("", kv.CFOptions{}) },
		write(kv.ErrCFName),
	},
	{"family/nul", func(s subject) error { return s.db.CreateCF("a\x00", kv.CFOptions{}) }, write(kv.ErrCFName)},
	{
		"family/not_utf8",
		func(s subject) error { return s.db.EnsureCF("\xff", kv.CFOptions{}) },
		write(kv.ErrCFName),
	},
	{
		"family/long_name",
		func(s subject) error { return s.db.RenameCF("f", strings.Repeat("x", 201)) },
		write(kv.ErrCFName),
	},
	{
		"family/reserved",
		func(s subject) error { return s.db.CreateCF("__x", kv.CFOptions{}) },
		write(kv.ErrCFReserved),
	},
	{
		"family/reserved_handle",
		func(s subject) error { _, err := s.db.CF("__x").Get(nil); return err },
		everywhere(kv.ErrCFReserved),
	},
	{"family/drop_default", func(s subject) error { return s.db.DropCF("default") }, write(kv.ErrCFReserved)},
	{
		"family/rename_default",
		func(s subject) error { return s.db.RenameCF("default", "x") },
		write(kv.ErrCFReserved),
	},
	{
		"family/exists",
		func(s subject) error { return s.db.CreateCF("f", kv.CFOptions{}) },
		write(kv.ErrCFExists),
	},
	{
		"family/rename_to_existing",
		func(s subject) error { return s.db.RenameCF("f", "default") },
		write(kv.ErrCFExists),
	},
	{
		"family/absent",
		func(s subject) error { _, err := s.db.CF("absent").Get([]byte("k")); return err },
		everywhere(kv.ErrCFNotFound),
	},
	{
		"family/put_absent",
		func(s subject) error { return s.db.CF("absent").Put([]byte("k"), nil) },
		write(kv.ErrCFNotFound),
	},
	{"family/drop_absent", func(s subject) error { return s.db.DropCF("absent") }, write(kv.ErrCFNotFound)},
	{"bulk_load/absent_family", func(s subject) error {
		_, err := s.db.BulkLoad(context.Background(), "absent", numbered(1))
		return err
	}, write(kv.ErrCFNotFound)},
	{"bulk_load/not_empty", func(s subject) error {
		_, err := s.db.BulkLoad(context.Background(), "default", numbered(1))
		return err
	}, write(kv.ErrCFNotEmpty)},
	{"savepoint/foreign", func(s subject) error {
		return s.db.Update(func(tx *kv.Tx) error { return tx.RollbackTo(kv.Savepoint{}) })
	}, write(kv.ErrSavepoint)},
	{
		"apply/nil",
		func(s subject) error { return s.db.Apply(context.Background(), nil) },
		write(kv.ErrInvalidOptions),
	},
	{"old_snapshot/get", func(s subject) error {
		if s.old == nil {
			return kv.ErrClosed
		}
		_, err := s.old.Get([]byte("k"))
		return err
	}, read},
	{"old_snapshot/put", func(s subject) error {
		if s.old == nil {
			return kv.ErrClosed
		}
		return s.old.Put([]byte("k"), nil)
	}, write(kv.ErrReadOnlyTxn)},
	{"close_with_open_transactions", func(s subject) error {
		tx, err := s.db.Begin(context.Background(), false)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		return s.db.Close()
	}, everywhere(kv.ErrTxnsOpen)},
}

var largeKey = make([]byte, 1025)

// TestErrorContract makes each call in each state of a store, and then looks whether a byte of a
// file has changed.
func TestErrorContract(t *testing.T) {
	for _, state := range []struct {
		name string
		open func(t *testing.T, fs *brokenFS) subject
		want func(w want) error
	}{
		{"healthy", func(t *testing.T, fs *brokenFS) subject { return open(t, fs, nil) }, func(w want) error { return w.healthy }},
		{"read_only", func(t *testing.T, fs *brokenFS) subject {
			return open(t, fs, &kv.Options{ReadOnly: true})
		}, func(w want) error { return w.readOnly }},
		{"poisoned", func(t *testing.T, fs *brokenFS) subject {
			s := open(t, fs, nil)
			poison(t, fs, s.db)
			return s
		}, func(w want) error { return w.poisoned }},
		{"closed", func(t *testing.T, fs *brokenFS) subject {
			s := open(t, fs, nil)
			require.NoError(t, s.old.Rollback())
			require.NoError(t, s.db.Close())
			return subject{db: s.db}
		}, func(w want) error { return w.closed }},
		{"closed_after_it_was_poisoned", func(t *testing.T, fs *brokenFS) subject {
			s := open(t, fs, nil)
			poison(t, fs, s.db)
			require.NoError(t, s.old.Rollback())
			require.ErrorIs(t, s.db.Close(), kv.ErrFailed)
			return subject{db: s.db}
		}, func(w want) error { return w.closed }},
		{"closed_after_it_was_read_only", func(t *testing.T, fs *brokenFS) subject {
			s := open(t, fs, &kv.Options{ReadOnly: true})
			require.NoError(t, s.old.Rollback())
			require.NoError(t, s.db.Close())
			return subject{db: s.db}
		}, func(w want) error { return w.closed }},
	} {
		t.Run(state.name, func(t *testing.T) {
			fsys := &brokenFS{FS: vfs.NewMemory()}
			db, err := kv.OpenFS(fsys, path, nil, kv.Tuning{})
			require.NoError(t, err)
			fill(t, db, "k")
			require.NoError(t, db.CreateCF("f", kv.CFOptions{}))
			require.NoError(t, db.Close())
			s := state.open(t, fsys)
			before := image(t, fsys, "dir")
			for _, row := range slices.Concat(contract, pointContract(), lineContract) {
				err := row.call(s)
				if want := state.want(row.want); want == nil {
					require.NoError(t, err, row.name)
				} else {
					require.ErrorIs(t, err, want, row.name)
					requireOneSentence(t, err, "")
				}
				require.Equal(t, before, image(t, fsys, "dir"), "%s: files changed", row.name)
			}
			if s.old != nil {
				require.NoError(t, s.old.Rollback())
			}
			_ = s.db.Close() // Of the poisoned store it says why.
		})
	}
}

// open opens the store of the contract and holds an old snapshot.
func open(t *testing.T, fsys vfs.FS, o *kv.Options) subject {
	t.Helper()
	db, err := kv.OpenFS(fsys, path, o, kv.Tuning{})
	require.NoError(t, err)
	old, err := db.Begin(t.Context(), false)
	require.NoError(t, err)
	return subject{db: db, old: old}
}

func TestValueAboveTheLimitIsRefused(t *testing.T) {
	if testing.Short() || racetest.Enabled || ^uint(0)>>32 == 0 {
		t.Skip("needs 1 GiB of address space")
	}
	db := openTest(t)
	huge := make([]byte, kv.MaxValueSize+1) // Never touched: it costs no memory.
	require.ErrorIs(t, db.Put([]byte("k"), huge), kv.ErrValueTooLarge)
	b := db.NewBatch()
	b.Put([]byte("k"), huge)
	require.ErrorIs(t, db.Apply(t.Context(), b), kv.ErrValueTooLarge)
}

func TestTransactionAboveTheLimitIsRefused(t *testing.T) {
	db := openOn(t, vfs.NewMemory(), &kv.Options{MaxTxnBytes: 10_000})
	value := make([]byte, 1000)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		for i := range 100 {
			if err := tx.Put([]byte{byte(i + 1)}, value); err != nil {
				require.ErrorIs(t, err, kv.ErrTxnTooLarge)
				require.Greater(t, i, 5)
				return nil
			}
		}
		return errors.New("all of it fits")
	}), "the transaction stays usable")
}

func TestOptionsAreCheckedByName(t *testing.T) {
	for field, o := range map[string]kv.Options{
		"PageSize":        {PageSize: 5000},
		"PageSize 2048":   {PageSize: 2048},
		"PageSize 131072": {PageSize: 131072},
		"PageSize -4096":  {PageSize: -4096},
		"Durability":      {Durability: 2},
		"LockTimeout":     {LockTimeout: -1},
		"CacheBytes":      {CacheBytes: -1},
		"MaxBytes":        {MaxBytes: -1},
		"CheckpointBytes": {CheckpointBytes: -1},
		"MaxClockStep":    {MaxClockStep: -1},
		"MaxTxnBytes":     {MaxTxnBytes: -1},

		"FileMode drwx------":             {FileMode: fs.ModeDir | 0o700},
		"FileMode u":                      {FileMode: fs.ModeSetuid | 0o600},
		"FileMode 0400: its owner cannot": {FileMode: 0o400},
		"FileMode 0060: its owner cannot": {FileMode: 0o060},
		"AutoPurge with ReadOnly":         {ReadOnly: true, AutoPurge: &kv.AutoPurge{}},

		"AutoPurge.Interval": {AutoPurge: &kv.AutoPurge{Interval: -1}},
		"AutoPurge.Limit":    {AutoPurge: &kv.AutoPurge{Limit: -1}},
		"AutoPurge.Batch":    {AutoPurge: &kv.AutoPurge{Batch: -1}},
	} {
		_, err := kv.OpenMemory(&o)
		require.ErrorIs(t, err, kv.ErrInvalidOptions)
		require.ErrorContains(t, err, field)
	}
}

// TestOpenContract has a row for each line of the error contract that is met by Open, on the real
// file system.
func TestOpenContract(t *testing.T) {
	good := filepath.Join(t.TempDir(), "good.ebb")
	db, err := kv.Open(good, nil)
	require.NoError(t, err)
	fill(t, db, "k")
	require.NoError(t, db.Close())
	content, err := os.ReadFile(good)
	require.NoError(t, err)
	for _, test := range []struct {
		name    string
		content []byte // of the file; nil: none
		path    string // below the directory; "" as it is
		opts    *kv.Options
		want    error
	}{
		{"empty_path", nil, "", nil, kv.ErrInvalidPath},
		{"nul_in_path", nil, "a\x00b", nil, kv.ErrInvalidPath},
		{"a_directory", nil, ".", nil, kv.ErrInvalidPath},
		{"missing_directory", nil, "absent/a.ebb", nil, fs.ErrNotExist},
		{"missing_file_read_only", nil, "a.ebb", &kv.Options{ReadOnly: true}, fs.ErrNotExist},
		{"missing_file_must_exist", nil, "a.ebb", &kv.Options{MustExist: true}, fs.ErrNotExist},
		{"empty_file", []byte{}, "a.ebb", nil, nil},
		{"empty_file_must_exist", []byte{}, "a.ebb", &kv.Options{MustExist: true}, kv.ErrCorrupt},
		{"short_file", content[:20], "a.ebb", nil, kv.ErrCorrupt},
		{"zeros", make([]byte, 3*4096), "a.ebb", nil, kv.ErrCorrupt},
		{"other_file_type", []byte(strings.Repeat("#!/bin/sh\n", 2000)), "a.ebb", nil, kv.ErrNotDatabase},
		{"metas_lost", rot(content, 100, 4096+100), "a.ebb", nil, kv.ErrCorrupt},
		{"other_page_size", content, "a.ebb", &kv.Options{PageSize: 8192}, kv.ErrInvalidOptions},
		{"own_page_size", content, "a.ebb", &kv.Options{PageSize: 4096}, nil},
		{"good", content, "a.ebb", &kv.Options{MustExist: true}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			at := test.path
			if at != "" {
				at = dir + string(filepath.Separator) + test.path
			}
			if test.content != nil {
				require.NoError(t, os.WriteFile(at, test.content, 0o644))
			}
			before := image(t, vfs.OS, dir)
			db, err := kv.Open(at, test.opts)
			if test.want == nil {
				require.NoError(t, err)
				require.NoError(t, db.Close())
				return
			}
			require.ErrorIs(t, err, test.want)
			requireOneSentence(t, err, at)
			require.Equal(t, before, image(t, vfs.OS, dir))
		})
	}
}

// rot returns a copy of b with a bit flipped at each offset.
func rot(b []byte, offs ...int) []byte {
	b = bytes.Clone(b)
	for _, off := range offs {
		b[off] ^= 0x10
	}
	return b
}

func TestSegmentsWithoutTheirMainFileAreCorrupt(t *testing.T) {
	fsys := vfs.NewMemory()
	f, err := fsys.Open(path+"-wal-000001", vfs.Write|vfs.Create)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = kv.OpenFS(fsys, path, nil, kv.Tuning{})
	require.ErrorIs(t, err, kv.ErrCorrupt)
	names, err := fsys.List("dir")
	require.NoError(t, err)
	require.Equal(t, []string{"test.ebb-wal-000001"}, names)
}

func TestSecondHandleIsLockedOut(t *testing.T) {
	at := filepath.Join(t.TempDir(), "a.ebb")
	db, err := kv.Open(at, nil)
	require.NoError(t, err)
	for _, o := range []*kv.Options{nil, {ReadOnly: true}, {LockTimeout: time.Millisecond}} {
		_, err = kv.Open(at, o)
		require.ErrorIs(t, err, kv.ErrLocked)
	}
	require.NoError(t, db.Close())
	first, err := kv.Open(at, &kv.Options{ReadOnly: true})
	require.NoError(t, err)
	second, err := kv.Open(at, &kv.Options{ReadOnly: true})
	require.NoError(t, err, "any number may read")
	_, err = kv.Open(at, nil)
	require.ErrorIs(t, err, kv.ErrLocked)
	require.NoError(t, errors.Join(first.Close(), second.Close()))
}

func TestDirectoryWithoutPermission(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("permissions do not bind this user")
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o500))
	_, err := kv.Open(filepath.Join(dir, "a.ebb"), nil)
	require.ErrorIs(t, err, fs.ErrPermission)
}
