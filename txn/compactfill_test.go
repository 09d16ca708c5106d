package txn

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/racetest"
)

// TestFillSavesPages: the rows are the same, as many pages are in use as Compact says, and a second
// call writes nothing. So it is in a store that was just opened, and with snapshots of before.
func TestFillSavesPages(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, small := range []bool{false, true} {
		o := compactOptions(small)
		h := newHoleyStore(t, o)
		if small { // the session before was killed, and this one has no log yet
			o.FS = copyFiles(t, o.FS)
			h.Store = openTest(t, "/a.ebb", o)
			require.False(t, h.started)
		}
		require.NoError(t, h.Checkpoint(nil))
		used := h.pg.Alloc.UsedPages()
		tx, err := h.Begin(nil, false)
		require.NoError(t, err)
		progress := uint64(0)
		res, err := h.Compact(t.Context(), CompactOptions{Fill: true, Progress: func(done, total uint64) {
			require.LessOrEqual(t, progress, done)
			require.LessOrEqual(t, done, total)
			progress = done
		}})
		require.NoError(t, err)
		require.Greater(t, res.Saved, used/8)
		for id, want := range h.rows {
			require.Equal(t, want, contents(t, tx, id), "of the snapshot")
		}
		tx.Rollback()
		_, err = h.Compact(t.Context(), CompactOptions{})
		require.NoError(t, err)
		if now := h.pg.Alloc.UsedPages(); small { // the free map of a shorter file is smaller
			require.LessOrEqual(t, now, used-res.Saved+4)
		} else {
			require.InDelta(t, used-res.Saved, now, 4)
		}
		h.requireRows(h.rows)

		_, writes := h.pg.Counters()
		again, err := h.Compact(t.Context(), CompactOptions{Fill: true})
		require.NoError(t, err)
		_, after := h.pg.Counters()
		require.Less(t, after-writes, uint64(20))
		require.Zero(t, again.Saved)
		require.Zero(t, again.Moved)
	}
}

// TestFillOfAFullStoreStartsNoLog: a session in which Compact finds nothing to do writes nothing.
func TestFillOfAFullStoreStartsNoLog(t *testing.T) {
	racetest.OneGoroutine(t)
	o := compactOptions(false)
	h := newHoleyStore(t, o)
	for range 2 {
		_, err := h.Compact(t.Context(), CompactOptions{Fill: true})
		require.NoError(t, err)
	}
	require.NoError(t, h.Close())
	h.Store = openTest(t, "/a.ebb", o)
	res, err := h.Compact(t.Context(), CompactOptions{Fill: true})
	require.NoError(t, err)
	require.Zero(t, res.Saved)
	require.False(t, h.started)
	_, writes := h.pg.Counters()
	require.Zero(t, writes)
}

// TestFillIsCancelledBetweenSteps, at each of them: the rows are the same, and what was joined stays so.
func TestFillIsCancelledBetweenSteps(t *testing.T) {
	racetest.OneGoroutine(t)
	h := newHoleyStore(t, compactOptions(true))
	saved, calls := uint64(0), 0
	for done := false; !done; calls++ {
		ctx, cancel := context.WithCancel(t.Context())
		steps := 0
		res, err := h.Compact(ctx, CompactOptions{StepPages: 8, Fill: true, Progress: func(uint64, uint64) {
			if steps++; steps == 1+calls {
				cancel()
			}
		}})
		cancel()
		if done = err == nil; !done {
			require.ErrorIs(t, err, context.Canceled)
		}
		saved += res.Saved
		if calls%8 == 0 || done {
			h.requireRows(h.rows)
		}
	}
	require.Greater(t, calls, 10)
	require.Greater(t, saved, h.pg.Alloc.UsedPages()/8)
}

// TestFillLeavesSpaceForAReplay: on a disk that is full, puts change each leaf that the fill pass has
// joined, in its new place. Its log, replayed on the leaves as they were, copies more of them, and what
// a killed process leaves opens on a disk as full.
func TestFillLeavesSpaceForAReplay(t *testing.T) {
	racetest.OneGoroutine(t)
	disk := crashfs.New(crashfs.Options{})
	o := compactOptions(false)
	o.FS, o.CacheBytes, o.CheckpointBytes = disk, 64<<20, 64<<20
	h := &holeyStore{Store: openTest(t, "/a.ebb", o), t: t, rows: map[TreeID]map[string]string{9: {}}}
	update(t, h.Store, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	key := func(i int) string { return fmt.Sprintf("%06d", i) }
	put := func(i, size int) func(*Tx) {
		return func(tx *Tx) {
			mustPut(t, tx, 9, []byte(key(i)), make([]byte, size), 0)
			h.rows[9][key(i)] = string(make([]byte, size))
		}
	}
	for i := range 4000 {
		update(t, h.Store, put(i, 300))
	}
	require.NoError(t, h.Checkpoint(nil))
	for i := range 4000 {
		if i%3 > 0 {
			h.delete(9, key(i))
		}
	}
	require.NoError(t, h.Checkpoint(nil))
	disk.SetCapacity(disk.Used())
	defer disk.SetCapacity(0)
	ctx, cancel := context.WithCancel(t.Context())
	res, err := h.Compact(ctx, CompactOptions{Fill: true, Progress: func(done, total uint64) {
		if done > total/2 {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.Greater(t, res.Saved, uint64(40))
	changed := 0
	for i := 0; i < 4000; i += 3 {
		changed += untilFull(t, h.Store, func(tx *Tx, n int) error {
			if n > 0 {
				return ErrNoSpace
			}
			_, err := tx.Put(9, []byte(key(i)), make([]byte, 300), 0)
			return err
		})
	}
	require.Greater(t, changed, 500)
	filled := untilFull(t, h.Store, func(tx *Tx, i int) error {
		_, err := tx.Put(9, fmt.Appendf(nil, "x%04d", i), make([]byte, 3000), 0)
		return err
	})
	for i := range filled {
		h.rows[9][fmt.Sprintf("x%04d", i)] = string(make([]byte, 3000))
	}
	killed := &holeyStore{Store: openStillFull(t, disk, o), t: t}
	killed.requireRows(h.rows)
	require.NoError(t, killed.Close())
}

// TestFillOfASmallStoreEndsBesideCommits: in a store of a few pages one saved page was worth a further
// walk, and commits beside each walk made pages that could be joined again. Compact did not end.
func TestFillOfASmallStoreEndsBesideCommits(t *testing.T) {
	racetest.OneGoroutine(t)
	o := testOptions(crashfs.New(crashfs.Options{Untraced: true}))
	s := openTest(t, "/a.ebb", o)
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	putRows(t, s, 9, "a", 20, 900)
	steps := 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := s.Compact(ctx, CompactOptions{Fill: true, StepPages: 1, Progress: func(uint64, uint64) {
		if steps++; steps == 3_000 {
			cancel()
		}
		update(t, s, func(tx *Tx) { // fills leaves, and leaves one row in each
			for i := range 40 {
				mustPut(t, tx, 9, fmt.Appendf(nil, "a%04d", i), make([]byte, 900), 0)
			}
		})
		update(t, s, func(tx *Tx) {
			for i := range 40 {
				if i%3 > 0 {
					mustDelete(t, tx, 9, fmt.Appendf(nil, "a%04d", i))
				}
			}
		})
	}})
	require.NoError(t, err)
	require.Less(t, steps, 3_000)
}
