package txn

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

// TestCloseReturnsDeletedSpace deletes nearly everything from stores of one large value, of many
// small ones, and of large values followed by small ones: the file is small after Close.
func TestCloseReturnsDeletedSpace(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for _, c := range []struct {
		name string
		size int
		n    int
		keep int // every keep-th row stays; 0: none
	}{
		{"one large value", 8 << 20, 1, 0},
		{"many small values", 500, 20000, 0},
		{"many small values, some stay", 500, 20000, 200},
		{"large values, some stay", 100 << 10, 100, 50},
	} {
		for _, checkpoint := range []bool{true, false}[:racetest.Sample(2, 1)] {
			t.Run(c.name, func(t *testing.T) {
				fs := vfs.NewMemory()
				o := testOptions(fs)
				o.CheckpointBytes = 0
				s, err := Open("/s.ebb", o)
				require.NoError(t, err)
				key := make([]byte, 16)
				update(t, s, func(tx *Tx) {
					for i := range c.n {
						mustPut(t, tx, CatalogTree, benchKey(key, uint64(i)), make([]byte, c.size), 0)
					}
				})
				if checkpoint {
					require.NoError(t, s.Checkpoint(nil))
				}
				stay := 0
				update(t, s, func(tx *Tx) {
					for i := range c.n {
						if c.keep > 0 && i%c.keep == 0 {
							stay++
							continue
						}
						mustDelete(t, tx, CatalogTree, benchKey(key, uint64(i)))
					}
				})
				if checkpoint {
					require.NoError(t, s.Checkpoint(nil))
				}
				require.NoError(t, s.Close())
				info, err := fs.Stat("/s.ebb")
				require.NoError(t, err)
				require.LessOrEqual(t, info.Size, int64(shrinkMinBytes+2*stay*c.size))
				s = openTest(t, "/s.ebb", o)
				tx := begin(t, s, false)
				require.Len(t, contents(t, tx, CatalogTree), stay)
				tx.Rollback()
			})
		}
	}
}

// sparse is a store of some thousand pages of which a third, scattered, is in use.
func sparse(t *testing.T, o Options) *Store {
	s := openTest(t, "/a.ebb", o)
	key := make([]byte, 16)
	update(t, s, func(tx *Tx) {
		for i := range 20_000 {
			mustPut(t, tx, CatalogTree, benchKey(key, uint64(i)), make([]byte, 900), 0)
		}
	})
	require.NoError(t, s.Checkpoint(nil))
	update(t, s, func(tx *Tx) {
		for i := range 20_000 {
			if i/8%3 > 0 {
				mustDelete(t, tx, CatalogTree, benchKey(key, uint64(i)))
			}
		}
	})
	for range 2 {
		require.NoError(t, s.Checkpoint(nil))
	}
	return s
}

// TestCompactionStepMovesPagesAtTheEnd: a step with a budget of a few pages moves those at the end.
func TestCompactionStepMovesPagesAtTheEnd(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	s := sparse(t, testOptions(vfs.NewMemory()))
	before := s.pg.Alloc.Pages()
	require.Greater(t, before, 2*s.pg.Alloc.UsedPages())
	tail, err := s.pg.Alloc.Tail(200)
	require.NoError(t, err)
	require.Less(t, uint64(tail), before-300, "of the last pages only some are in use")
	require.NoError(t, s.lockWriter(nil))
	r, err := s.checkpointer.newRelocation(200)
	require.NoError(t, err)
	moved, err := r.step(1000)
	require.NoError(t, err)
	require.True(t, r.done)
	require.LessOrEqual(t, moved, 200+int(before-uint64(tail))/100, "and the branches above them")
	for range 2 { // pages that the first step moved are free after it
		require.NoError(t, s.checkpointer.runLocked())
	}
	s.unlockWriter()
	require.LessOrEqual(t, s.pg.Alloc.Pages(), uint64(tail)+64)
	requireSound(t, s)
}

// TestCloseCompactsInSteps that fit the cache, until the file is compact.
func TestCloseCompactsInSteps(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	fs := vfs.NewMemory()
	o := testOptions(fs)
	o.CacheBytes = 1 << 20
	s := sparse(t, o)
	used := s.pg.Alloc.UsedPages() * uint64(s.pg.PageSize())
	require.Greater(t, used, uint64(4*o.CacheBytes))
	tx := begin(t, s, false)
	want := contents(t, tx, CatalogTree)
	tx.Rollback()
	require.NoError(t, s.Close())
	info, err := fs.Stat("/a.ebb")
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size, int64(used)*(100+shrinkPercent)/100)
	s = openTest(t, "/a.ebb", o)
	tx = begin(t, s, false)
	require.Equal(t, want, contents(t, tx, CatalogTree))
	tx.Rollback()
	requireSound(t, s)
}

