package kv_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

// nowOf is the instant of a new read transaction.
func nowOf(t *testing.T, db *kv.DB) time.Time {
	t.Helper()
	var now time.Time
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		now = tx.Now()
		return nil
	}))
	return now
}

func TestTransactionHasOneInstantInMilliseconds(t *testing.T) {
	at := time.Unix(1_700_000_000, 999_999)
	db := openOn(t, vfs.NewMemory(), &kv.Options{Clock: func() time.Time { return at }})
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		require.Equal(t, int64(1_700_000_000_000), tx.Now().UnixMilli())
		require.Zero(t, tx.Now().Nanosecond())
		at = at.Add(time.Hour)
		require.Equal(t, int64(1_700_000_000_000), tx.Now().UnixMilli())
		return nil
	}))
	require.Equal(t, int64(1_700_003_600_000), nowOf(t, db).UnixMilli())
}

// TestClockThatIsNudgedBackStandsStill: over a reopen too, for the mark is stored with commits.
func TestClockThatIsNudgedBackStandsStill(t *testing.T) {
	clock, fsys := newClock(), vfs.NewMemory()
	o := &kv.Options{Clock: clock.now}
	db := openOn(t, fsys, o)
	start := nowOf(t, db)
	require.NoError(t, db.Put([]byte("k"), nil))
	clock.move(-59 * time.Second)
	require.Equal(t, start, nowOf(t, db))
	require.NoError(t, db.Close())
	db = openOn(t, fsys, o)
	require.Equal(t, start, nowOf(t, db))
	clock.move(60 * time.Second)
	require.Equal(t, start.Add(time.Second), nowOf(t, db))
	require.Zero(t, db.Stats().ClockSteps)
}

func TestClockThatWasWrongIsFollowed(t *testing.T) {
	clock, fsys := newClock(), vfs.NewMemory()
	var back []time.Duration
	o := &kv.Options{Clock: clock.now, MaxClockStep: time.Second, Events: &kv.Events{
		ClockStep: func(d time.Duration) { back = append(back, d) },
	}}
	db := openOn(t, fsys, o)
	start := nowOf(t, db)
	require.NoError(t, db.Put([]byte("k"), nil))
	clock.move(-time.Hour)
	require.Equal(t, start.Add(-time.Hour), nowOf(t, db))
	require.Equal(t, start.Add(-time.Hour), nowOf(t, db), "the mark follows")
	require.Equal(t, uint64(1), db.Stats().ClockSteps)
	require.NoError(t, db.Put([]byte("k"), nil))
	require.NoError(t, db.Close())

	db = openOn(t, fsys, o)
	require.Equal(t, start.Add(-time.Hour), nowOf(t, db))
	require.Zero(t, db.Stats().ClockSteps)
	require.Equal(t, []time.Duration{time.Hour}, back)
}

func TestClockBefore1970IsNoStep(t *testing.T) {
	at := time.UnixMilli(-1_000_000_000)
	db := openOn(t, vfs.NewMemory(), &kv.Options{Clock: func() time.Time { return at }})
	require.Equal(t, at, nowOf(t, db))
	require.NoError(t, db.Put([]byte("k"), nil))
	require.Zero(t, db.Stats().ClockSteps)
}

// TestLargeTransactionKeepsTheMarkToo tells the story of a transaction whose first megabyte is in the log before it
// commits: the mark was there already, and was that of the commit before. After a crash, a clock that had been nudged
// back brought expired keys to life again.
func TestLargeTransactionKeepsTheMarkToo(t *testing.T) {
	clock, disk := newClock(), crashfs.New(crashfs.Options{})
	o := &kv.Options{Clock: clock.now}
	db := openOn(t, disk, o)
	require.NoError(t, db.PutTTL([]byte("k"), []byte("v"), time.Hour))
	clock.move(time.Hour)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		_, err := tx.Get([]byte("k"))
		require.ErrorIs(t, err, kv.ErrNotFound)
		return tx.Put([]byte("large"), make([]byte, 3<<20))
	}))
	for im := range disk.Images(crashfs.ImageOptions{Profiles: crashfs.None, From: disk.Len()}) {
		clock.move(-time.Second)
		db := openOn(t, im.Disk(crashfs.Options{}), o)
		require.Equal(t, 3, db.RecoveryInfo().CommitsReplayed)
		has, err := db.Has([]byte("k"))
		require.NoError(t, err)
		require.False(t, has)
		require.NoError(t, db.Close())
	}
}

// TestStepBackThatNoInt64Holds is a large one.
func TestStepBackThatNoInt64Holds(t *testing.T) {
	now := time.UnixMilli(1735000000000)
	db := openOn(t, vfs.NewMemory(), &kv.Options{Clock: func() time.Time { return now }})
	require.NoError(t, db.Put([]byte("k"), nil))
	now = time.UnixMilli(math.MinInt64 + 1000)
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		require.Equal(t, now, tx.Now())
		return nil
	}))
	require.EqualValues(t, 1, db.Stats().ClockSteps)
}

// TestBatchBefore1970 takes every instant that is to come, as a put does.
func TestBatchBefore1970(t *testing.T) {
	now := time.UnixMilli(-10_000)
	db := openOn(t, vfs.NewMemory(), &kv.Options{Clock: func() time.Time { return now }})
	at := now.Add(5 * time.Second)
	require.NoError(t, db.PutExpireAt([]byte("a"), nil, at))
	b := db.NewBatch()
	b.PutExpireAt([]byte("b"), nil, at)
	require.NoError(t, db.Apply(t.Context(), b))
	alone, err := db.Expiry([]byte("a"))
	require.NoError(t, err)
	inBatch, err := db.Expiry([]byte("b"))
	require.NoError(t, err)
	require.Equal(t, alone, inBatch)
	for _, at := range []time.Time{now, now.Add(-time.Hour), time.UnixMilli(math.MaxInt64).Add(time.Hour), {}} {
		require.ErrorIs(t, db.PutExpireAt([]byte("c"), nil, at), kv.ErrInvalidTTL)
		b := db.NewBatch()
		b.PutExpireAt([]byte("c"), nil, at)
		require.ErrorIs(t, db.Apply(t.Context(), b), kv.ErrInvalidTTL)
	}
}
