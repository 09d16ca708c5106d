package txn

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// anyChanges are n changes of keys below rows, some of them more than once.
func anyChanges(rnd *rand.Rand, n, rows int) []Change {
	changes := make([]Change, n)
	for i := range changes {
		c := &changes[i]
		if c.Key = batchKey(rnd.IntN(rows)); rnd.IntN(3) == 0 {
			c.Delete = true
			continue
		}
		c.Value, c.Tag = make([]byte, rnd.IntN(120)), int64(rnd.IntN(3))
		for k := range c.Value {
			c.Value[k] = byte(i)
		}
	}
	return changes
}

// TestParallelApplyEqualsSerialApply: many changes leave the same rows, results and recovered version
// with one worker and with several, in stores whose pages are all in frames, are written early, or
// have deltas. Rolled back transactions leave nothing.
func TestParallelApplyEqualsSerialApply(t *testing.T) {
	racetest.NotQuick(t)
	for name, cache := range map[string]int64{"fits": 8 << 20, "short": 300 << 10, "deltas": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			racetest.OneGoroutine(t)
			const rows = 12_000
			together, alone, deltaWrites := 0, 0, 0
			open := func(from int) (*Store, vfs.FS) {
				fs := vfs.NewMemory()
				o := testOptions(fs)
				o.ManyFrom, o.CacheBytes, o.CheckpointBytes = from, cache, 1<<20
				s := openTest(t, "/a.ebb", o)
				fillTree(t, s, rows)
				return s, fs
			}
			one, _ := open(1 << 30)
			several, fs := open(2)
			rnd := rand.New(rand.NewPCG(11, uint64(cache)))
			rounds := 40
			if racetest.Enabled || racetest.Quick() {
				rounds = racetest.Sample(20, 12)
			}
			for round := range rounds {
				var some [][]Change
				for range 1 + rnd.IntN(3) {
					most := 2000
					if rnd.IntN(4) > 0 { // for which there are frames
						most = min(most, int(cache)/DefaultPageSize)
					}
					some = append(some, anyChanges(rnd, 2+rnd.IntN(most), rows))
				}
				ahead, commit := rnd.IntN(3) == 0, rnd.IntN(4) > 0
				var was [2][]Info
				for i, s := range []*Store{one, several} {
					tx := begin(t, s, true)
					var last []Run // applied while the log writes their record
					now := some
					if n := len(some) - 1; ahead && commit {
						now, last = some[:n], []Run{{9, some[n]}}
					}
					for _, changes := range now {
						infos := make([]Info, len(changes))
						require.NoError(t, tx.Apply(9, changes, infos))
						was[i] = append(was[i], infos...)
						if h := s.w.parallel; h != nil && h.applied {
							together++
							if s.w.mayDelta && s.pg.Pool.DeltaBytes() > 0 {
								deltaWrites++
							}
						} else if s == several {
							alone++
						}
					}
					if commit {
						require.NoError(t, tx.Commit(Sync, last...))
					} else {
						tx.Rollback()
					}
				}
				require.Equal(t, was[0], was[1])
				if round%10 == 9 {
					var want, got map[string]string
					view(t, one, func(tx *Tx) { want = contents(t, tx, 9) })
					view(t, several, func(tx *Tx) { got = contents(t, tx, 9) })
					require.Equal(t, want, got)
				}
			}
			require.Greater(t, together, rounds/2)
			require.True(t, name == "fits" || alone > 2, "%d", alone)
			require.Equal(t, name != "fits", deltaWrites > 0, "%d", deltaWrites)
			// Recovery applies the operations of the log one by one.
			again := mustOpen(t, testOptions(copyFiles(t, fs)))
			var want, got map[string]string
			view(t, several, func(tx *Tx) { want = contents(t, tx, 9) })
			view(t, again, func(tx *Tx) { got = contents(t, tx, 9) })
			require.Equal(t, want, got)
			require.NoError(t, again.Close())
		})
	}
}

