package txn

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// hurried is a checkpoint observer that always reports a shortage of frames. It calls the test before
// the first part, when the captured version is visible, and after each part.
type hurried struct {
	*frameReclaimer
	first, wrote func()
}

func (h hurried) Throttle(written float64) bool {
	if written == 0 {
		h.first()
	}
	h.enough = false
	return false
}

func (h hurried) PagesWritten(ids []pager.Pgid) {
	h.frameReclaimer.PagesWritten(ids)
	h.wrote()
}

// openCramped is a store of some 4 MiB with frames for 16, all of its pages in frames.
func openCramped(t *testing.T) *Store {
	o := testOptions(vfs.NewMemory())
	o.CacheBytes, o.CheckpointBytes = 16<<20, 1<<30
	s := openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	rewrite(t, s, "first")
	return s
}

// rewrite puts 4,000 rows of 900 bytes.
func rewrite(t *testing.T, s *Store, value string) { rewriteIn(t, s, value, func() {}) }

// rewriteIn is rewrite, and calls beside within the transaction after some of the rows.
func rewriteIn(t *testing.T, s *Store, value string, beside func()) {
	update(t, s, func(tx *Tx) {
		for i := range 4000 {
			if i == 500 {
				beside()
			}
			mustPut(t, tx, 9, fmt.Appendf(nil, "%04d", i), fmt.Appendf(nil, "%900s", value), 0)
		}
	})
}

// requireAll requires that each row has the last value put before the snapshot.
func requireAll(t *testing.T, tx *Tx, value string) {
	t.Helper()
	rows := contents(t, tx, 9)
	require.Len(t, rows, 4000)
	for _, v := range rows {
		require.Equal(t, fmt.Sprintf("%900s", value), v)
	}
}

// checkpointBy is Checkpoint with the observer hurried.
func checkpointBy(t *testing.T, s *Store, first, wrote func()) {
	t.Helper()
	require.NoError(t, lock(t.Context(), s.checkpointer.mu))
	defer func() { <-s.checkpointer.mu }()
	c, err := s.checkpointer.capture(t.Context())
	require.NoError(t, err)
	require.NoError(t, s.checkpointer.write(c, hurried{s.checkpointer.newFrameReclaimer(c), first, wrote}))
	require.NoError(t, s.checkpointer.finish(c))
}

func TestFramesComeBackWhileACheckpointIsWritten(t *testing.T) {
	s := openCramped(t)
	full := s.pg.Pool.FrameBytes()
	require.Greater(t, full, int64(3<<20))
	least := full
	checkpointBy(t, s, func() {}, func() { least = min(least, s.pg.Pool.FrameBytes()) })
	require.Less(t, least, full/2)
	view(t, s, func(tx *Tx) { requireAll(t, tx, "first") })
	require.Equal(t, s.head.serial, s.checkpointer.capturedSer, "there is nothing new to write")
}

func TestFramesStayAsLongAsTheySuffice(t *testing.T) {
	s := openCramped(t)
	full := s.pg.Pool.FrameBytes()
	require.NoError(t, lock(t.Context(), s.checkpointer.mu))
	c, err := s.checkpointer.capture(t.Context())
	require.NoError(t, err)
	r := s.checkpointer.newFrameReclaimer(c)
	require.NoError(t, s.checkpointer.write(c, r))
	require.Greater(t, len(r.written), 1000)
	require.GreaterOrEqual(t, s.pg.Pool.FrameBytes(), full)
	require.NoError(t, s.checkpointer.finish(c))
	<-s.checkpointer.mu
}

