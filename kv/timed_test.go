package kv_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/txn"
)

// openTimed opens a store with a clock of the test's and a family "m" of that retention and width.
func openTimed(t testing.TB, o kv.Options, retention, partition time.Duration) (*kv.DB, *testClock) {
	t.Helper()
	db, clock := openClock(t, o)
	require.NoError(t, db.CreateCF("m", kv.CFOptions{Retention: retention, Partition: partition}))
	return db, clock
}

// timedRows lists "timestamp key=value" of ScanTime, timestamps in milliseconds after base.
func timedRows(t testing.TB, c *kv.CF, base, from, to time.Time, reverse bool) (rows []string) {
	t.Helper()
	for k, v := range c.ScanTime(from, to, reverse) {
		rows = append(rows, fmt.Sprintf("%d %s=%s", k.Time.Sub(base).Milliseconds(), k.Key, v))
	}
	return rows
}

func TestRowsByTimeComeInTheirOrder(t *testing.T) {
	db, clock := openTimed(t, kv.Options{}, time.Hour, time.Minute)
	now := clock.now()
	m := db.CF("m")
	for _, min := range []int{-3, 0, -59, -2, -3} {
		for _, key := range []string{"b", "a"} {
			require.NoError(t, m.Append(now.Add(time.Duration(min)*time.Minute), []byte(key),
				fmt.Append(nil, min)))
		}
	}
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		c := tx.CF("m")
		all := []string{"-3540000 a=-59", "-3540000 b=-59", "-180000 a=-3", "-180000 b=-3",
			"-120000 a=-2", "-120000 b=-2", "0 a=0", "0 b=0"}
		require.Equal(t, all, timedRows(t, c, now, time.Time{}, time.Time{}, false))
		back := timedRows(t, c, now, time.Time{}, time.Time{}, true)
		slices.Reverse(back)
		require.Equal(t, all, back)
		lo, hi := now.Add(-3*time.Minute), now
		require.Equal(t, all[2:6], timedRows(t, c, now, lo, hi, false))
		require.Equal(t, all[2:4], timedRows(t, c, now, lo, lo.Add(time.Millisecond), false))
		require.Empty(t, timedRows(t, c, now, lo, lo, false))
		require.Empty(t, timedRows(t, c, now, hi, lo, true))
		return nil
	}))
}

func TestRowsPastRetentionAreHiddenAtOnceAndDroppedByPartition(t *testing.T) {
	db, clock := openTimed(t, kv.Options{}, time.Hour, 10*time.Minute)
	start := clock.now().Truncate(10 * time.Minute)
	clock.ms.Store((start).UnixMilli())
	m := db.CF("m")
	for i := range 10 {
		require.NoError(t, m.Append(start.Add(time.Duration(i)*time.Minute), []byte("k"), []byte("v")))
	}
	old := beginTx(t, db, false)
	defer func() { _ = old.Rollback() }()
	clock.ms.Store((start.Add(time.Hour + 5*time.Minute)).UnixMilli()) // rows 0 to 5 are expired
	rows := func(tx *kv.Tx) int {
		return len(timedRows(t, tx.CF("m"), start, time.Time{}, time.Time{},
			false))
	}
	require.NoError(t, db.View(func(tx *kv.Tx) error {
		require.Equal(t, 4, rows(tx))
		require.Equal(t, 10, rows(old), "a snapshot has its own instant")
		return nil
	}))
	_, err := m.GetAt(start.Add(5*time.Minute), []byte("k"))
	require.ErrorIs(t, err, kv.ErrNotFound)
	_, err = m.GetAt(start.Add(6*time.Minute), []byte("k"))
	require.NoError(t, err)
	stored, err := m.Count()
	require.NoError(t, err)
	live, err := m.CountLive()
	require.NoError(t, err)
	require.Equal(t, [2]int64{10, 4}, [2]int64{stored, live})
	next, ok, err := m.NextExpiry()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, start.Add(time.Hour), next)

	n, err := m.DropExpired(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "the newest possible row lives")
	clock.ms.Store((start.Add(time.Hour + 10*time.Minute - 2*time.Millisecond)).UnixMilli())
	n, err = m.DropExpired(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	clock.ms.Store((start.Add(time.Hour + 10*time.Minute - time.Millisecond)).UnixMilli())
	n, err = m.DropExpired(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 10, rows(old), "a snapshot keeps what it saw")
	s := db.Stats()
	require.Empty(t, s.Partitions["m"])
	require.Equal(t, uint64(1), s.Families["m"].PartitionsDropped)
	require.Equal(t, int64(10), s.Families["m"].Purged)
	require.Equal(t, int64(10*(8+1+1)), s.Families["m"].BytesReclaimed)
}

