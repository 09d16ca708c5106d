package txn

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
)

// holeTrees are the trees of a holeyStore.
const holeTrees = 30

// holeyStore is a store of many trees with small and large values, nine tenths of which were deleted
// at random. rows has what is left, by tree.
type holeyStore struct {
	*Store
	t    *testing.T
	rnd  *rand.Rand
	rows map[TreeID]map[string]string
}

func newHoleyStore(t *testing.T, o Options) *holeyStore {
	h := &holeyStore{
		Store: openTest(t, "/a.ebb", o), t: t, rnd: rand.New(rand.NewPCG(7, 7)),
		rows: map[TreeID]map[string]string{},
	}
	for id := TreeID(9); id < 9+holeTrees; id++ {
		h.rows[id] = map[string]string{}
		update(t, h.Store, func(tx *Tx) { require.NoError(t, tx.Create(id)) })
	}
	for range 12 {
		h.put(400)
	}
	require.NoError(t, h.Checkpoint(nil))
	update(t, h.Store, func(tx *Tx) {
		for id, rows := range h.rows {
			for key := range rows {
				if h.rnd.IntN(10) > 0 {
					mustDelete(t, tx, id, []byte(key))
					delete(rows, key)
				}
			}
		}
	})
	return h
}

// put puts rows into all trees, most into tree 9.
func (h *holeyStore) put(n int) {
	update(h.t, h.Store, func(tx *Tx) {
		for range n {
			id, size := TreeID(9), 100+h.rnd.IntN(300)
			switch h.rnd.IntN(20) {
			case 0:
				size = 2000 + h.rnd.IntN(30_000)
			case 1, 2:
				id = TreeID(9 + h.rnd.IntN(holeTrees))
			}
			key, value := fmt.Sprintf("%06d", h.rnd.IntN(1e6)), make([]byte, size)
			value[0] = byte(h.rnd.Uint32())
			_, err := tx.Put(id, []byte(key), value, 0)
			require.NoError(h.t, err)
			h.rows[id][key] = string(value)
		}
	})
}

func (h *holeyStore) requireRows(rows map[TreeID]map[string]string) {
	h.t.Helper()
	tx, err := h.Begin(nil, false)
	require.NoError(h.t, err)
	defer tx.Rollback()
	for id, want := range rows {
		require.Equal(h.t, want, contents(h.t, tx, id), "tree %d", id)
	}
	if h.Failed() == nil {
		requireSound(h.t, h.Store)
	}
}

func (h *holeyStore) copyRows() map[TreeID]map[string]string {
	rows := map[TreeID]map[string]string{}
	for id := range h.rows {
		rows[id] = maps.Clone(h.rows[id])
	}
	return rows
}

// usedBytes is the size of the pages in use.
func (h *holeyStore) usedBytes() int64 {
	return int64(h.pg.Alloc.UsedPages()) * int64(h.pg.PageSize())
}

// compactOptions are those of stores in these tests: in half of them the free map has small groups.
func compactOptions(small bool) Options {
	o := testOptions(vfs.NewMemory())
	o.SmallGroups, o.CacheBytes, o.CheckpointBytes = small, 4<<20, 4<<20
	return o
}

// TestCompactMakesTheFileShorter: the rows are the same, the file has little more than its pages, no
// page moved twice, and a second call writes nothing. So it is in a store that was just opened.
func TestCompactMakesTheFileShorter(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, small := range []bool{false, true} {
		o := compactOptions(small)
		h := newHoleyStore(t, o)
		if small { // the session before was killed, and this one has no log yet
			o.FS = copyFiles(t, o.FS)
			h.Store = openTest(t, "/a.ebb", o)
			require.False(t, h.started)
		}
		before := h.pg.Alloc.FileBytes()
		progress := uint64(0)
		res, err := h.Compact(t.Context(), CompactOptions{Progress: func(moved, total uint64) {
			require.LessOrEqual(t, progress, moved)
			require.LessOrEqual(t, moved, total)
			progress = moved
		}})
		require.NoError(t, err)
		require.Equal(t, before, res.Before)
		require.Equal(t, h.pg.Alloc.FileBytes(), res.After)
		require.Equal(t, progress, res.Moved)
		require.Empty(t, res.LimitedBy)
		require.Zero(t, h.pg.Alloc.Ceiling())
		used := h.usedBytes()
		require.Greater(t, before, 4*used)
		require.LessOrEqual(t, res.After, used+used/10+100*int64(h.pg.PageSize()))
		require.LessOrEqual(t, int64(res.Moved)*int64(h.pg.PageSize()), used+used/10)
		h.requireRows(h.rows)

		_, writes := h.pg.Counters()
		checkpoints := h.checkpointer.count.Load()
		again, err := h.Compact(t.Context(), CompactOptions{})
		require.NoError(t, err)
		_, after := h.pg.Counters()
		require.LessOrEqual(t, h.checkpointer.count.Load(), checkpoints+1)
		require.Less(t, after-writes, uint64(20))
		require.Zero(t, again.Moved)
		require.LessOrEqual(t, again.After, again.Before)
		require.Less(t, again.Before-again.After, int64(2*compactSlack*h.pg.PageSize()))
	}
}