func TestCheckpointHurriesWhenFramesAreUsedUpFast(t *testing.T) {
	s := openCramped(t)
	frames := s.pg.Pool.FrameBytes()
	for _, test := range []struct {
		bound, began  int64
		written       float64
		enough, hurry bool
	}{
		{4 * frames, frames, 0, true, false}, // no commits
		// commits use an eighth of the free frames, and a little less
		{5 * frames, frames / 2, 0, true, false},
		{3 * frames, frames / 2, 0, false, false},
		{2 * frames, frames / 2, 0, false, true}, // a third
		{2 * frames, frames / 2, 0.5, true, false},
		{frames + frames/32, frames, 0, true, false},
		{frames + frames/32, frames / 2, 0.5, false, true}, // nearly all
		{frames + frames/32, frames / 2, 1, true, false},
		{frames / 2, frames - 1, 0.5, false, true},
		{frames / 2, frames, 0, false, true}, // a commit waits
		{2 * frames, 3 * frames, 0.5, false, true},
	} {
		s.o.CacheBytes = test.bound
		r := &frameReclaimer{s: s, began: test.began}
		require.Equal(t, !test.hurry, r.Throttle(test.written), "%+v", test)
		require.Equal(t, test.enough, r.enough, "%+v", test)
	}
}

// TestCheckpointOfDeltasHurriesSooner: from a quarter of the free frames on, which it would
// otherwise share with commits, until commits have used all of them.
func TestCheckpointOfDeltasHurriesSooner(t *testing.T) {
	s := openCramped(t)
	frames := s.pg.Pool.FrameBytes()
	for _, test := range []struct {
		bound, began  int64
		written       float64
		enough, hurry bool
	}{
		{4 * frames, frames, 0, true, false},
		{5 * frames, frames / 2, 0, true, true},
		{17 * frames, frames / 2, 0, true, false}, // 2/4 of an eighth of 33/2, and a little more
		{16 * frames, frames / 2, 0, true, true},  // and a little less
		{2 * frames, frames / 2, 1, true, true},
		{3 * frames, frames / 2, 1, true, false},
		{2 * frames, 3 * frames, 0.5, false, true},
	} {
		s.o.CacheBytes = test.bound
		r := &frameReclaimer{s: s, began: test.began, deltas: true}
		require.Equal(t, !test.hurry, r.Throttle(test.written), "%+v", test)
		require.Equal(t, test.enough, r.enough, "%+v", test)
	}
}

// TestReadersBesideFrameReclaimSeeTheirVersion: readers begin before the checkpoint's version, beside
// the transaction that makes it, with it and after it. Each finds its rows while frames are reclaimed
// and reused; frames that a reader may access are not reused before it has ended.
func TestReadersBesideFrameReclaimSeeTheirVersion(t *testing.T) {
	racetest.NotQuick(t)
	for name, want := range map[string]string{"before": "first", "beside": "first", "with": "second",
		"after": "third"} {
		t.Run(name, func(t *testing.T) {
			s := openCramped(t)
			var r *Tx
			begin := func(when string) {
				if when == name {
					var err error
					r, err = s.Begin(t.Context(), false)
					require.NoError(t, err)
				}
			}
			begin("before")
			rewriteIn(t, s, "second", func() { begin("beside") })
			var value []byte // as the reader has it, in a page
			parts, takes := 0, 0
			checkpointBy(t, s, func() {
				begin("with")
				if name == "after" {
					rewrite(t, s, "third")
				}
				begin("after")
				var err error
				value, _, _, err = r.Get(9, []byte("2000"))
				require.NoError(t, err)
			}, func() {
				rewrite(t, s, fmt.Sprint("part ", parts)) // frames that came back are used again
				parts++
				takes = len(s.reclaimer.detached)
				require.Equal(t, fmt.Sprintf("%900s", want), string(value))
				requireAll(t, r, want)
			})
			require.Greater(t, parts, 3)
			if want == "first" {
				require.Zero(t, takes, "it may ask for frames")
			} else {
				require.Equal(t, parts-1, takes,
					"it may look at any of them; the last part is less than a step")
			}
			held := s.pg.Pool.FrameBytes()
			r.Rollback()
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(11)) })
			require.Less(t, s.pg.Pool.FrameBytes(), held-held/8)
			require.Empty(t, s.reclaimer.detached)
		})
	}
}

