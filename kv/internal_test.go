package kv

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/cf"
	"github.com/ebbkv/ebb/internal/racetest"
)

// TestJumpIsKnownBeforeItIsTakenForTheTime: one goroutine detects a jump, and another one that
// compares after it sees no step any more. It must then find jumped set. A test cannot stop the first
// goroutine between the two stores, so this one tries often.
func TestJumpIsKnownBeforeItIsTakenForTheTime(t *testing.T) {
	clocks := make([]clock, racetest.Sample(50_000, 10_000))
	for i := range clocks {
		clocks[i].maxStep = 1000
		clocks[i].mono = func(time.Time) int64 { return 0 }
	}
	at, late := time.UnixMilli(5000), 0
	spin := func(until func() bool) {
		for n := 1; !until(); n++ {
			if n%1000 == 0 {
				runtime.Gosched() // There may be one processor.
			}
		}
	}
	var here atomic.Int64 // the clock that the second one watches
	var second sync.WaitGroup
	second.Go(func() {
		for i := range clocks {
			c := &clocks[i]
			here.Store(int64(i))
			spin(func() bool { return c.offset.Load() != 0 })
			if c.compare(at); !c.jumped.Load() {
				late++
			}
		}
	})
	for i := range clocks {
		spin(func() bool { return here.Load() == int64(i) })
		clocks[i].compare(at)
	}
	second.Wait()
	require.Zero(t, late, "times in %d that it was not", len(clocks))
}

// TestReadingOfTheSystemsClockIsAddedToForAMillisecond: a step of that clock is seen after it.
func TestReadingOfTheSystemsClockIsAddedToForAMillisecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		first := c.systemNow()
		require.Equal(t, time.Now(), first)
		time.Sleep(time.Millisecond - 1)
		require.Equal(t, time.Now(), c.systemNow())
		require.Equal(t, first, *c.last.Load(), "no full reading")
		time.Sleep(time.Nanosecond)
		require.Equal(t, time.Now(), c.systemNow())
		require.Equal(t, time.Now(), *c.last.Load(), "a full reading")
	})
}

// TestForcedJumpStaysBelieved: a call that read the clock before a purge with Force accepted a jump,
// and compares after it, does not report the same jump again.
func TestForcedJumpStaysBelieved(t *testing.T) {
	const old, leap = 5000, 500_000 // what the clock is ahead of monotonic time
	mono := int64(0)                // of the reading
	read := func(c *clock, at, ahead int64) {
		mono = at
		c.compare(time.UnixMilli(at + ahead))
	}
	for name, late := range map[string]func(c *clock){
		"read before it, and again after it": func(c *clock) {
			read(c, 99, old)
			read(c, 102, leap)
		},
		"met it as well":              func(c *clock) { c.jump(100, leap) },
		"met it as well, a bit later": func(c *clock) { c.jump(101, leap+1) },
	} {
		t.Run(name, func(t *testing.T) {
			jumps := 0
			mono = 0
			c := &clock{maxStep: 1000, onJump: func(time.Duration) { jumps++ }}
			c.now = func() time.Time { return time.UnixMilli(old) }
			c.watch(func(time.Time) int64 { return mono })
			read(c, 100, leap)
			require.True(t, c.jumped.Load())
			require.Equal(t, 1, jumps)
			c.jumped.Store(false) // as Force does
			late(c)
			require.False(t, c.jumped.Load())
			require.Equal(t, 1, jumps)
			read(c, 200, leap+2000)
			require.True(t, c.jumped.Load(), "another one")
			require.Equal(t, 2, jumps)
		})
	}
}

// TestStepsThatNoDurationHoldsAreTheLongestOne: a clock returned the zero Time, two thousand years
// back. The store reported a step of some years, or one forward.
func TestStepsThatNoDurationHoldsAreTheLongestOne(t *testing.T) {
	today := time.Date(2023, 11, 14, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		to            time.Time
		back, forward time.Duration
	}{
		{to: time.Time{}, back: math.MaxInt64},
		{to: today.AddDate(-293, 0, 0), back: math.MaxInt64},
		{to: today.Add(-100 * time.Hour), back: 100 * time.Hour},
		{to: today.Add(100 * time.Hour), forward: 100 * time.Hour},
		{to: today.AddDate(293, 0, 0), forward: math.MaxInt64},
		{to: today.AddDate(7000, 0, 0), forward: math.MaxInt64},
	} {
		at := today
		var back, forward time.Duration
		c := &clock{
			now: func() time.Time { return at }, maxStep: 1000,
			onStep: func(d time.Duration) { back = d }, onJump: func(d time.Duration) { forward = d },
		}
		c.start(0)
		c.watch(func(time.Time) int64 { return 0 })
		require.Equal(t, today.UnixMilli(), c.read())
		at = test.to
		require.Equal(t, test.to.UnixMilli(), c.read())
		require.Equal(t, test.back, back, "to %v", test.to)
		require.Equal(t, test.forward, forward, "to %v", test.to)
	}
}