// TestCompactPunchesOnlyAtItsEnd: each checkpoint of a Compact punched the space that Compact then cut
// off, in hundreds of calls for which first reads of pages wait: the slowest hundredth of puts beside it
// took a hundred times as long as alone.
func TestCompactPunchesOnlyAtItsEnd(t *testing.T) {
	racetest.OneGoroutine(t)
	fs := &watchedFS{FS: vfs.NewMemory()}
	o := compactOptions(true)
	o.FS = fs
	h := newHoleyStore(t, o)
	steps, punches := 0, 0
	fs.punched = func(_, _ int64) { punches++ }
	_, err := h.Compact(t.Context(), CompactOptions{Progress: func(_, _ uint64) {
		steps++
		require.Zero(t, punches, "in step %d", steps)
	}})
	require.NoError(t, err)
	require.Greater(t, steps, 1)

	punches = 0
	update(t, h.Store, func(tx *Tx) {
		for id, rows := range h.rows {
			for key := range rows {
				mustDelete(t, tx, id, []byte(key))
			}
			clear(rows)
		}
	})
	require.NoError(t, h.Checkpoint(nil))
	require.Positive(t, punches, "a checkpoint after it punches")
	h.requireRows(h.rows)
}

// TestCompactBetweenCommits: commits, checkpoints, rollbacks and snapshots between the steps see the
// same rows as ever, and the ceiling keeps the file from growing.
func TestCompactBetweenCommits(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, seed := range []uint64{0, 3, 1, 2}[:racetest.Sample(4, 2)] {
		o := compactOptions(seed%2 == 0)
		h := newHoleyStore(t, o)
		h.rnd = rand.New(rand.NewPCG(seed, 1))
		type snapshot struct {
			tx   *Tx
			rows map[TreeID]map[string]string
		}
		var held []snapshot
		steps := 0
		between := func(uint64, uint64) {
			steps++
			switch h.rnd.IntN(12) {
			case 0, 1, 2:
				h.put(1 + h.rnd.IntN(4))
			case 3:
				require.NoError(t, h.Checkpoint(nil))
			case 4:
				tx, err := h.Begin(nil, false)
				require.NoError(t, err)
				held = append(held, snapshot{tx, h.copyRows()})
			case 5:
				if len(held) > 0 {
					for id, want := range held[0].rows {
						require.Equal(t, want, contents(t, held[0].tx, id))
					}
					held[0].tx.Rollback()
					held = held[1:]
				}
			case 6:
				tx, err := h.Begin(nil, true)
				require.NoError(t, err)
				mustPut(t, tx, 9, []byte("rolled back"), make([]byte, 20_000), 0)
				_, err = tx.DeleteRange(9, nil, nil)
				require.NoError(t, err)
				tx.Rollback()
			}
		}
		res, err := h.Compact(t.Context(), CompactOptions{Progress: between, StepPages: 1, Fill: seed > 1})
		require.NoError(t, err)
		require.Greater(t, steps, 30)
		h.requireRows(h.rows)
		for _, s := range held {
			for id, want := range s.rows {
				require.Equal(t, want, contents(t, s.tx, id))
			}
			s.tx.Rollback()
		}
		res, err = h.Compact(t.Context(), CompactOptions{})
		require.NoError(t, err)
		require.NotEqual(t, LimitSnapshots, res.LimitedBy, "none is held")
		used := h.usedBytes()
		require.LessOrEqual(t, res.After, used+used/10+100*int64(h.pg.PageSize()))
		h.requireRows(h.rows)
	}
}

