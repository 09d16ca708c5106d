package kv_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/kv"
)

// randomCache is a cache of rows with random keys in a store with MaxBytes.
type randomCache struct {
	t        *testing.T
	db       *kv.DB
	size     int // of values, bytes
	inUpdate bool
	random   *rand.Rand
	keys     [][]byte // oldest first
}

// change makes a change of one row, in an Update or one-shot.
func (c *randomCache) change(inUpdate func(tx *kv.Tx) error, oneShot func() error) error {
	if c.inUpdate {
		return c.db.Update(inUpdate)
	}
	return oneShot()
}

func (c *randomCache) put() error {
	key, value := fmt.Appendf(nil, "%016x", c.random.Uint64()), make([]byte, c.size)
	put := func() error {
		return c.change(func(tx *kv.Tx) error { return tx.Put(key, value) },
			func() error { return c.db.Put(key, value) })
	}
	err := put()
	if errors.Is(err, kv.ErrNoSpace) && len(c.keys) > 0 {
		c.deleteOldestTenth()
		require.NoError(c.t, put(), "refused again: %+v", c.db.Stats())
	} else {
		require.NoError(c.t, err)
	}
	c.keys = append(c.keys, key)
	return err
}

func (c *randomCache) deleteOldestTenth() {
	n, before := len(c.keys)/10, c.db.Stats().Checkpoints
	for _, key := range c.keys[:n] {
		require.NoError(c.t, c.change(func(tx *kv.Tx) error { return tx.Delete(key) },
			func() error { return c.db.Delete(key) }))
	}
	c.keys = c.keys[n:]
	require.LessOrEqual(c.t, c.db.Stats().Checkpoints-before, uint64(12), "%d deletes", n)
}

// TestSingleChangesAtTheBoundShareCheckpoints: a turn of a tenth of the rows makes few, both while
// it is deleted and while it is put again.
func TestSingleChangesAtTheBoundShareCheckpoints(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, bound := range []boundCase{
		{4 << 20, 800, kv.NoSync, true},
		{32 << 20, 40_000, kv.Sync, true},
		{32 << 20, 800, kv.NoSync, true},
		{32 << 20, 4_000, kv.NoSync, true},
	}[:racetest.Sample(4, 2)] {
		for _, inUpdate := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v/update_%v", bound, inUpdate), func(t *testing.T) {
				t.Parallel()
				c := &randomCache{
					t: t, db: bound.open(t), size: bound.size, inUpdate: inUpdate,
					random: rand.New(rand.NewPCG(1, 1)),
				}
				turns, before := 0, uint64(0)
				for turns < 6 {
					if c.put() == nil {
						continue
					}
					now := c.db.Stats().Checkpoints
					if turns > 0 {
						require.LessOrEqual(t, now-before, uint64(32), "turn %d: %d rows", turns, len(c.keys))
					}
					turns, before = turns+1, now
					bound.requireWithin(t, c.db, "turn %d", turns)
				}
			})
		}
	}
}

// TestABatchOfDeletesWorksAtTheBound: workers that applied it had the pages kept for deletes, the
// goroutine that divided it among them and joined their trees had not, and it was ErrNoSpace.
func TestABatchOfDeletesWorksAtTheBound(t *testing.T) {
	racetest.OneGoroutine(t)
	c := &randomCache{
		t: t, size: 100, random: rand.New(rand.NewPCG(1, 1)),
		db: boundCase{int64(racetest.Sample(32, 8)) << 20, 100, kv.NoSync, true}.open(t),
	}
	b := c.db.NewBatch()
	for {
		key := fmt.Appendf(nil, "%016x", c.random.Uint64())
		if err := c.db.Put(key, make([]byte, c.size)); err != nil {
			require.ErrorIs(t, err, kv.ErrNoSpace)
			break
		}
		if c.random.IntN(10) == 0 {
			b.Delete(key)
		}
	}
	require.NoError(t, c.db.Apply(t.Context(), b))
}
