package btree

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// pageCounter counts page reads.
type pageCounter struct {
	*memory
	pages int
}

func (l *pageCounter) Page(ref pager.Ref) ([]byte, error) {
	l.pages++
	return l.memory.Page(ref)
}

func (l *pageCounter) Leaf(ref pager.Ref) (b, changes []byte, err error) {
	l.pages++
	return l.memory.Leaf(ref)
}

// behind returns a tree of a few hundred pages after more free ones, and the page number that is
// the end of the file once all pages have moved.
func behind(t *testing.T) (m *memory, tree Tree, limit pager.Pgid) {
	m = newMemory(4096)
	m.low = true
	first := load(t, m, 12_000, 60)
	tree = load(t, m, 9000, 60)
	done, err := FreeTree(m, &first, 1<<30)
	require.NoError(t, err)
	require.True(t, done)
	m.commit(t)
	limit = pager.Pgid(2 + m.inUse() + 2*int(tree.Depth)) // a step needs the old path until commit
	return m, tree, limit
}

// refs lists the pages of a tree.
func refs(t *testing.T, m *memory, tree Tree) map[pager.Ref]bool {
	all := map[pager.Ref]bool{}
	require.NoError(t, Check(m, tree, func(ref pager.Ref, _ int) error {
		all[ref] = true
		return nil
	}, func(_ pager.Ref, detail string) { require.Fail(t, detail) }))
	return all
}

// TestRelocateContinuesAtNext: the steps read each page about once, and skip none.
func TestRelocateContinuesAtNext(t *testing.T) {
	m, tree, limit := behind(t)
	pages := len(refs(t, m, tree))
	l := &pageCounter{memory: m}
	step, steps, total := Move{Limit: limit, Most: 7}, 0, 0
	for {
		moved, err := Relocate(l, &tree, step)
		require.NoError(t, err)
		require.False(t, moved.Full)
		m.commit(t)
		total += moved.Pages
		steps++
		if step.From = moved.Next; moved.Next == nil {
			break
		}
	}
	for ref := range refs(t, m, tree) {
		require.Less(t, ref.Pgid, limit)
	}
	require.Greater(t, steps, pages/14)
	require.GreaterOrEqual(t, total, pages)
	require.Less(t, l.pages, 2*pages+4*steps*int(tree.Depth))
}

// TestRelocateInStepsOfFewReads: Compact did not end. A step whose last read was that of a branch ended
// before the branch's first child, whose key a branch does not have, and the next step began with the
// first key of the tree.
func TestRelocateInStepsOfFewReads(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	for more := range 12 {
		m := newMemory(4096)
		m.low = true
		// long keys: many branches; values in extents: leaves are read
		loadLong := func(rows int) (tree Tree) {
			for i := range rows {
				_, err := Put(m, &tree, fmt.Appendf(nil, "%0250d", i), make([]byte, 2000+i%3*4000), 0)
				require.NoError(t, err)
			}
			m.commit(t)
			return tree
		}
		first, tree := loadLong(1500), loadLong(1000)
		require.Greater(t, tree.Depth, uint8(2))
		done, err := FreeTree(m, &first, 1<<30)
		require.NoError(t, err)
		require.True(t, done)
		m.commit(t)
		pages := len(refs(t, m, tree))
		limit := pager.Pgid(2 + m.inUse() + pages/8)
		step := Move{Limit: limit, Most: 1 << 30, Reads: int(tree.Depth) + 1 + more}
		for steps := 0; ; steps++ {
			require.LessOrEqual(t, steps, 2*pages, "reads %d: it does not end", step.Reads)
			moved, err := Relocate(m, &tree, step)
			require.NoError(t, err)
			require.LessOrEqual(t, moved.Read, step.Reads)
			require.False(t, moved.Full)
			m.commit(t)
			if step.From = moved.Next; moved.Next == nil {
				break
			}
			step.Most = 1 << 30
		}
		require.NoError(t, Walk(m, tree, func(ref pager.Ref, level uint8) (bool, error) {
			require.Less(t, ref.Pgid, limit, "reads %d, level %d", step.Reads, level)
			return true, nil
		}))
		m.requireSound(t, tree)
	}
}