// TestTimestampsThatAppendRefuses: late rows would come back from the dead, rows of the far future
// would keep their partitions for ever.
func TestTimestampsThatAppendRefuses(t *testing.T) {
	db, clock := openTimed(t, kv.Options{MaxClockStep: time.Second}, time.Hour, time.Minute)
	now := clock.now()
	m := db.CF("m")
	for _, c := range []struct {
		ts time.Time
		ok bool
	}{
		{now, true}, {now.Add(-time.Hour), false}, {now.Add(-time.Hour + time.Millisecond), true},
		{now.Add(-time.Hour + time.Millisecond - 1), false},
		{now.Add(time.Minute + time.Second), true},
		{now.Add(time.Minute + time.Second + time.Millisecond), false},
		{time.Time{}, false}, {time.Unix(math.MaxInt64, 0), false}, {time.Unix(math.MinInt64, 0), false},
		{time.UnixMilli(math.MaxInt64), false}, {time.UnixMilli(math.MinInt64), false},
	} {
		err := m.Append(c.ts, []byte("k"), []byte("v"))
		if c.ok {
			require.NoError(t, err, c.ts)
		} else {
			require.ErrorIs(t, err, kv.ErrInvalidTTL, c.ts)
		}
	}
	require.ErrorIs(t, m.Append(now, nil, nil), kv.ErrKeyEmpty)
	require.ErrorIs(t, m.Append(now, make([]byte, db.MaxKeySize()+1), nil), kv.ErrKeyTooLarge)
	require.NoError(t, m.Append(now, bytes.Repeat([]byte{0xff}, db.MaxKeySize()), nil))
	value, err := m.GetAt(now, bytes.Repeat([]byte{0xff}, db.MaxKeySize()))
	require.NoError(t, err)
	require.Equal(t, []byte{}, value)
}

// TestClocksAtTheEndsOfTime: timestamps are an int64 of milliseconds, before 1970 too.
func TestClocksAtTheEndsOfTime(t *testing.T) {
	for _, ms := range []int64{math.MinInt64, math.MinInt64 + 5, -1, 0, 1, math.MaxInt64 - 5, math.MaxInt64} {
		db, err := kv.OpenMemory(&kv.Options{Clock: func() time.Time { return time.UnixMilli(ms) }})
		require.NoError(t, err)
		require.NoError(t, db.CreateCF("m",
			kv.CFOptions{Retention: time.Hour, Partition: 7 * time.Millisecond}))
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			var want []string
			for d := int64(-3); d <= 3; d++ {
				if ms+d > ms == (d > 0) && tx.CF("m").Append(time.UnixMilli(ms+d), []byte("k"),
					[]byte("v")) == nil {
					want = append(want, fmt.Sprint(ms+d))
				}
			}
			var rows []string
			for k := range tx.CF("m").ScanTime(time.Time{}, time.Time{}, false) {
				rows = append(rows, fmt.Sprint(k.Time.UnixMilli()))
			}
			require.Equal(t, want, rows)
			require.NotEmpty(t, rows)
			var back []string
			for k := range tx.CF("m").ScanTime(time.UnixMilli(ms), time.Time{}, true) {
				back = append(back, fmt.Sprint(k.Time.UnixMilli()))
			}
			slices.Reverse(back)
			require.Equal(t, want[len(want)-len(back):], back)
			_, err := tx.CF("m").DropExpired(t.Context())
			return err
		}))
		for p := range db.Check(t.Context()) {
			t.Error(p)
		}
		require.NoError(t, db.Close())
	}
}