// TestHalvesOfMoreThanAGroupTakeTurns: fewer writes share one transaction.
func TestHalvesOfMoreThanAGroupTakeTurns(t *testing.T) {
	for _, c := range []struct {
		here, inFlight int
		enough         bool
	}{{30, 30, false}, {40, 40, true}, {20, 60, false}, {maxGroup, 0, true}, {16, 15, false}} {
		q := writeQueue{queue: make([]*writeRequest, c.here-1), inFlight: c.inFlight}
		require.Equal(t, c.enough, q.groupComplete(), "%+v", c)
	}
}

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
		{"no commit", t.Context(), 1, 0, 2},
		{"few commit", t.Context(), 1, 1, 1 + passTimes},
		{"enough have passed", t.Context(), 1, passBy, 2},
		{"enough have passed after a while", t.Context(), 1, passBy / 4, 5},
		{"context has ended", ended, math.MaxInt64, 1, 1},
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

// A fault is what the runtime panics with when memory cannot be read and the guard is armed.
type fault struct{ addr uintptr }

func (f fault) Error() string { return fmt.Sprintf("fault at %#x", f.addr) }
func (f fault) RuntimeError() {}
func (f fault) Addr() uintptr { return f.addr }

// plain is another runtime error.
type plain struct{}

func (plain) Error() string { return "integer divide by zero" }
func (plain) RuntimeError() {}

func TestFaultBecomesAnErrorAndTheTransactionIsDead(t *testing.T) {
	db, err := OpenMemory(nil)
	require.NoError(t, err)
	for _, writable := range []bool{false, true} {
		tx, err := db.Begin(t.Context(), writable)
		require.NoError(t, err)
		call := func() (err error) {
			defer tx.leave(tx.enter(), &err)
			panic(fault{0x70001000})
		}
		err = call()
		require.ErrorIs(t, err, ErrCorrupt)
		var bad *CorruptError
		require.True(t, errors.As(err, &bad))
		require.Equal(t, "memory.ebb", bad.File)
		_, again := tx.Get([]byte("k"))
		require.Equal(t, err, again)
		require.Equal(t, err, tx.Err())
		if writable {
			require.Equal(t, err, tx.Commit())
		}
		_ = tx.Rollback()
	}
	require.NoError(t, db.Close())
}

func TestOtherPanicsPassTheGuardUnchanged(t *testing.T) {
	db, err := OpenMemory(nil)
	require.NoError(t, err)
	tx, err := db.Begin(t.Context(), true)
	require.NoError(t, err)
	for _, value := range []any{"text", errors.New("an error"), plain{}, fault{0}} {
		require.PanicsWithValue(t, value, func() {
			var err error
			defer tx.leave(tx.enter(), &err)
			panic(value)
		})
		require.NoError(t, tx.Put([]byte("k"), nil), "the transaction is free again")
	}
	require.NoError(t, tx.Rollback())
	require.NoError(t, db.Close())
}

// TestRangeBodyIsOutsideOfTheGuard: a fault there is the body's own.
func TestRangeBodyIsOutsideOfTheGuard(t *testing.T) {
	db, err := OpenMemory(nil)
	require.NoError(t, err)
	require.NoError(t, db.Put([]byte("k"), nil))
	for _, run := range []func(func(*Tx) error) error{db.View, db.Update} {
		require.PanicsWithValue(t, fault{0x70001000}, func() {
			_ = run(func(tx *Tx) error {
				for range tx.All() {
					panic(fault{0x70001000})
				}
				return nil
			})
		})
	}
	require.ErrorIs(t, db.guarded(func() error { panic(fault{0x70001000}) }), ErrCorrupt)
	require.Panics(t, func() { _ = db.guarded(func() error { panic("other") }) })
	require.NoError(t, db.Close())
}

func TestPrefixEndsBeforeTheNextKey(t *testing.T) {
	for p, want := range map[string]string{"": "", "a": "b", "a\xff": "b", "\xff\xff": "",
		"\xfe\xff": "\xff", "\x00": "\x01"} {
		require.Equal(t, want, string(appendAfterPrefix(nil, []byte(p))), "%q", p)
	}
}

// TestEndedWaitForTheWriterLockWakesShutdown: an Update evicts the keys that readers found, commits
// that, and begins again. Close counts it as open while it waits for the writer lock. When its
// context ended there, Shutdown got no notice, and could wait without end for a call that had gone.
func TestEndedWaitForTheWriterLockWakesShutdown(t *testing.T) {
	db, err := OpenMemory(nil)
	require.NoError(t, err)
	writer, err := db.store.Begin(t.Context(), true)
	require.NoError(t, err)
	db.stopping.Store(true)
	require.ErrorIs(t, newTx(db).beginWrite(expiredContext), context.Canceled)
	require.Len(t, db.txEnded, 1, "Shutdown looks again")
	writer.Rollback()
	require.NoError(t, db.Close())
}
