package kv_test

import (
	"bytes"
	"maps"
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

// TestClockThatIsNudgedBackStandsStill: over a reopen too, since commits store the mark.
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

// TestLargeTransactionKeepsTheMarkToo: the first megabyte of a transaction is in the log before it
// commits. Its mark was there already, and was that of the commit before. After a crash, a clock
// that had been set back a little made expired keys live again.
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

// TestStepBackThatNoInt64Holds is a large step.
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

// TestBatchBefore1970 accepts every future instant, as a put does.
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
	for _, at := range []time.Time{now, now.Add(-time.Hour),
		time.UnixMilli(math.MaxInt64).Add(time.Hour), {}} {
		require.ErrorIs(t, db.PutExpireAt([]byte("c"), nil, at), kv.ErrInvalidTTL)
		b := db.NewBatch()
		b.PutExpireAt([]byte("c"), nil, at)
		require.ErrorIs(t, db.Apply(t.Context(), b), kv.ErrInvalidTTL)
	}
}

// sights are the ways in which a session sees that a key has expired, without a commit that stores
// its time.
var sights = map[string]func(t *testing.T, db *kv.DB){
	"get": func(t *testing.T, db *kv.DB) { viewDead(t, db) },
	"has": func(t *testing.T, db *kv.DB) {
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			has, err := tx.Has([]byte("k"))
			require.False(t, has)
			return err
		}))
	},
	"range": func(t *testing.T, db *kv.DB) {
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			for key := range tx.All() {
				require.Equal(t, "permanent", string(key))
			}
			return nil
		}))
	},
	"count": func(t *testing.T, db *kv.DB) {
		live, err := db.CountLive()
		require.NoError(t, err)
		require.EqualValues(t, 1, live)
	},
	"expiring": func(t *testing.T, db *kv.DB) {
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			for key, at := range tx.Expiring(tx.Now()) {
				require.Equal(t, "k", string(key))
				require.False(t, at.After(tx.Now()))
			}
			return nil
		}))
	},
	"next_expiry": func(t *testing.T, db *kv.DB) {
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			at, ok, err := tx.NextExpiry()
			require.True(t, ok)
			require.False(t, at.After(tx.Now()))
			return err
		}))
	},
	"stats": func(t *testing.T, db *kv.DB) {
		require.EqualValues(t, 1, db.Stats().Families["default"].Due)
	},
	"rolled_back_purge": func(t *testing.T, db *kv.DB) {
		tx := beginTx(t, db, true)
		res, err := tx.PurgeExpired(t.Context(), kv.PurgeOptions{})
		require.NoError(t, err)
		require.EqualValues(t, 1, res.Purged)
		require.NoError(t, tx.Rollback())
	},
}

func viewDead(t *testing.T, db *kv.DB) {
	t.Helper()
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		_, err := tx.Get([]byte("k"))
		require.ErrorIs(t, err, kv.ErrNotFound)
		return nil
	}))
}

// TestKeySeenExpiredStaysAwayOverAReopen: a read transaction saw a key with a ttl of 5 s expired 6 s
// later, the store was closed, the clock went back by 3 s, and the next session had the key again.
// Only commits stored the time. The same holds for a read-only session, for every call whose result
// shows expiry, and whatever a power cut after Close loses.
func TestKeySeenExpiredStaysAwayOverAReopen(t *testing.T) {
	for name, see := range sights {
		for _, readsOnly := range []bool{false, true} {
			t.Run(map[bool]string{false: "after_commits/", true: "reads_only/"}[readsOnly]+name,
				func(t *testing.T) {
					clock, disk := newClock(), crashfs.New(crashfs.Options{})
					o := &kv.Options{Clock: clock.now}
					db := openOn(t, disk, o)
					require.NoError(t, db.PutTTL([]byte("k"), []byte("v"), 5*time.Second))
					require.NoError(t, db.Put([]byte("permanent"), nil))
					if readsOnly {
						require.NoError(t, db.Close())
						db = openOn(t, disk, o)
					}
					clock.move(6 * time.Second)
					see(t, db)
					require.NoError(t, db.Close())
					clock.move(-3 * time.Second)
					for im := range disk.Images(crashfs.ImageOptions{From: disk.Len()}) {
						// A crash of the recovery, too: the mark is in a page that it may overwrite.
						cut := im.Disk(crashfs.Options{})
						viewDead(t, openOn(t, cut, o))
					}
					db = openOn(t, disk, o)
					viewDead(t, db)
					has, err := db.Has([]byte("k"))
					require.NoError(t, err)
					require.False(t, has)
					require.Zero(t, db.Stats().ClockSteps)
				})
		}
	}
}