// TestFrameReclaimDoesNotWaitForALongTransaction: the checkpoint is written while a transaction holds
// the writer lock.
func TestFrameReclaimDoesNotWaitForALongTransaction(t *testing.T) {
	s := openCramped(t)
	var tx *Tx
	parts := 0
	checkpointBy(t, s, func() {
		var err error
		tx, err = s.Begin(t.Context(), true)
		require.NoError(t, err)
	}, func() {
		if parts++; parts == 4 { // all but the end is written
			require.Empty(t, s.reclaimer.detached)
			tx.Rollback()
		}
	})
	require.Equal(t, 4, parts)
}

// TestWritersWaitForFramesNotForTheCheckpoint: a waiting writer resumes when frames are reclaimed.
func TestWritersWaitForFramesNotForTheCheckpoint(t *testing.T) {
	s := openCramped(t)
	s.o.CacheBytes = s.pg.Pool.FrameBytes() - 1
	s.checkpointer.running.Store(true)
	defer s.checkpointer.running.Store(false)
	began := make(chan error)
	went := false
	checkpointBy(t, s, func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := s.Begin(ctx, true)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		s.reclaimer.framesAvailable.send()
		go func() {
			tx, err := s.Begin(t.Context(), true)
			if err == nil {
				tx.Rollback()
			}
			began <- err
		}()
		require.Eventually(t, func() bool {
			s.reclaimer.framesAvailable.mu.Lock()
			defer s.reclaimer.framesAvailable.mu.Unlock()
			return s.reclaimer.framesAvailable.ch != nil
		}, 10*time.Second, 100*time.Microsecond, "it waits")
	}, func() {
		if !went && s.pg.Pool.FrameBytes() <= s.o.CacheBytes {
			require.NoError(t, <-began)
			went = true
		}
	})
	require.True(t, went)
}

// TestSnapshotsAreWholeBesideFrameReclaim: writers move amounts between rows, faster than checkpoints
// end, and each reader finds the same sum.
func TestSnapshotsAreWholeBesideFrameReclaim(t *testing.T) {
	racetest.NotQuick(t)
	const rows, each = 6_000, 100
	o := testOptions(vfs.NewMemory())
	o.Inline, o.CacheBytes, o.CheckpointBytes = false, 1<<20, 256<<10
	s := openTest(t, "/a.ebb", o)
	key := func(i int) []byte { return fmt.Appendf(nil, "%06d", i) }
	value := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(make([]byte, 100, 108), n) }
	amount := func(tx *Tx, i int) uint64 {
		v, _, found, err := tx.Get(9, key(i))
		if err != nil || !found {
			t.Error(i, found, err)
			return 0
		}
		return binary.LittleEndian.Uint64(v[100:])
	}
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(9))
		for i := range rows {
			mustPut(t, tx, 9, key(i), value(each), 0)
		}
	})
	var wg sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for running := true; running; {
				select {
				case <-done:
					running = false
				default:
				}
				r, err := s.Begin(nil, false)
				if err != nil {
					t.Error(err)
					return
				}
				sum := uint64(0)
				for i := range rows {
					sum += amount(r, i)
				}
				r.Rollback()
				if sum != rows*each {
					t.Error("the sum is", sum)
					return
				}
			}
		})
	}
	taken := 0
	rnd := rand.New(rand.NewSource(1))
	for n := 0; n < racetest.Sample(300, 60) || taken < 20 && n < 20_000; n++ {
		update(t, s, func(tx *Tx) {
			taken += len(s.reclaimer.detached)
			for range 20 {
				from, to := rnd.Intn(rows), rnd.Intn(rows)
				if n := amount(tx, from); n > 0 && from != to {
					mustPut(t, tx, 9, key(from), value(n-1), 0)
					mustPut(t, tx, 9, key(to), value(amount(tx, to)+1), 0)
				}
			}
		})
	}
	close(done)
	wg.Wait()
	require.NotZero(t, taken, "no checkpoint gave frames back")
}