func TestCallsThatDoNotFitTheKindOfFamily(t *testing.T) {
	db, clock := openTimed(t, kv.Options{}, time.Hour, 0)
	now, k := clock.now(), []byte("k")
	o, err := db.CFOptions("m")
	require.NoError(t, err)
	require.Equal(t, kv.CFOptions{Retention: time.Hour, Partition: 2 * time.Minute}, o)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		m, d := tx.CF("m"), tx.CF("default")
		_, err := m.Get(k)
		require.ErrorIs(t, err, kv.ErrPartitioned)
		require.ErrorIs(t, m.Put(k, nil), kv.ErrPartitioned)
		require.ErrorIs(t, m.PutTTL(k, nil, time.Second), kv.ErrPartitioned)
		require.ErrorIs(t, m.Delete(k), kv.ErrPartitioned)
		require.ErrorIs(t, m.DeleteRange(nil, nil), kv.ErrPartitioned)
		_, err = m.Increment(k, 1, 0)
		require.ErrorIs(t, err, kv.ErrPartitioned)
		require.ErrorIs(t, d.Append(now, k, nil), kv.ErrNotPartitioned)
		require.ErrorIs(t, d.DeleteAt(now, k), kv.ErrNotPartitioned)
		_, err = d.GetAt(now, k)
		require.ErrorIs(t, err, kv.ErrNotPartitioned)
		_, err = d.DropExpired(t.Context())
		require.ErrorIs(t, err, kv.ErrNotPartitioned)
		return nil
	}))
	require.ErrorIs(t, db.View(func(tx *kv.Tx) error {
		for range tx.CF("m").All() {
		}
		return nil
	}), kv.ErrPartitioned)
	require.ErrorIs(t, db.View(func(tx *kv.Tx) error {
		for range tx.CF("default").ScanTime(time.Time{}, time.Time{}, false) {
		}
		return nil
	}), kv.ErrNotPartitioned)
	b := db.NewBatch()
	b.CF("m").Put(k, k)
	require.ErrorIs(t, db.Apply(t.Context(), b), kv.ErrPartitioned)
	_, err = db.BulkLoad(t.Context(), "m", func(func(a, b []byte) bool) {})
	require.ErrorIs(t, err, kv.ErrPartitioned)
	require.ErrorIs(t, db.CF("m").Put(k, k), kv.ErrPartitioned)
	_, err = db.CF("default").DropExpired(t.Context())
	require.ErrorIs(t, err, kv.ErrNotPartitioned)

	require.ErrorIs(t, db.AlterCF("m", kv.CFOptions{}), kv.ErrInvalidOptions)
	require.ErrorIs(t, db.AlterCF("default", kv.CFOptions{Retention: time.Hour}), kv.ErrInvalidOptions)
	for want, o := range map[error][]kv.CFOptions{
		kv.ErrInvalidTTL:     {{Retention: -1}},
		kv.ErrInvalidOptions: {{Partition: -1}, {Partition: 1}, {Retention: 1, DefaultTTL: 1}},
	} {
		for _, o := range o {
			require.ErrorIs(t, db.CreateCF("x", o), want)
		}
	}
}

