package txn

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// workerWriter is a page writer of an open transaction that shares the allocator with others.
func workerWriter(t *testing.T, o Options) (h *pageWriter, tx *Tx) {
	t.Helper()
	s := openTest(t, "/a.ebb", o)
	fillTree(t, s, 3000)
	tx, err := s.Begin(t.Context(), true)
	require.NoError(t, err)
	w, err := tx.change()
	require.NoError(t, err)
	w.allocMu = new(sync.Mutex)
	return &w.pageWriter, tx
}

// TestWorkerReservesPagesInBatches: it takes the lock once for several. Unused ones are freed with
// the transaction, committed or not.
func TestWorkerReservesPagesInBatches(t *testing.T) {
	h, tx := workerWriter(t, testOptions(vfs.NewMemory()))
	tx.Rollback()
	s, w := h.s, h.w
	used, pages := s.pg.Alloc.UsedPages(), uint64(0)
	for round := range 40 {
		tx := begin(t, s, true)
		mustPut(t, tx, 9, batchKey(1), []byte("value"), 0)
		w.allocMu = new(sync.Mutex)
		w.spare = w.spare[:0]
		require.True(t, s.pg.Alloc.HasSpace(8*allocBatch, h.policy))
		first, _, err := h.allocate()
		require.NoError(t, err)
		require.Len(t, h.spare, allocBatch-1)
		refs := []pager.Ref{first}
		w.allocMu.Lock()
		for range allocBatch - 1 {
			ref, b, err := h.allocate()
			require.NoError(t, err)
			require.Len(t, b, s.pg.PageSize())
			require.True(t, h.Owned(ref))
			require.NotContains(t, refs, ref)
			refs = append(refs, ref)
		}
		w.allocMu.Unlock()
		ref, _, err := h.allocate()
		require.NoError(t, err)
		require.Len(t, h.spare, allocBatch-1)
		for _, ref := range append(refs, ref) {
			require.NoError(t, h.Free(ref))
		}
		w.allocMu = nil
		if round%2 == 0 {
			tx.Rollback()
		} else {
			require.NoError(t, tx.Commit(NoSync))
		}
		require.Equal(t, used, s.pg.Alloc.UsedPages())
		if round == 5 {
			pages = s.pg.Alloc.Pages()
		}
	}
	require.LessOrEqual(t, s.pg.Alloc.Pages(), pages, "some were lost every time")
	s.Check(t.Context(), func(p Problem) bool { t.Error(p); return true })
}

// TestWorkerReservesOnlyFreePages: it reserves no page that the file would have to grow for, or that
// is kept for deletions.
func TestWorkerReservesOnlyFreePages(t *testing.T) {
	o := testOptions(vfs.NewMemory())
	o.MaxBytes = 2 << 20
	h, tx := workerWriter(t, o)
	defer tx.Rollback()
	defer func() { h.w.allocMu = nil }()
	ahead := 0
	for {
		there := h.s.pg.Alloc.HasFreePages(allocBatch, h.policy)
		size := h.s.pg.Alloc.FileBytes()
		_, _, err := h.allocate()
		if err != nil {
			var no *allocError
			require.ErrorAs(t, err, &no)
			break
		}
		if there && len(h.spare) > 0 {
			ahead++
			h.spare = h.spare[:0]
			require.Equal(t, size, h.s.pg.Alloc.FileBytes())
		}
	}
	require.Greater(t, ahead, 10)
	require.Empty(t, h.spare)
	h.policy.Purpose = pager.ForDelete
	for range 20 {
		_, _, err := h.allocate()
		require.NoError(t, err)
		require.Empty(t, h.spare)
	}
}