// TestRelocateStopsWithoutSpaceBelowTheLimit: it moves one page and the path to it.
func TestRelocateStopsWithoutSpaceBelowTheLimit(t *testing.T) {
	m, tree, _ := behind(t)
	before := refs(t, m, tree)
	moved, err := Relocate(m, &tree, Move{Limit: 2, Most: 1 << 30})
	require.NoError(t, err)
	require.True(t, moved.Full)
	require.Zero(t, moved.Pages)
	m.commit(t)
	others := 0
	for ref := range refs(t, m, tree) {
		if !before[ref] {
			others++
		}
	}
	require.Equal(t, int(tree.Depth), others)
}

// TestRelocateOfYoungPages moves the pages that no file holds, with deltas or without, and no
// other.
func TestRelocateOfYoungPages(t *testing.T) {
	for _, deltas := range []bool{false, true} {
		m, tree, limit := behind(t)
		m.deltas = deltas
		m.low = false // allocate at the end
		old := refs(t, m, tree)
		young := m.epoch
		for i := range 12 {
			for j := range 5 {
				_, err := Put(m, &tree, number(i*700+j*70), make([]byte, 60), 0)
				require.NoError(t, err)
			}
			m.commit(t)
		}
		require.Equal(t, deltas, m.storedDeltas > 0)
		before := refs(t, m, tree)
		m.low = true
		step := Move{Limit: limit, Since: young, Most: 5}
		total := 0
		for {
			moved, err := Relocate(m, &tree, step)
			require.NoError(t, err)
			m.commit(t)
			total += moved.Pages
			if step.From = moved.Next; moved.Next == nil {
				break
			}
		}
		require.Greater(t, total, 20)
		after := refs(t, m, tree)
		for ref := range after {
			require.True(t, ref.Pgid < limit || old[ref] || before[ref] && ref.Pgid%5 == 0, "%v", ref)
		}
		for ref := range before {
			require.True(t, !old[ref] || after[ref], "%v is in the file and has moved", ref)
		}
	}
}

func TestRelocateEmptiesTheEndOfTheFile(t *testing.T) {
	m := newMemory(4096)
	first := load(t, m, 9000, 40)
	tree := load(t, m, 5000, 40)
	for i := range 300 {
		_, err := Put(m, &tree, number(i*7), make([]byte, 1000+i*10), 0)
		require.NoError(t, err)
	}
	m.commit(t)
	want := newModel()
	var c Cursor
	c.Reset(m, tree)
	for ok := c.First(); ok; ok = c.Next() {
		want.put(string(c.Key()), c.Value(), 0)
	}
	done, err := FreeTree(m, &first, 1<<30)
	require.NoError(t, err)
	require.True(t, done)
	m.commit(t)
	m.low = true
	limit := pager.Pgid(2 + m.inUse() + int(tree.Depth)) // a step needs the old path until commit
	total := 0
	for {
		moved, err := Relocate(m, &tree, Move{Limit: limit, Most: 10})
		require.NoError(t, err)
		require.LessOrEqual(t, moved.Pages, 10+int(tree.Depth))
		m.commit(t)
		if total += moved.Pages; moved.Pages == 0 {
			break
		}
	}
	require.NotZero(t, total)
	require.NoError(t, Check(m, tree, func(ref pager.Ref, _ int) error {
		require.Less(t, ref.Pgid, limit)
		return nil
	}, func(ref pager.Ref, detail string) { require.Fail(t, detail) }))
	r := rand.New(rand.NewPCG(1, 1))
	requireSame(t, m, tree, want, r, func() []byte { return number(r.IntN(6000)) })
}