// TestWidthChangesForPartitionsToCome: those that stand keep their bounds, and new ones do not
// overlap them.
func TestWidthChangesForPartitionsToCome(t *testing.T) {
	db, clock := openTimed(t, kv.Options{}, time.Hour, 10*time.Minute)
	start := clock.now().Truncate(time.Hour).Add(25 * time.Minute)
	clock.ms.Store((start).UnixMilli())
	m := db.CF("m")
	require.NoError(t, m.Append(start, []byte("k"), nil)) // [20, 30)
	require.NoError(t, db.AlterCF("m", kv.CFOptions{Retention: 2 * time.Hour, Partition: time.Hour}))
	require.NoError(t, m.Append(start.Add(-20*time.Minute), []byte("k"), nil)) // [0, 20)
	require.NoError(t, m.Append(start.Add(20*time.Minute), []byte("k"), nil))  // [30, 60)
	var bounds []int
	for _, p := range db.Stats().Partitions["m"] {
		bounds = append(bounds, int(p.From.Sub(start).Minutes())+25, int(p.To.Sub(start).Minutes())+25)
		require.Equal(t, int64(1), p.Rows)
	}
	require.Equal(t, []int{0, 20, 20, 30, 30, 60}, bounds)
}

// TestRollupReadsThePartitionThatGoes: OnDrop sees rows that are hidden otherwise, and its writes
// commit with the drop or not at all.
func TestRollupReadsThePartitionThatGoes(t *testing.T) {
	var fail error
	calls := 0
	rollup := func(tx *kv.Tx, family string, from, to time.Time) error {
		calls++
		require.ErrorIs(t, tx.Commit(), kv.ErrManagedTxn)
		_, err := tx.CF(family).DropExpired(t.Context())
		require.ErrorIs(t, err, kv.ErrInvalidOptions)
		rows := 0
		for _, reverse := range []bool{false, true} {
			for k := range tx.CF(family).ScanTime(from, to, reverse) {
				require.True(t, !k.Time.Before(from) && k.Time.Before(to))
				rows++
			}
		}
		if _, err := tx.Increment([]byte("rows"), int64(rows/2), 0); err != nil {
			return err
		}
		return fail
	}
	db, clock := openTimed(t, kv.Options{OnDrop: rollup}, time.Hour, time.Minute)
	for i := range 180 {
		require.NoError(t, db.CF("m").Append(clock.now().Add(time.Duration(i%60)*time.Second),
			[]byte("k"), nil))
		if i%60 == 59 {
			clock.move(time.Minute)
		}
	}
	clock.move(2 * time.Hour)
	fail = errors.New("no")
	_, err := db.CF("m").DropExpired(t.Context())
	require.ErrorIs(t, err, fail)
	require.Zero(t, count(t, db))
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		n, err := tx.CF("m").DropExpired(t.Context())
		require.ErrorIs(t, err, fail)
		require.Zero(t, n)
		n2, err := tx.Count()
		require.Zero(t, n2)
		return err
	}))
	fail, calls = nil, 0
	var total int64
	require.NoError(t, db.View(func(tx *kv.Tx) (err error) {
		total, err = tx.CF("m").Count()
		return err
	}))
	res, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, total, res.Purged)
	require.Positive(t, calls)
	got, err := db.Increment([]byte("rows"), 0, 0)
	require.NoError(t, err)
	require.Equal(t, total, got)
}

// TestScanOfOneHourReadsNoPageOfOtherPartitions counts page reads of a store that was just opened.
func TestScanOfOneHourReadsNoPageOfOtherPartitions(t *testing.T) {
	fsys, clock := vfs.NewMemory(), newClock()
	o := &kv.Options{Clock: clock.now, Durability: kv.NoSync}
	start := clock.now().Truncate(time.Hour)
	write := func(hours int) {
		db := openOn(t, fsys, o)
		require.NoError(t, db.EnsureCF("m", kv.CFOptions{Retention: 100 * time.Hour, Partition: time.Hour}))
		require.NoError(t, db.Update(func(tx *kv.Tx) error {
			for i := range 500 * hours {
				ts := start.Add(-time.Duration(hours-1)*time.Hour + time.Duration(i)*time.Hour/500)
				if err := tx.CF("m").Append(ts, []byte("k"), make([]byte, 100)); err != nil {
					return err
				}
			}
			return nil
		}))
		require.NoError(t, db.Close())
	}
	reads := func(reverse bool) uint64 {
		db := openOn(t, fsys, o)
		rows := 0
		require.NoError(t, db.View(func(tx *kv.Tx) error {
			for range tx.CF("m").ScanTime(start, start.Add(time.Hour), reverse) {
				rows++
			}
			return nil
		}))
		require.Equal(t, 500, rows)
		n := db.Stats().PagesRead // with those of Open
		require.NoError(t, db.Close())
		return n
	}
	write(1)
	one := reads(false)
	require.GreaterOrEqual(t, one, uint64(500*116/4096))
	write(30)
	require.LessOrEqual(t, reads(false), one+4)
	require.LessOrEqual(t, reads(true), one+4)
}