// TestUnusedReservedPagesAreReused by the writer's next allocations, so that reserved pages do not
// accumulate with every batch of a transaction.
func TestUnusedReservedPagesAreReused(t *testing.T) {
	o := testOptions(vfs.NewMemory())
	o.ManyFrom, o.CacheBytes = 2, 16<<20
	s := openTest(t, "/a.ebb", o)
	fillTree(t, s, 9000)
	tx := begin(t, s, true)
	defer tx.Rollback()
	rnd, together, most := rand.New(rand.NewPCG(1, 9)), 0, 0
	for range 300 {
		changes := make([]Change, 60)
		for i := range changes { // new rows: leaves are split all the time
			changes[i] = Change{Key: batchKey(10_000 + rnd.IntN(1<<30)), Value: make([]byte, 300)}
		}
		require.NoError(t, tx.Apply(9, changes, nil))
		if s.w.parallel != nil && s.w.parallel.applied {
			together++
		}
		most = max(most, len(s.w.spare))
	}
	require.Greater(t, together, 100)
	require.Less(t, most, 100)
}

// TestWorkerFreesOnlyPagesOfItsTransaction: without the lock, in the group that it cached last, as
// long as the tree is not damaged.
func TestWorkerFreesOnlyPagesOfItsTransaction(t *testing.T) {
	h, tx := workerWriter(t, testOptions(vfs.NewMemory()))
	defer tx.Rollback()
	pages := h.s.pg.Alloc.Pages()
	require.NoError(t, h.loadFreeMapGroup(pager.Ref{Pgid: 5}, 1))
	h.w.allocMu.Lock()
	require.NoError(t, h.loadFreeMapGroup(pager.Ref{Pgid: 2}, 1))
	require.NoError(t, h.loadFreeMapGroup(pager.Ref{Pgid: pager.Pgid(pages - 1)}, 1))
	h.w.allocMu.Unlock()
	require.ErrorIs(t, h.loadFreeMapGroup(pager.Ref{Pgid: 1}, 1), badfile.ErrCorrupt)
	require.ErrorIs(t, h.loadFreeMapGroup(pager.Ref{Pgid: pager.Pgid(pages)}, 1), badfile.ErrCorrupt)
	require.ErrorIs(t, h.loadFreeMapGroup(pager.Ref{Pgid: 1 << 40}, 1), badfile.ErrCorrupt)
	h.freed = make([]freedPages, pages)
	require.ErrorIs(t, h.loadFreeMapGroup(pager.Ref{Pgid: 5}, 1), badfile.ErrCorrupt, "so many were freed")
	h.freed = h.freed[:0]
	h.w.allocMu = nil
}

// TestWorkersRepointBranchesInPlace: no branch is copied for a row that goes into a delta. A reader
// that begins meanwhile, and a rollback, find all branches unchanged; changes after the reader began
// copy them.
func TestWorkersRepointBranchesInPlace(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	const rows = 60_000 // below some thirty branches, one of which is copied for each part
	o := testOptions(vfs.NewMemory())
	o.ManyFrom, o.CacheBytes, o.CheckpointBytes = 2, 8<<20, 1<<30
	s := openTest(t, "/a.ebb", o)
	rnd := rand.New(rand.NewPCG(5, 5))
	inParallel, times := false, 0
	change := func(tx *Tx) {
		changes := make([]Change, 400)
		for i, k := range rnd.Perm(rows)[:len(changes)] {
			changes[i] = Change{Key: batchKey(k), Value: bytes.Repeat([]byte{byte(rnd.Uint32())}, 100)}
		}
		if s.w.parallel != nil {
			s.w.parallel.applied = false
		}
		require.NoError(t, tx.Apply(9, changes, nil))
		// not each time there are several: see workersFor
		inParallel = s.w.parallel != nil && s.w.parallel.applied
	}
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(9))
		for i := range rows {
			mustPut(t, tx, 9, batchKey(i), make([]byte, 100), 0)
		}
	})
	require.NoError(t, s.Checkpoint(t.Context()))
	framed := func(tx *Tx) (leaves, branches int) {
		tx.w.allocated.each(0, func(r pageRun) bool {
			if s.pg.Pool.InFrame(r.id) && s.pg.Pool.Owner(r.id) >= tx.w.firstOwner {
				b, err := s.pg.Frame(pager.Ref{Pgid: r.id, Epoch: s.epoch}, s.w.View)
				require.NoError(t, err)
				if h := pager.ReadHeader(b); h.Kind == pager.KindBranch {
					branches++
				} else {
					leaves++
				}
			}
			return true
		})
		return leaves, branches
	}
	for round := range 12 {
		if round == 6 { // branches are copied once after each checkpoint
			require.NoError(t, s.Checkpoint(t.Context()))
		}
		update(t, s, change)
		var was map[string]string
		view(t, s, func(tx *Tx) { was = contents(t, tx, 9) })
		tx := begin(t, s, true)
		pages := frames(t, s)
		change(tx)
		leaves, branches := framed(tx)
		require.Greater(t, len(tx.w.freed), 300, "leaves got deltas, and these were replaced")
		if inParallel {
			times++
			// A leaf whose delta would be too large is written whole, and its branch is copied.
			require.LessOrEqual(t, branches, leaves+1, "the root, and a branch above each new leaf")
			require.Less(t, branches, 16, "most branches are changed in place")
		} else {
			require.Greater(t, branches, 24)
		}
		if round%3 == 0 {
			tx.Rollback()
			require.True(t, maps.EqualFunc(pages, frames(t, s), bytes.Equal))
			view(t, s, func(tx *Tx) { require.True(t, maps.Equal(was, contents(t, tx, 9))) })
			continue
		}
		r := begin(t, s, false)
		require.True(t, maps.Equal(was, contents(t, r, 9)))
		change(tx)
		_, branches = framed(tx)
		require.Greater(t, branches, 24, "branches are copied since the reader has come")
		own := contents(t, tx, 9)
		if round%3 == 1 {
			require.NoError(t, tx.Commit(Sync))
		} else {
			tx.Rollback()
			own = was
		}
		view(t, s, func(tx *Tx) { require.True(t, maps.Equal(own, contents(t, tx, 9))) })
		update(t, s, change)
		require.True(t, maps.Equal(was, contents(t, r, 9)))
		r.Rollback()
	}
	require.Greater(t, times, 3)
	requireSound(t, s)
}

