package kv

import (
	"context"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cf"
)

// TestPurgeIsThrottled counts the polls of the number of commits: the first, and one for each duration
// of a batch.
func TestPurgeIsThrottled(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		why   string
		ctx   context.Context
		held  time.Duration
		each  uint64 // commits between two looks
		looks int
	}{
		{"nobody commits", t.Context(), 1, 0, 2},
		{"few commit", t.Context(), 1, 1, 1 + passTimes},
		{"enough have passed", t.Context(), 1, passBy, 2},
		{"enough have passed after a while", t.Context(), 1, passBy / 4, 5},
		{"nobody wants the purge any more", ended, math.MaxInt64, 1, 1},
	} {
		looks, commits := 0, uint64(1000)
		throttle(c.ctx, c.held, func() uint64 {
			looks++
			commits += c.each
			return commits
		})
		require.Equal(t, c.looks, looks, c.why)
	}
}

// TestPurgeKnowsThatAWriterWaits: a writer waits during the first batch, and none during the second.
func TestPurgeKnowsThatAWriterWaits(t *testing.T) {
	at := time.Now()
	db, err := OpenMemory(&Options{Clock: func() time.Time { return at }})
	require.NoError(t, err)
	var family *cf.Family
	require.NoError(t, db.Update(func(tx *Tx) error {
		for _, k := range []string{"a", "b", "c"} {
			require.NoError(t, tx.PutTTL([]byte(k), nil, time.Second))
		}
		family, err = cf.Lookup(tx.inner, cf.Default)
		return err
	}))
	put := make(chan error, 1)
	come := func(string, []byte, []byte) error {
		go func() { put <- db.Put([]byte("d"), nil) }()
		for !db.store.HasWaiters() {
			runtime.Gosched()
		}
		return nil
	}
	at = at.Add(time.Minute)
	p := &purger{db: db, ctx: t.Context(), o: PurgeOptions{OnExpire: come}, now: db.clock.read(), fam: family}
	more, err := p.batch(1)
	require.NoError(t, err)
	require.True(t, more)
	require.NoError(t, <-put)
	require.True(t, p.madeWait)
	require.Positive(t, p.held)

	p.o.OnExpire = nil
	_, err = p.batch(1)
	require.NoError(t, err)
	require.False(t, p.madeWait)
	require.EqualValues(t, 2, p.res.Purged)
	require.NoError(t, db.View(func(tx *Tx) error {
		require.EqualValues(t, 2, tx.inner.Rows(family.Data()))
		return nil
	}))
	require.NoError(t, db.Close())
}