// TestCompactIsCancelledBetweenSteps, at each of them: the rows are the same, allocations have no
// ceiling, and what was moved need not move again.
func TestCompactIsCancelledBetweenSteps(t *testing.T) {
	racetest.OneGoroutine(t)
	h := newHoleyStore(t, compactOptions(true))
	moved, calls := uint64(0), 0
	for done := false; !done; calls++ {
		ctx, cancel := context.WithCancel(t.Context())
		steps := 0
		res, err := h.Compact(ctx, CompactOptions{StepPages: 1, Progress: func(uint64, uint64) {
			if steps++; steps == 1+calls%4 {
				cancel()
			}
		}})
		cancel()
		if done = err == nil; !done {
			require.ErrorIs(t, err, context.Canceled)
			require.LessOrEqual(t, steps, 1+calls%4)
		}
		require.Zero(t, h.pg.Alloc.Ceiling())
		moved += res.Moved
		if calls%8 == 0 || done {
			h.requireRows(h.rows)
		}
		require.Less(t, calls, 1000)
	}
	used := h.usedBytes()
	require.Greater(t, calls, 15)
	require.LessOrEqual(t, int64(moved)*int64(h.pg.PageSize()), used+used/4)
	require.LessOrEqual(t, h.pg.Alloc.FileBytes(), used+used/10+100*int64(h.pg.PageSize()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Compact(ctx, CompactOptions{})
	require.ErrorIs(t, err, context.Canceled)
}

// TestCompactDoesNotWaitForACheckpoint that is written when its context ends.
func TestCompactDoesNotWaitForACheckpoint(t *testing.T) {
	o := compactOptions(false)
	o.Inline = false
	ctx, cancel := context.WithCancel(t.Context())
	h := newHoleyStore(t, o)
	require.NoError(t, lock(nil, h.checkpointer.mu))
	released := make(chan struct{})
	time.AfterFunc(time.Millisecond, cancel)
	go func() {
		defer close(released)
		<-ctx.Done()
		<-h.checkpointer.mu
	}()
	_, err := h.Compact(ctx, CompactOptions{})
	require.ErrorIs(t, err, context.Canceled)
	<-released
	h.checkpointer.background.wait()
	h.requireRows(h.rows)
}

// TestCompactReportsAPinnedTail: a snapshot that reads pages at the end of the file is not waited
// for; when it has ended, the next call cuts them off and moves nothing twice.
func TestCompactReportsAPinnedTail(t *testing.T) {
	racetest.OneGoroutine(t)
	h := newHoleyStore(t, compactOptions(false))
	require.NoError(t, h.Checkpoint(nil))
	tx, err := h.Begin(nil, false)
	require.NoError(t, err)
	want := h.copyRows()
	h.put(10)
	res, err := h.Compact(t.Context(), CompactOptions{})
	require.NoError(t, err)
	require.Equal(t, LimitSnapshots, res.LimitedBy)
	require.Greater(t, res.Pinned, res.Moved/2)
	require.Greater(t, res.After, 3*h.usedBytes())
	for id := range want {
		require.Equal(t, want[id], contents(t, tx, id))
	}
	tx.Rollback()
	moved := res.Moved
	res, err = h.Compact(t.Context(), CompactOptions{})
	require.NoError(t, err)
	require.Empty(t, res.LimitedBy)
	used := h.usedBytes()
	require.LessOrEqual(t, res.After, used+used/10+100*int64(h.pg.PageSize()))
	require.Less(t, res.Moved, moved/4, "pages that were moved while the tail was pinned stay")
	h.requireRows(h.rows)
}

// TestCompactMovesLargeValues that fill the file but for holes shorter than they are.
func TestCompactMovesLargeValues(t *testing.T) {
	racetest.OneGoroutine(t)
	o := compactOptions(false)
	h := &holeyStore{Store: openTest(t, "/a.ebb", o), t: t, rows: map[TreeID]map[string]string{9: {}}}
	put := func(key string, size int) {
		update(t, h.Store, func(tx *Tx) {
			mustPut(t, tx, 9, []byte(key), make([]byte, size), 0)
		})
		h.rows[9][key] = string(make([]byte, size))
	}
	drop := func(key string) {
		update(t, h.Store, func(tx *Tx) {
			mustDelete(t, tx, 9, []byte(key))
		})
		delete(h.rows[9], key)
	}
	update(t, h.Store, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	for i := range 40 {
		put(fmt.Sprintf("small %02d", i), 40_000)
		put(fmt.Sprintf("large %02d", i), 300_000)
	}
	for i := range 40 {
		drop(fmt.Sprintf("small %02d", i))
	}
	for i := range 20 {
		drop(fmt.Sprintf("large %02d", i*2))
	}
	res, err := h.Compact(t.Context(), CompactOptions{})
	require.NoError(t, err)
	used := h.usedBytes()
	require.LessOrEqual(t, res.After, used+used/10+400_000, "%s", res.LimitedBy)
	h.requireRows(h.rows)
}

// TestCompactRefusals: a store that is closed, or read-only.
func TestCompactRefusals(t *testing.T) {
	fs := vfs.NewMemory()
	s := mustOpen(t, testOptions(fs))
	require.NoError(t, s.Close())
	_, err := s.Compact(t.Context(), CompactOptions{})
	require.ErrorIs(t, err, ErrClosed)
	o := testOptions(fs)
	o.ReadOnly = true
	s = openTest(t, "/a.ebb", o)
	_, err = s.Compact(t.Context(), CompactOptions{})
	require.ErrorIs(t, err, ErrReadOnlyDB)
}