// TestCloseWritesNoMarkThatMattersToNothing: a session that only read, and found nothing that
// expired since the last commit, does not change the file.
func TestCloseWritesNoMarkThatMattersToNothing(t *testing.T) {
	clock, disk := newClock(), crashfs.New(crashfs.Options{})
	o := &kv.Options{Clock: clock.now}
	db := openOn(t, disk, o)
	require.NoError(t, db.PutTTL([]byte("k"), []byte("v"), 5*time.Second))
	require.NoError(t, db.PutTTL([]byte("later"), []byte("v"), time.Hour))
	require.NoError(t, db.Close())
	session := func(sees bool) (changed bool) {
		before := disk.Files()
		db := openOn(t, disk, o)
		_, err := db.Get([]byte("later"))
		require.NoError(t, err)
		if sees {
			viewDead(t, db)
		}
		require.NoError(t, db.Close())
		return !maps.EqualFunc(before, disk.Files(), bytes.Equal)
	}
	clock.move(6 * time.Second)
	require.False(t, session(false))
	require.True(t, session(true))
	require.False(t, session(true), "the mark hides it already")
	clock.move(time.Second)
	require.False(t, session(true), "and no less than before")
}

// TestStepBackThatOnlyReadersFollowedIsStored: the clock was a year ahead at the last commit. A
// session that only reads follows its correction, and sees a key expired by the right time. The next
// session follows the same correction anew, from a clock that was set back a little; the key must
// stay expired.
func TestStepBackThatOnlyReadersFollowedIsStored(t *testing.T) {
	clock, fsys := newClock(), vfs.NewMemory()
	o := &kv.Options{Clock: clock.now}
	db := openOn(t, fsys, o)
	require.NoError(t, db.PutTTL([]byte("k"), []byte("v"), 5*time.Second))
	clock.move(365 * 24 * time.Hour)
	require.NoError(t, db.Put([]byte("permanent"), nil))
	require.NoError(t, db.Close())
	clock.move(-365 * 24 * time.Hour)
	db = openOn(t, fsys, o)
	clock.move(6 * time.Second)
	viewDead(t, db)
	require.NoError(t, db.Close())
	clock.move(-3 * time.Second)
	db = openOn(t, fsys, o)
	viewDead(t, db)
	require.Zero(t, db.Stats().ClockSteps)
}

// TestReadOnlySessionStoresNoMark: it changes no byte, and docs/ttl.md says so.
func TestReadOnlySessionStoresNoMark(t *testing.T) {
	clock, disk := newClock(), crashfs.New(crashfs.Options{})
	o := &kv.Options{Clock: clock.now}
	db := openOn(t, disk, o)
	require.NoError(t, db.PutTTL([]byte("k"), []byte("v"), 5*time.Second))
	require.NoError(t, db.Close())
	before := disk.Len()
	clock.move(6 * time.Second)
	db = openOn(t, disk, &kv.Options{Clock: clock.now, ReadOnly: true})
	viewDead(t, db)
	require.NoError(t, db.Close())
	require.Equal(t, before, disk.Len())
}

// TestKeysOfASetBackClockLive: a purge, and the eviction behind a read, used an instant that was read
// before other calls found the clock set back. They deleted keys that were written after that, or
// were live again.
func TestKeysOfASetBackClockLive(t *testing.T) {
	key := []byte("key")
	t.Run("purge", func(t *testing.T) {
		db, clock := openClock(t, kv.Options{})
		fillTTL(t, db, 600, time.Second)
		clock.move(time.Hour)
		wrote := false
		res, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{Progress: func(int64) {
			if !wrote {
				wrote = true
				clock.move(-59 * time.Minute)
				require.NoError(t, db.PutTTL(key, nil, 10*time.Second))
			}
		}})
		require.NoError(t, err)
		require.Equal(t, kv.PurgeResult{Purged: 600, Batches: 3}, res, "what is due all the same")
		left, err := db.TTL(key)
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, left)
	})
	t.Run("purge_of_what_is_alive_again", func(t *testing.T) {
		db, clock := openClock(t, kv.Options{})
		fillTTL(t, db, 600, 30*time.Minute)
		clock.move(time.Hour)
		res, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{Progress: func(int64) {
			clock.move(-59 * time.Minute)
			_ = nowOf(t, db)
		}})
		require.NoError(t, err)
		require.Equal(t, kv.PurgeResult{Purged: 256, Batches: 1}, res)
		live, err := db.CountLive()
		require.NoError(t, err)
		require.Equal(t, int64(600-256), live)
	})
	t.Run("eviction", func(t *testing.T) {
		db, clock := openClock(t, kv.Options{})
		require.NoError(t, db.PutTTL(key, nil, time.Minute))
		clock.move(time.Hour)
		late := nowOf(t, db)
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			_, err := tx.Get(key)
			require.ErrorIs(t, err, kv.ErrNotFound)
			return nil
		}))
		clock.move(-time.Hour)
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			_, err := tx.Get(key)
			return err
		}))
		require.Equal(t, 1, kv.Notes(db))
		kv.EvictIdle(db, late.UnixMilli())
		left, err := db.TTL(key)
		require.NoError(t, err)
		require.Equal(t, time.Minute, left)
	})
}