// unwrittenPages is a store of delta pages, or of frames if the cache is large. Pages without a
// place in the file have the highest numbers, written pages come before them, and free pages are at
// the low end.
func unwrittenPages(t *testing.T, cache int64) *deltaTest {
	s := mustOpen(t, Options{FS: vfs.NewMemory(), CacheBytes: cache, CheckpointBytes: 1 << 30})
	p := &deltaTest{t, s, map[string]string{}, rand.New(rand.NewPCG(1, 2))}
	update(t, s, func(tx *Tx) {
		require.NoError(t, tx.Create(9))
		require.NoError(t, tx.Create(10))
		for i := range 2000 {
			mustPut(t, tx, 10, fmt.Appendf(nil, "%04d", i), make([]byte, 900), 0)
		}
	})
	p.put(10000)
	require.NoError(t, s.Checkpoint(nil))
	reader := p.reader() // keeps the pages that the next transaction frees
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Clear(10)) })
	require.NoError(t, s.Checkpoint(nil))
	p.put(200)
	reader.Rollback()
	return p
}

// TestCloseWritesEachPageOnce, though all of them move: unwritten pages get their numbers first.
func TestCloseWritesEachPageOnce(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, cache := range []int64{512 << 10, 64 << 20} { // leaves are delta pages, frames
		p := unwrittenPages(t, cache)
		used := p.s.pg.Alloc.UsedPages()
		_, before := p.s.pg.Counters()
		require.NoError(t, p.s.Close())
		_, after := p.s.pg.Counters()
		written := after - before
		require.Greater(t, written, used/2)
		require.Less(
			t,
			written,
			used+used/8,
			"the free map, and branches above what is moved, are written more often",
		)
	}
}

// TestUnwrittenPagesMoveWithoutIO: delta pages and frames get numbers at the low end before they
// are written, in steps, and the written pages stay.
func TestUnwrittenPagesMoveWithoutIO(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, cache := range []int64{512 << 10, 64 << 20} { // leaves are delta pages, frames
		p := unwrittenPages(t, cache)
		s := p.s

		require.NoError(t, s.lockWriter(nil))
		reclaimEverything(t, s)
		deltas, dirty := s.pg.Pool.DeltaBytes(), s.pg.Alloc.DirtyBytes()
		require.Equal(t, cache == 512<<10, deltas > 0)
		before, fill := pagesOf(t, s), s.pg.Alloc.Fill()
		require.Less(t, uint64(fill), s.pg.Alloc.Pages()/2)
		require.NoError(t, s.checkpointer.movePages(20))
		require.LessOrEqual(t, s.pg.Pool.DeltaBytes(), deltas+deltas/4, "steps leave nothing behind")
		require.Equal(t, dirty, s.pg.Alloc.DirtyBytes())
		moved := 0
		for ref := range pagesOf(t, s) {
			if before[ref] {
				require.True(t, ref.Epoch < s.epoch || ref.Pgid < fill)
				continue
			}
			require.Equal(t, s.epoch, ref.Epoch)
			require.Less(t, ref.Pgid, fill)
			moved++
		}
		require.Greater(t, moved, 100)
		s.unlockWriter()
		tx := p.reader()
		p.requireRows(tx, p.rows)
		tx.Rollback()
		requireSound(t, s)
		require.NoError(t, s.Close())
	}
}

// pagesOf lists the pages of tree 9. Writer lock.
func pagesOf(t *testing.T, s *Store) map[pager.Ref]bool {
	refs := map[pager.Ref]bool{}
	s.w.begin()
	tr, _ := s.w.trees.get(9)
	eachPage(t, s.w.Page, tr, func(ref pager.Ref, _ []byte) { refs[ref] = true })
	s.w.rollback()
	return refs
}

// eachPage visits all pages of a tree.
func eachPage(
	t *testing.T, page func(pager.Ref) ([]byte, error), tr tree.Tree, visit func(pager.Ref, []byte),
) {
	if tr.Depth == 0 {
		return
	}
	b, err := page(tr.Root)
	require.NoError(t, err)
	visit(tr.Root, b)
	if tr.Depth > 1 {
		tree.EachChild(b, func(_ []byte, ref pager.Ref, rows uint64) {
			eachPage(t, page, tree.Tree{Root: ref, Depth: tr.Depth - 1, Rows: rows}, visit)
		})
	}
}

// TestRolledBackPagesAreReused: pages that a rolled back transaction has allocated, or one rolled
// back to a savepoint, are in no version and in no free map. Were they not freed at once, the file
// would grow with each rollback until it is opened again.
func TestRolledBackPagesAreReused(t *testing.T) {
	s := openTest(t, "/a.ebb", testOptions(vfs.NewMemory()))
	update(t, s, func(tx *Tx) { require.NoError(t, tx.Create(9)) })
	fill := func(tx *Tx) {
		for i := range 300 {
			mustPut(t, tx, 9, fmt.Appendf(nil, "%04d", i), make([]byte, 500), 0)
		}
		mustPut(t, tx, 9, []byte("large"), make([]byte, 50_000), 0)
	}
	for name, undo := range map[string]func(tx *Tx){
		"rollback": func(tx *Tx) {
			fill(tx)
			tx.Rollback()
		},
		"savepoint": func(tx *Tx) {
			sp := tx.Savepoint()
			fill(tx)
			require.NoError(t, tx.RollbackTo(sp))
			tx.Rollback()
		},
	} {
		t.Run(name, func(t *testing.T) {
			pages := func() uint64 {
				tx := begin(t, s, true)
				undo(tx)
				return s.pg.Alloc.Pages()
			}
			pages()
			first := pages()
			for range 20 {
				require.Equal(t, first, pages())
			}
		})
	}
}
