package kv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
)

// users is an application with an index by hand: a row of "users" has its version as the value, and
// "index" has a row for each stored row of "users". OnExpireTx deletes the index row of an expired one.
type users struct {
	t     *testing.T
	db    *kv.DB
	clock *testClock
	rnd   *rand.Rand
	// expiries that were committed, by version of the row; fails and meddles are how often, in
	// percent, the callback fails or writes another row.
	expired        map[string]int
	last           int
	fails, meddles int
	busy           map[string]bool // rows that a change is about to write
}

func indexKey(key, value []byte) []byte { return bytes.Join([][]byte{key, value}, []byte("/")) }

func (u *users) onExpireTx(tx *kv.Tx, family string, key, value []byte) error {
	require.Equal(u.t, "users", family)
	has, err := tx.CF("users").Has(key)
	require.NoError(u.t, err)
	require.False(u.t, has, "%s is gone", key)
	there, err := tx.CF("index").Has(indexKey(key, value))
	require.NoError(u.t, err)
	require.True(u.t, there, "%s of %s", value, key)
	version := string(value)
	tx.OnCommit(func() { u.expired[version]++ })
	if err := tx.CF("index").Delete(indexKey(key, value)); err != nil {
		return err
	}
	switch p := u.rnd.IntN(100); {
	case p < u.fails:
		return errStop
	case p < u.fails+u.meddles:
		return u.change(tx)
	}
	return nil
}

func (u *users) key() []byte { return fmt.Appendf(nil, "user%02d", u.rnd.IntN(40)) }

// change writes or deletes a row as the application does: it knows of live rows only.
func (u *users) change(tx *kv.Tx) error {
	key, rows := u.key(), tx.CF("users")
	if u.busy[string(key)] { // An application that wrote it here would have to look again there.
		return nil
	}
	u.busy[string(key)] = true
	defer delete(u.busy, string(key))
	old, err := rows.GetAppend(nil, key)
	if err == nil {
		if err := tx.CF("index").Delete(indexKey(key, old)); err != nil {
			return err
		}
	} else if !errors.Is(err, kv.ErrNotFound) {
		return err
	}
	u.last++
	version := fmt.Append(nil, u.last)
	switch u.rnd.IntN(6) {
	case 0:
		return rows.Delete(key)
	case 1:
		err = rows.Put(key, version)
	case 2:
		_, err = rows.PutWith(key, version, kv.PutOptions{KeepTTL: true})
	case 3:
		if old == nil {
			var swapped bool
			swapped, err = rows.CompareAndSwap(key, nil, version, kv.PutOptions{TTL: u.ttl()})
			require.True(u.t, swapped || err != nil)
			break
		}
		fallthrough
	default:
		err = rows.PutTTL(key, version, u.ttl())
	}
	if err != nil {
		return err
	}
	return tx.CF("index").Put(indexKey(key, version), nil)
}

func (u *users) ttl() time.Duration { return time.Duration(1+u.rnd.IntN(100)) * time.Second }

// batch writes several rows; it needs no look at the index where the rows are new or expired.
func (u *users) batch() error {
	b := u.db.NewBatch()
	seen := map[string]bool{}
	for range 1 + u.rnd.IntN(8) {
		key := u.key()
		if seen[string(key)] {
			continue
		}
		seen[string(key)] = true
		if old, err := u.db.CF("users").Get(key); err == nil {
			b.CF("index").Delete(indexKey(key, old))
		}
		u.last++
		b.CF("users").PutTTL(key, fmt.Append(nil, u.last), u.ttl())
		b.CF("index").Put(indexKey(key, fmt.Append(nil, u.last)), nil)
	}
	return u.db.Apply(context.Background(), b)
}

func (u *users) step() error {
	ctx := context.Background()
	switch p := u.rnd.IntN(100); {
	case p < 50:
		return u.db.Update(u.change)
	case p < 60:
		u.meddles = 0 // A batch knows the rows of its beginning.
		defer func() { u.meddles = 20 }()
		return u.batch()
	case p < 75:
		for range 20 { // some are expired, and noted
			_, _ = u.db.CF("users").Get(u.key())
		}
		return nil
	case p < 85:
		u.clock.move(time.Duration(u.rnd.IntN(30)) * time.Second)
		return nil
	case p < 92:
		_, err := u.db.PurgeExpired(ctx, kv.PurgeOptions{Batch: 1 + u.rnd.IntN(8), Limit: u.rnd.IntN(12)})
		return err
	}
	return u.db.Update(func(tx *kv.Tx) error {
		sp := tx.Savepoint()
		_, err := tx.PurgeExpired(ctx, kv.PurgeOptions{Limit: u.rnd.IntN(12)})
		if err == nil && u.rnd.IntN(3) == 0 {
			err = tx.RollbackTo(sp)
		}
		return errors.Join(err, u.change(tx))
	})
}

// check compares the index with the rows.
func (u *users) check() {
	require.NoError(u.t, u.db.View(func(tx *kv.Tx) error {
		rows, err := tx.CF("users").Count()
		require.NoError(u.t, err)
		index, err := tx.CF("index").Count()
		require.NoError(u.t, err)
		require.Equal(u.t, rows, index)
		for key, value := range tx.CF("users").All() {
			has, err := tx.CF("index").Has(indexKey(key, value))
			require.NoError(u.t, err)
			require.True(u.t, has, "%s of %s", value, key)
		}
		return nil
	}))
	for version, n := range u.expired {
		require.Equal(u.t, 1, n, version)
	}
}

// TestRowsOfAnIndexGoWithTheExpiredRow runs random steps of an application with a secondary index.
// After each step the index has exactly the stored rows, and no version of a row was reported twice.
func TestRowsOfAnIndexGoWithTheExpiredRow(t *testing.T) {
	for seed := range uint64(4) {
		u := &users{
			t: t, rnd: rand.New(rand.NewPCG(seed,
				53)), expired: make(map[string]int), busy: make(map[string]bool),
			fails: int(seed%2) * 15, meddles: 20,
		}
		u.db, u.clock = openClock(t, kv.Options{OnExpireTx: u.onExpireTx})
		require.NoError(t, u.db.CreateCF("users", kv.CFOptions{}))
		require.NoError(t, u.db.CreateCF("index", kv.CFOptions{}))
		for range 200 {
			if err := u.step(); err != nil {
				require.ErrorIs(t, err, errStop, "seed %d", seed)
			}
			u.check()
		}
		u.fails, u.meddles = 0, 0
		u.clock.move(time.Hour)
		_, err := u.db.PurgeExpired(context.Background(), kv.PurgeOptions{})
		require.NoError(t, err)
		u.check()
		require.NotEmpty(t, u.expired)
	}
}
