package keyspace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/kv/kvtest"
)

// change makes one random change of a key: a new collection, more elements, an end of any kind.
func change(t *testing.T, r *rand.Rand, sp *Space) {
	name := func() []byte { return []byte("k" + strconv.Itoa(r.IntN(6))) }
	key := name()
	row, err := sp.Load(key)
	require.NoError(t, err)
	switch r.IntN(7) {
	case 0:
		require.NoError(t, sp.SetString(key, []byte("v"), &row, NoExpiry))
	case 1, 2:
		if row.Type != 0 && row.Type != TypeHash {
			require.NoError(t, sp.Delete(key, &row))
		}
		setFields(t, sp, string(key), 1+r.IntN(200), int64(r.IntN(2))*(sp.Now+500))
	case 3:
		if row.Type != 0 {
			require.NoError(t, sp.Delete(key, &row))
		}
		list, err := sp.LoadOrCreate(key, TypeList)
		require.NoError(t, err)
		for i := range 1 + r.IntN(100) {
			require.NoError(t, sp.Push(&list, i%2 == 0, []byte("e")))
		}
		require.NoError(t, sp.Save(key, &list))
	case 4:
		if row.Type != 0 {
			require.NoError(t, sp.Delete(key, &row))
		}
	case 5:
		if to := name(); row.Type != 0 && string(to) != string(key) {
			target, err := sp.Load(to)
			require.NoError(t, err)
			require.NoError(t, sp.Rename(key, &row, to, &target))
		}
	default:
		if row.Type != 0 {
			require.NoError(t, sp.SetExpiry(key, &row, sp.Now+int64(1+r.IntN(1000))))
		}
	}
}

// TestRowsAgreeAfterEveryPowerCut: changes, purges and steps of reclaiming, some durable and some
// not, are cut off at a random moment. The rows of the store that is left agree with each other,
// and no collection is an orphan, without a sweep.
func TestRowsAgreeAfterEveryPowerCut(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 15
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed_%d", seed), func(t *testing.T) {
			disk := kvtest.NewDisk(t)
			r := rand.New(rand.NewPCG(seed, 53))
			s := &testStore{t: t, clock: kvtest.NewClock(time.UnixMilli(1_800_000_000_000))}
			for range 3 {
				s.Store = NewStore(2)
				s.db = disk.Open("ebbd.ebb", &kv.Options{Clock: s.clock.Now, OnExpireTx: s.OnExpireTx})
				require.NoError(t, s.Setup(s.db))
				s.requireAgreement()
				for range 5 + r.IntN(30) {
					s.clock.Advance(time.Duration(r.IntN(200)) * time.Millisecond)
					s.turn(r)
				}
				disk.PowerCut(r.Uint64())
			}
		})
	}
}

// turn is one transaction as the executor of the server runs them.
func (s *testStore) turn(r *rand.Rand) {
	s.t.Helper()
	for range r.IntN(4) { // Some have expired, and are evicted before the next transaction.
		_, _ = s.db.CF("m0").Get(fmt.Appendf(nil, "kk%d", r.IntN(6)))
	}
	require.NoError(s.t, s.db.Update(func(tx *kv.Tx) error {
		if r.IntN(2) == 0 {
			tx.SetDurability(kv.NoSync)
		}
		if r.IntN(3) == 0 {
			if _, _, err := s.Purge(tx, 10, false); err != nil {
				return err
			}
		}
		if r.IntN(3) == 0 {
			if _, err := s.Reclaim(tx); err != nil {
				return err
			}
		}
		change(s.t, r, s.Space(tx, 0))
		return nil
	}))
}

// requireAgreement verifies the rows before anything is deleted, and afterwards.
func (s *testStore) requireAgreement() {
	s.t.Helper()
	require.NoError(s.t, s.db.View(func(tx *kv.Tx) error {
		v, err := s.Space(tx, 0).Verify(context.Background())
		require.Empty(s.t, v.Problems)
		require.Zero(s.t, v.Orphans)
		return err
	}))
	s.requireNoOrphans()
}
