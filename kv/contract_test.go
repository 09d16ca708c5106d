package kv_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

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
	{"get/empty_key", func(s subject) error { _, err := s.db.Get([]byte{}); return err },
		everywhere(kv.ErrKeyEmpty)},
	{"get_append/empty_key",
		func(s subject) error { _, err := s.db.GetAppend(nil, nil); return err },
		everywhere(kv.ErrKeyEmpty)},
	{"has/empty_key", func(s subject) error { _, err := s.db.Has(nil); return err },
		everywhere(kv.ErrKeyEmpty)},
	{"size/empty_key", func(s subject) error { _, err := s.db.Size(nil); return err },
		everywhere(kv.ErrKeyEmpty)},
	{"delete/empty_key", func(s subject) error { return s.db.Delete(nil) }, write(kv.ErrKeyEmpty)},
	{"increment/empty_key",
		func(s subject) error { _, err := s.db.Increment(nil, 1, 0); return err },
		write(kv.ErrKeyEmpty)},
	{"swap/empty_key",
		func(s subject) error { _, err := s.db.CompareAndSwap(nil, nil, nil, kv.PutOptions{}); return err },
		write(kv.ErrKeyEmpty)},
	{"compare_delete/empty_key",
		func(s subject) error { _, err := s.db.CompareAndDelete(nil, nil); return err },
		write(kv.ErrKeyEmpty)},
	{"put/large_key", func(s subject) error { return s.db.Put(largeKey, nil) }, write(kv.ErrKeyTooLarge)},
	{"get/large_key", func(s subject) error { _, err := s.db.Get(largeKey); return err },
		everywhere(kv.ErrKeyTooLarge)},
	{"has/large_key", func(s subject) error { _, err := s.db.Has(largeKey); return err },
		everywhere(kv.ErrKeyTooLarge)},
	{"delete/large_key", func(s subject) error { return s.db.Delete(largeKey) }, write(kv.ErrKeyTooLarge)},
	{"batch/large_key", func(s subject) error {
		b := s.db.NewBatch()
		b.Put(largeKey, nil)
		return s.db.Apply(context.Background(), b)
	}, write(kv.ErrKeyTooLarge)},
	{"get/absent", func(s subject) error { _, err := s.db.Get([]byte("absent")); return err },
		everywhere(kv.ErrNotFound)},
	{"size/absent", func(s subject) error { _, err := s.db.Size([]byte("absent")); return err },
		everywhere(kv.ErrNotFound)},
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
	{"put_ttl/empty_key", func(s subject) error { return s.db.PutTTL(nil, nil, time.Second) },
		write(kv.ErrKeyEmpty)},
	{"ttl/empty_key", func(s subject) error { _, err := s.db.TTL(nil); return err },
		everywhere(kv.ErrKeyEmpty)},
	{"expire/large_key", func(s subject) error { return s.db.Expire(largeKey, time.Second) },
		write(kv.ErrKeyTooLarge)},
	{"ttl/absent", func(s subject) error { _, err := s.db.TTL([]byte("absent")); return err },
		everywhere(kv.ErrNotFound)},
	{"ttl/permanent", func(s subject) error {
		left, err := s.db.TTL([]byte("k"))
		if err == nil && left != kv.NoExpiry {
			err = errors.New("not NoExpiry")
		}
		return err
	}, read},
	{"expiry/absent", func(s subject) error { _, err := s.db.Expiry([]byte("absent")); return err },
		everywhere(kv.ErrNotFound)},
	{"get_ttl/absent",
		func(s subject) error { _, _, err := s.db.GetTTL([]byte("absent")); return err },
		everywhere(kv.ErrNotFound)},
	{"count_live", func(s subject) error { _, err := s.db.CountLive(); return err }, read},
	{"next_expiry", func(s subject) error { _, _, err := s.db.NextExpiry(); return err }, read},
	{"put_ttl/zero", func(s subject) error { return s.db.PutTTL([]byte("k"), nil, 0) },
		write(kv.ErrInvalidTTL)},
	{"put_ttl/negative", func(s subject) error { return s.db.PutTTL([]byte("k"), nil, -1) },
		write(kv.ErrInvalidTTL)},
	{"put_expire_at/past", func(s subject) error {
		return s.db.PutExpireAt([]byte("k"), nil, time.UnixMilli(1))
	}, write(kv.ErrInvalidTTL)},
	{"put_expire_at/overflow", func(s subject) error {
		return s.db.PutExpireAt([]byte("k"), nil, time.Date(300_000_000, 1, 1, 0, 0, 0, 0, time.UTC))
	}, write(kv.ErrInvalidTTL)},
	{"expire/zero", func(s subject) error { return s.db.Expire([]byte("k"), 0) }, write(kv.ErrInvalidTTL)},
	{"expire_at/past", func(s subject) error { return s.db.ExpireAt([]byte("k"), time.Time{}) },
		write(kv.ErrInvalidTTL)},
	{"expire/absent", func(s subject) error { return s.db.Expire([]byte("absent"), time.Second) },
		write(kv.ErrNotFound)},
	{"persist/absent", func(s subject) error { return s.db.Persist([]byte("absent")) },
		write(kv.ErrNotFound)},
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
	{"increment/no_counter",
		func(s subject) error { _, err := s.db.Increment([]byte("k"), 1, 0); return err },
		write(kv.ErrNotCounter)},
	{"commit_in_view", func(s subject) error { return s.db.View((*kv.Tx).Commit) },
		everywhere(kv.ErrManagedTxn)},
	{"rollback_in_view", func(s subject) error { return s.db.View((*kv.Tx).Rollback) },
		everywhere(kv.ErrManagedTxn)},
	{"commit_in_update", func(s subject) error { return s.db.Update((*kv.Tx).Commit) },
		write(kv.ErrManagedTxn)},
	{"rollback_in_update", func(s subject) error { return s.db.Update((*kv.Tx).Rollback) },
		write(kv.ErrManagedTxn)},
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
	{"family/empty_name", func(s subject) error { return s.db.CreateCF("", kv.CFOptions{}) },
		write(kv.ErrCFName)},
	{"family/nul", func(s subject) error { return s.db.CreateCF("a\x00", kv.CFOptions{}) },
		write(kv.ErrCFName)},
	{"family/not_utf8", func(s subject) error { return s.db.EnsureCF("\xff", kv.CFOptions{}) },
		write(kv.ErrCFName)},
	{"family/long_name",
		func(s subject) error { return s.db.RenameCF("f", strings.Repeat("x", 201)) },
		write(kv.ErrCFName)},
	{"family/reserved", func(s subject) error { return s.db.CreateCF("__x", kv.CFOptions{}) },
		write(kv.ErrCFReserved)},
	{"family/reserved_handle",
		func(s subject) error { _, err := s.db.CF("__x").Get(nil); return err },
		everywhere(kv.ErrCFReserved)},
	{"family/drop_default", func(s subject) error { return s.db.DropCF("default") }, write(kv.ErrCFReserved)},
	{"family/rename_default", func(s subject) error { return s.db.RenameCF("default", "x") },
		write(kv.ErrCFReserved)},
	{"family/exists", func(s subject) error { return s.db.CreateCF("f", kv.CFOptions{}) },
		write(kv.ErrCFExists)},
	{"family/rename_to_existing", func(s subject) error { return s.db.RenameCF("f", "default") },
		write(kv.ErrCFExists)},
	{"family/absent",
		func(s subject) error { _, err := s.db.CF("absent").Get([]byte("k")); return err },
		everywhere(kv.ErrCFNotFound)},
	{"family/put_absent", func(s subject) error { return s.db.CF("absent").Put([]byte("k"), nil) },
		write(kv.ErrCFNotFound)},
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
	{"apply/nil", func(s subject) error { return s.db.Apply(context.Background(), nil) },
		write(kv.ErrInvalidOptions)},
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

// TestErrorContract makes each call in each state of a store, and then verifies that no byte of a
// file has changed.
func TestErrorContract(t *testing.T) {
	for _, state := range []struct {
		name string
		open func(t *testing.T, fs *brokenFS) subject
		want func(w want) error
	}{
		{"healthy", func(t *testing.T, fs *brokenFS) subject { return open(t, fs, nil) },
			func(w want) error { return w.healthy }},
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
			fsys := newBrokenFS()
			db := mustOpenOn(t, fsys, nil, txn.Options{})
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