// TestSnapshotsBesideParallelApply: readers begin at any moment of transactions that change every row
// with several workers, and of which half are rolled back. Each sees one version, and none that was
// rolled back, with leaves in frames and with deltas.
func TestSnapshotsBesideParallelApply(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	for name, test := range map[string]struct {
		rows, others int // others are among them, and never change
		cache        int64
	}{"frames": {3000, 0, 16 << 20}, "deltas": {900, 20_000, 2 << 20}} {
		t.Run(name, func(t *testing.T) {
			rows := test.rows
			o := testOptions(vfs.NewMemory())
			o.Inline, o.Choose, o.ManyFrom, o.CacheBytes = false, nil, 2, test.cache
			s := openTest(t, "/a.ebb", o)
			all := rand.New(rand.NewPCG(1, 1)).Perm(rows)
			deltaWrites := 0
			put := func(n uint32, commit bool) {
				tx := begin(t, s, true)
				value := bytes.Repeat(fmt.Appendf(nil, "%08d", n), 12)
				changes := make([]Change, 0, rows)
				for _, i := range all {
					changes = append(changes, Change{Key: batchKey(i), Value: value})
				}
				for some := range slices.Chunk(changes, rows/3) {
					require.NoError(t, tx.Apply(CatalogTree, some, nil))
				}
				if s.pg.Pool.DeltaBytes() > 0 {
					deltaWrites++
				}
				if commit {
					require.NoError(t, tx.Commit(NoSync))
				} else {
					tx.Rollback()
				}
			}
			update(t, s, func(tx *Tx) {
				for i := range test.others {
					mustPut(t, tx, CatalogTree, batchKey(rows+i), make([]byte, 96), 0)
				}
			})
			put(0, true)
			inPlace := 0
			const rounds = 200
			round := func(n uint32) {
				if test.others > 0 && n%8 == 0 {
					require.NoError(t, s.Checkpoint(t.Context())) // leaves that it has written get deltas
				}
				put(n, n%2 == 0)
				if s.w.parallel != nil && s.w.parallel.workers[1].undo != nil {
					inPlace++
				}
			}
			besideReaders(t, s, rows, batchKey, 300*time.Microsecond, rounds, round)
			// On a busy machine the second worker may get no turn before the first has done all, and
			// under the race detector a reader begins before each batch.
			for n := uint32(rounds); inPlace == 0; n++ {
				require.Less(t, n, uint32(100*rounds), "more than one worker has changed pages in place")
				round(n)
			}
			require.Equal(t, name == "deltas", deltaWrites > 0)
		})
	}
}

// TestCheckpointHelpsParallelApply: the checkpoint applies parts between two pages, and writes its own
// pages all the same. It joins no job that has its workers, or is over.
func TestCheckpointHelpsParallelApply(t *testing.T) {
	for name, test := range map[string]struct{ came, next, lent int32 }{
		"all of it":          {lent: 3},
		"what is left of it": {came: 1, next: 2, lent: 1},
		"enough workers":     {came: 2},
		"nothing left":       {came: 1, next: 3},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(vfs.NewMemory())
			o.CheckpointBytes = 1 << 30 // only where the test runs one
			s := openTest(t, "/a.ebb", o)
			update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
			update(t, s, func(tx *Tx) {
				for key := range wideRows(100) {
					mustPut(t, tx, 9, key, bytes.Repeat(key, 100), 0)
				}
			})
			h := &parallelApplier{w: &s.w}
			h.workers[0].pages = &s.w.pageWriter
			r := &job{applier: h, workers: 2, parts: 3, done: make(chan struct{})}
			r.joined.Store(test.came)
			r.nextPart.Store(test.next)
			r.partsLeft.Store(r.parts - test.next)
			s.job.Store(r)
			require.NoError(t, s.Checkpoint(t.Context()))
			require.Equal(t, test.lent, r.parts-test.next-r.partsLeft.Load())
			select {
			case <-r.done:
				require.Positive(t, test.lent)
			default:
				require.Zero(t, test.lent)
			}
			s.job.Store(nil)
			s.Check(t.Context(), func(p Problem) bool { t.Error(p); return true })
		})
	}
}