// freezing is a page writer beside which a reader begins as soon as a leaf has a delta.
type freezing struct{ *pageWriter }

func (f freezing) StoreDelta(ref, base pager.Ref, changes []byte) (pager.Ref, error) {
	fresh, err := f.pageWriter.StoreDelta(ref, base, changes)
	f.s.pg.Undo.Seal()
	return fresh, err
}

// TestReaderThatBeginsBetweenADeltaAndItsBranch: the row is put once, and counted once, in a branch
// that is copied.
func TestReaderThatBeginsBetweenADeltaAndItsBranch(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for name, key := range map[string][]byte{"new": []byte("key-5000-x"),
		"undone": []byte("key-5000-x"), "replaced": batchKey(77)} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(vfs.NewMemory())
			o.CacheBytes, o.CheckpointBytes = 1<<20, 1<<30
			s := openTest(t, "/a.ebb", o)
			rows := fillTree(t, s, 40_000)
			require.NoError(t, s.Checkpoint(t.Context()))
			update(t, s, func(tx *Tx) { // below each branch: they are of this epoch now
				for i := range 200 {
					mustPut(t, tx, 9, batchKey(i*199), []byte("value"), 0)
				}
			})
			tx := begin(t, s, true)
			w, err := tx.change()
			require.NoError(t, err)
			require.NotNil(t, w.Undo())
			s.pg.Undo.Split(1)
			w.allocMu = new(sync.Mutex)
			root, _ := w.trees.get(9)
			was, err := tree.Put(freezing{&w.pageWriter}, &root, key, []byte("two"), 0)
			require.NoError(t, err)
			require.Equal(t, name == "replaced", was.Found)
			w.allocMu = nil
			s.pg.Undo.Merge()
			w.set(9, root)
			require.NoError(t, w.logPut(9, key, []byte("two"), 0))
			before := maps.Clone(rows)
			rows[string(key)] = "two"
			require.True(t, maps.Equal(rows, contents(t, tx, 9)))
			rank, err := tx.Rank(9, []byte("l"))
			require.NoError(t, err)
			require.EqualValues(t, len(rows), rank)
			if name == "undone" {
				tx.Rollback()
				rows = before
			} else {
				require.NoError(t, tx.Commit(Sync))
			}
			view(t, s, func(tx *Tx) { require.True(t, maps.Equal(rows, contents(t, tx, 9))) })
			requireSound(t, s)
		})
	}
}
