package kv_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// TestStaleExpiryRowAloneIsRemoved: only damage makes such rows, and Check reports them.
func TestStaleExpiryRowAloneIsRemoved(t *testing.T) {
	db, clock := openClock(t, kv.Options{})
	fillTTL(t, db, 2, time.Second)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		f, err := kv.FindFamily(tx, "default")
		require.NoError(t, err)
		_, err = kv.RawTx(tx).Put(f.ExpiryIndex(), []byte("\x00\x00\x00\x00\x00\x00\x00\x01k000000"), nil, 0)
		return err
	}))
	var found []string
	for p := range db.Check(t.Context()) {
		found = append(found, p.Kind+" "+p.Detail[:2])
	}
	require.Equal(t, []string{"expiry I4", "expiry I1"}, found)
	res, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{})
	require.NoError(t, err)
	require.Zero(t, res.Purged)
	require.Equal(t, int64(2), count(t, db))
	clock.move(time.Second)
	res, err = db.PurgeExpired(t.Context(), kv.PurgeOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(2), res.Purged)
}

// TestIndexRowsOfLostDataRowsAreRemoved: a purge found more of them than fit into a batch. It did
// not count their deletes as a change, rolled the batch back, and found the same rows again, without
// end.
func TestIndexRowsOfLostDataRowsAreRemoved(t *testing.T) {
	const lost = 5
	for name, o := range map[string]kv.PurgeOptions{"limit": {Limit: 1}, "batch": {Batch: 1},
		"large_batch": {Batch: 2}, "all": {}} {
		t.Run(name, func(t *testing.T) {
			db, clock := openClock(t, kv.Options{})
			fillTTL(t, db, lost+1, time.Second)
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				f, err := kv.FindFamily(tx, "default")
				require.NoError(t, err)
				for i := range lost {
					_, err := kv.RawTx(tx).Delete(f.Data(), fmt.Appendf(nil, "k%06d", i))
					require.NoError(t, err)
				}
				return nil
			}))
			clock.move(time.Second)
			var heard []string
			o.OnExpire = func(_ string, key,
				_ []byte) error {
				heard = append(heard, string(key))
				return nil
			}
			res, err := db.PurgeExpired(&patient{t.Context(), 1000}, o)
			require.NoError(t, err)
			require.Equal(t, int64(1), res.Purged, "a lost row is no key")
			require.False(t, res.More)
			require.Equal(t, []string{"k000005"}, heard)
			require.Zero(t, db.Stats().Families["default"].TTLRows)
		})
	}
}

// TestKeyIndexValueOfWrongLengthIsCorrupt, not "no ttl": reads take the expiry from the data row, so
// they still return it; a call that reads the index reports the damage.
func TestKeyIndexValueOfWrongLengthIsCorrupt(t *testing.T) {
	clock := newClock()
	db, err := kv.OpenMemory(&kv.Options{Durability: kv.NoSync, Clock: clock.now})
	require.NoError(t, err)
	fillTTL(t, db, 1, time.Hour)
	damageRow(t, db, func(f *cf.Family) txn.TreeID { return f.KeyIndex() }, []byte("short"), 0)
	left, err := db.TTL([]byte("k000000"))
	require.NoError(t, err)
	require.Equal(t, time.Hour, left)
	requireExpiryProblems(t, db)
	clock.move(time.Hour)
	_, err = db.Get([]byte("k000000"))
	require.ErrorIs(t, err, kv.ErrNotFound)
	_, err = db.PurgeExpired(t.Context(), kv.PurgeOptions{})
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.NoError(t, db.Close())
}

// TestVerbThatMissesAnIndexIsTheLastOfItsTransaction: a delete did not find the expiry index of a
// damaged store. It had deleted the data row before, its error was one of a lower package, and the
// transaction could commit that delete.
func TestVerbThatMissesAnIndexIsTheLastOfItsTransaction(t *testing.T) {
	key := []byte("k000000")
	for name, verb := range map[string]func(tx *kv.Tx) error{
		"Put":     func(tx *kv.Tx) error { return tx.Put(key, nil) },
		"PutTTL":  func(tx *kv.Tx) error { return tx.PutTTL(key, nil, time.Minute) },
		"Expire":  func(tx *kv.Tx) error { return tx.Expire(key, time.Minute) },
		"Delete":  func(tx *kv.Tx) error { return tx.Delete(key) },
		"Persist": func(tx *kv.Tx) error { return tx.Persist(key) },
	} {
		t.Run(name, func(t *testing.T) {
			db, err := kv.OpenMemory(quick)
			require.NoError(t, err)
			fillTTL(t, db, 3, time.Hour)
			require.NoError(t, db.Update(func(tx *kv.Tx) error {
				f, err := kv.FindFamily(tx, "default")
				require.NoError(t, err)
				return kv.RawTx(tx).Drop(f.ExpiryIndex())
			}))
			tx := beginTx(t, db, true)
			err = verb(tx)
			require.ErrorIs(t, err, kv.ErrCorrupt)
			require.ErrorContains(t, err, `family "default": I4: expiry index`)
			require.Equal(t, err, tx.Err())
			require.Equal(t, err, tx.Commit())
			value, err := db.Get(key)
			require.NoError(t, err)
			require.Equal(t, "value", string(value))
			require.NoError(t, db.Close())
		})
	}
}

// TestTagThatIsNoExpiryIsCorrupt for every read of the row.
func TestTagThatIsNoExpiryIsCorrupt(t *testing.T) {
	db, err := kv.OpenMemory(quick)
	require.NoError(t, err)
	fillTTL(t, db, 1, time.Hour)
	damageRow(t, db, func(f *cf.Family) txn.TreeID { return f.Data() }, []byte("v"), -5)
	_, err = db.Get([]byte("k000000"))
	require.ErrorIs(t, err, kv.ErrCorrupt)
	_, err = db.TTL([]byte("k000000"))
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorIs(t, db.View(func(tx *kv.Tx) error {
		for range tx.All() {
		}
		return tx.Err()
	}), kv.ErrCorrupt)
	requireExpiryProblems(t, db)
	require.NoError(t, db.Close())
}

// damageRow writes a row of one tree past the rules.
func damageRow(t *testing.T, db *kv.DB, tree func(*cf.Family) txn.TreeID, value []byte, tag int64) {
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		f, err := kv.FindFamily(tx, "default")
		require.NoError(t, err)
		_, err = kv.RawTx(tx).Put(tree(f), []byte("k000000"), value, tag)
		return err
	}))
}

func requireExpiryProblems(t *testing.T, db *kv.DB) {
	kinds := map[string]bool{}
	for p := range db.Check(t.Context()) {
		kinds[p.Kind] = true
	}
	require.Equal(t, map[string]bool{"expiry": true}, kinds)
}