// TestCheckpointsBesideParallelApply: checkpoints run while several workers, at times the checkpoint
// among them, apply batches, and while these are rolled back. Committed rows are found, also after
// recovery, as is the version that each checkpoint wrote.
func TestCheckpointsBesideParallelApply(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	fs := vfs.NewMemory()
	o := testOptions(fs)
	o.Inline, o.Choose, o.ManyFrom, o.CacheBytes, o.CheckpointBytes = false, nil, 2, 8<<20, 1<<30
	s := openTest(t, "/a.ebb", o)
	const rows = 12_000
	want := fillTree(t, s, rows)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for checkpoints := 0; ; checkpoints++ {
			select {
			case <-stop:
				assert.Greater(t, checkpoints, 2)
				return
			default:
				if !assert.NoError(t, s.Checkpoint(t.Context())) {
					return
				}
			}
		}
	}()
	rnd := rand.New(rand.NewPCG(5, 5))
	for round := 0; round < 60 || s.Stats().Checkpoints < 4 && round < 5000; round++ {
		tx := begin(t, s, true)
		changes := anyChanges(rnd, 1000, rows)
		require.NoError(t, tx.Apply(9, changes, nil))
		if round%3 == 2 {
			tx.Rollback()
			continue
		}
		require.NoError(t, tx.Commit(NoSync))
		for i := range changes {
			if c := &changes[i]; c.Delete {
				delete(want, string(c.Key))
			} else {
				want[string(c.Key)] = string(c.Value)
			}
		}
	}
	close(stop)
	<-ended
	require.True(t, s.w.parallel.applied)
	holds := func(s *Store) {
		s.Check(t.Context(), func(p Problem) bool { t.Error(p); return true })
		tx := begin(t, s, false)
		defer tx.Rollback()
		require.EqualValues(t, len(want), tx.Rows(9))
		for key, value := range want {
			got, _, found, err := tx.Get(9, []byte(key))
			require.NoError(t, err)
			require.True(t, found)
			require.Equal(t, value, string(got))
		}
	}
	holds(s)
	require.NoError(t, s.Close())
	o.FS = fs
	holds(openTest(t, "/a.ebb", o))
}

// TestSmallBatchesAreAppliedSerially: one worker applies few changes, those in a small tree or in one
// place, those with large values, and those behind a savepoint.
func TestSmallBatchesAreAppliedSerially(t *testing.T) {
	s := batchStore(t, false, 9000)
	s.o.ManyFrom, s.o.ManyRows = 100, 5000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	changes := someChanges(rand.New(rand.NewPCG(1, 9)), 500, 9000)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(10)) })
	tx := begin(t, s, true)
	by := func(id TreeID, changes []Change) bool {
		done, err := tx.applyParallel(id, changes, nil)
		require.NoError(t, err)
		return done
	}
	require.True(t, by(9, changes))
	require.False(t, by(9, changes[:99]))
	require.False(t, by(10, changes))
	large := slices.Clone(changes)
	large[400] = Change{Key: batchKey(1), Value: make([]byte, 3000)}
	require.False(t, by(9, large))
	place := make([]Change, 500)
	for i := range place {
		place[i] = Change{Key: fmt.Appendf(nil, "zz-%06d", i)}
	}
	require.False(t, by(9, place))
	_, err := tx.applyParallel(77, changes, nil)
	require.ErrorIs(t, err, ErrNoTree)
	require.NoError(t, tx.Err(), "a mistake of the caller's")
	s.o.MaxTxnBytes = tx.Bytes() + 100
	require.False(t, by(9, changes), "whoever tells of the bound")
	s.o.MaxTxnBytes = 1 << 30
	runtime.GOMAXPROCS(1)
	require.False(t, by(9, changes))
	runtime.GOMAXPROCS(2)
	tx.Savepoint()
	require.False(t, by(9, changes))
	tx.Rollback()
	_, err = tx.applyParallel(9, changes, nil)
	require.NoError(t, err)
	require.ErrorIs(t, tx.Apply(9, changes, nil), ErrTxnDone)
}

// TestParallelApplyKeepsTheTransactionLimit: a worker finds no page. The transaction returns the
// error and is rolled back, and space can be freed.
func TestParallelApplyKeepsTheTransactionLimit(t *testing.T) {
	for _, inline := range []bool{true, false} {
		o := testOptions(vfs.NewMemory())
		o.ManyFrom, o.Inline, o.Choose, o.CacheBytes, o.MaxBytes = 2, inline, nil, 4<<20, 2<<20
		s := openTest(t, "/a.ebb", o)
		want := fillTree(t, s, 3000)
		rnd := rand.New(rand.NewPCG(1, 9))
		tx, err := s.Begin(t.Context(), true)
		require.NoError(t, err)
		for err == nil {
			changes := make([]Change, 1000)
			for i := range changes {
				changes[i] = Change{Key: batchKey(rnd.IntN(100_000)), Value: make([]byte, 200)}
			}
			err = tx.Apply(9, changes, nil)
		}
		require.ErrorIs(t, err, ErrNoSpace)
		tx.Rollback()
		require.True(t, s.refusal.waiting)
		view(t, s, func(tx *Tx) { require.Equal(t, want, contents(t, tx, 9)) })
		var gone []Change
		for key := range maps.Keys(want) {
			gone = append(gone, Change{Key: []byte(key), Delete: true})
		}
		update(t, s, func(tx *Tx) { require.NoError(t, tx.Apply(9, gone, nil)) })
		view(t, s, func(tx *Tx) { require.Empty(t, contents(t, tx, 9)) })
	}
}
