package btree

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/pager"
)

// lookedAt counts the pages that are asked for.
type lookedAt struct {
	*memory
	pages int
}

func (l *lookedAt) Page(ref pager.Ref) ([]byte, error) {
	l.pages++
	return l.memory.Page(ref)
}

func (l *lookedAt) Leaf(ref pager.Ref) (b, changes []byte, err error) {
	l.pages++
	return l.memory.Leaf(ref)
}

// behind is a tree of a few hundred pages behind free ones, more than it has, and the first page
// number behind as many as it has.
func behind(t *testing.T) (m *memory, tree Tree, limit pager.Pgid) {
	m = newMemory(4096)
	m.low = true
	room := load(t, m, 12_000, 60)
	tree = load(t, m, 9000, 60)
	done, err := FreeTree(m, &room, 1<<30)
	require.NoError(t, err)
	require.True(t, done)
	m.commit(t)
	limit = pager.Pgid(2 + m.inUse() + 2*int(tree.Depth)) // a step needs the old path until it is committed
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

// TestRelocateGoesOnWhereItEnded: steps that are told of the one before look at each page about
// once, and leave nothing out.
func TestRelocateGoesOnWhereItEnded(t *testing.T) {
	m, tree, limit := behind(t)
	pages := len(refs(t, m, tree))
	l := &lookedAt{memory: m}
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

// TestRelocateEndsWhenThereIsNoRoom below the limit: what it has taken for that is one page, and
// the path to it.
func TestRelocateEndsWhenThereIsNoRoom(t *testing.T) {
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

// TestRelocateOfYoungPages moves those that no file holds, patched ones too, and no other.
func TestRelocateOfYoungPages(t *testing.T) {
	for _, patches := range []bool{false, true} {
		m, tree, limit := behind(t)
		m.patches = patches
		m.low = false // to the end
		old := refs(t, m, tree)
		young := m.epoch
		for i := range 12 {
			for j := range 5 {
				_, err := Put(m, &tree, number(i*700+j*70), make([]byte, 60), 0)
				require.NoError(t, err)
			}
			m.commit(t)
		}
		require.Equal(t, patches, m.patched > 0)
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