// TestClockThatJumpedForwardDropsNothing: rows are hidden, but no partition goes until the new time is
// accepted, by a reopen or by Force.
func TestClockThatJumpedForwardDropsNothing(t *testing.T) {
	clock := newClock()
	o := &kv.Options{Clock: clock.now, Durability: kv.NoSync}
	db, err := openfs.OpenTuned(vfs.NewMemory(), path, o, openfs.Tuning{
		Engine:    txn.Options{SegmentSize: 64 << 10},
		Monotonic: func() time.Duration { return 0 },
	})
	require.NoError(t, err)
	require.NoError(t, db.CreateCF("m", kv.CFOptions{Retention: time.Hour, Partition: time.Minute}))
	require.NoError(t, db.CF("m").Append(clock.now(), []byte("k"), nil))
	at := clock.now()
	clock.move(2 * time.Hour)
	_, err = db.CF("m").GetAt(at, []byte("k"))
	require.ErrorIs(t, err, kv.ErrNotFound)
	_, err = db.CF("m").DropExpired(t.Context())
	require.ErrorIs(t, err, kv.ErrClockJump)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		_, err := tx.CF("m").DropExpired(t.Context())
		require.ErrorIs(t, err, kv.ErrClockJump)
		return nil
	}))
	stored, err := db.CF("m").Count()
	require.NoError(t, err)
	require.Equal(t, int64(1), stored)
	res, err := db.PurgeExpired(t.Context(), kv.PurgeOptions{Force: true})
	require.NoError(t, err)
	require.Equal(t, int64(1), res.Purged)
	require.NoError(t, db.Close())
}

// TestRetentionChangesAtOnce, for rows that are stored, in both directions.
func TestRetentionChangesAtOnce(t *testing.T) {
	db, clock := openTimed(t, kv.Options{}, time.Hour, time.Minute)
	m, at := db.CF("m"), clock.now()
	require.NoError(t, m.Append(at, []byte("k"), nil))
	for _, minutes := range []time.Duration{9, 60, 10, 11} {
		o := kv.CFOptions{Retention: minutes * time.Minute, Partition: time.Minute}
		require.NoError(t, db.AlterCF("m", o))
		_, err := m.GetAt(at, []byte("k"))
		require.NoError(t, err)
		clock.ms.Store(at.Add(10 * time.Minute).UnixMilli())
		if _, err = m.GetAt(at, []byte("k")); minutes <= 10 {
			require.ErrorIs(t, err, kv.ErrNotFound)
			live, err := m.CountLive()
			require.NoError(t, err)
			require.Zero(t, live)
		} else {
			require.NoError(t, err)
		}
		clock.ms.Store(at.UnixMilli())
	}
}

// TestHandleForgetsAPartitionThatARollbackTook: a handle remembers the partition of its last row.
func TestHandleForgetsAPartitionThatARollbackTook(t *testing.T) {
	db, clock := openTimed(t, kv.Options{}, time.Hour, time.Minute)
	require.NoError(t, db.Update(func(tx *kv.Tx) error {
		m, sp := tx.CF("m"), tx.Savepoint()
		for i := range 3 {
			require.NoError(t, m.Append(clock.now(), fmt.Append(nil, i), nil))
			require.NoError(t, tx.RollbackTo(sp))
		}
		return m.Append(clock.now(), []byte("k"), nil)
	}))
	n, err := db.CF("m").Count()
	require.NoError(t, err)
	require.Equal(t, int64(1), n)
}
