package btree

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

func TestWalkVisitsEveryPageOnce(t *testing.T) {
	m := newMemory(4096)
	tree := load(t, m, 20_000, 40)
	seen := map[pager.Ref]uint8{}
	require.NoError(t, Walk(m, tree, func(ref pager.Ref, level uint8) (bool, error) {
		require.NotContains(t, seen, ref)
		seen[ref] = level
		return true, nil
	}))
	require.Len(t, seen, m.inUse())
	require.Equal(t, tree.Depth-1, seen[tree.Root])
	n := 0
	require.NoError(t, Walk(m, tree, func(pager.Ref, uint8) (bool, error) { n++; return false, nil }))
	require.Equal(t, 1, n)
	stop := errors.New("stop")
	require.ErrorIs(t, Walk(m, tree, func(pager.Ref, uint8) (bool, error) { return true, stop }), stop)
}

// TestPageInTheWrongPlaceIsDamage replaces a child of a branch by pages of other kinds and levels.
func TestPageInTheWrongPlaceIsDamage(t *testing.T) {
	m := newMemory(4096)
	tree := load(t, m, 20_000, 40)
	require.EqualValues(t, 3, tree.Depth)
	root, err := m.Page(tree.Root)
	require.NoError(t, err)
	middle := childRef(root, count(root), 1)
	mb, err := m.Page(middle)
	require.NoError(t, err)
	key := bytes.Clone(sep(root, count(root), 1))
	for name, wrong := range map[string]pager.Ref{
		"leaf_for_branch":   childRef(mb, count(mb), 0),
		"root_for_branch":   tree.Root,
		"unknown":           {Pgid: 1 << 40, Epoch: 1},
		"of_another_epoch":  {Pgid: middle.Pgid, Epoch: middle.Epoch + 9},
		"branch_for_a_leaf": middle,
	} {
		t.Run(name, func(t *testing.T) {
			// All operations use a copy of the root (and of the middle page) that names the wrong
			// page.
			bad := Tree{Depth: 3, Rows: tree.Rows}
			ref, b, err := m.New(pager.KindBranch, 2)
			require.NoError(t, err)
			copy(b[offCount:], root[offCount:])
			bad.Root = ref
			if name == "branch_for_a_leaf" {
				mref, b2, err := m.New(pager.KindBranch, 1)
				require.NoError(t, err)
				copy(b2[offCount:], mb[offCount:])
				setChildRef(b2, count(b2), 0, wrong)
				setChildRef(b, count(b), 1, mref)
			} else {
				setChildRef(b, count(b), 1, wrong)
			}
			requireDamage(t, m, bad, key, name != "branch_for_a_leaf")
		})
	}
	deep := Tree{Root: tree.Root, Depth: maxDepth + 1, Rows: 1}
	_, _, err = Get(m, deep, key)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	_, err = Put(m, &deep, key, nil, 0)
	require.ErrorIs(t, err, badfile.ErrCorrupt)
	var c Cursor
	c.Reset(m, deep)
	require.False(t, c.First())
	require.ErrorIs(t, c.Err(), badfile.ErrCorrupt)
	found := 0
	require.NoError(t, Check(m, deep, func(pager.Ref, int) error { t.Error("a page is visited"); return nil },
		func(_ pager.Ref, detail string) { found++; require.Contains(t, detail, "of depth 33") }))
	require.Equal(t, 1, found, "no other finding")
}

// requireDamage requires that each operation on key finds damage. inRange says that DeleteRange reads
// the wrong page, too.
func requireDamage(t *testing.T, m *memory, bad Tree, key []byte, inRange bool) {
	t.Helper()
	requireBad := func(err error) {
		t.Helper()
		var bf *badfile.Error
		require.ErrorAs(t, err, &bf)
		require.NotEmpty(t, bf.Detail)
	}
	_, _, err := Get(m, bad, key)
	requireBad(err)
	var c Cursor
	c.Reset(m, bad)
	require.False(t, c.Seek(key))
	requireBad(c.Err())
	require.False(t, c.First())
	c.Reset(m, bad)
	for ok := c.First(); ok; ok = c.Next() {
	}
	requireBad(c.Err())
	require.False(t, c.Valid())
	c.Reset(m, bad)
	for ok := c.Last(); ok; ok = c.Prev() {
	}
	requireBad(c.Err())
	_, err = Delete(m, &bad, key)
	requireBad(err)
	_, err = SetTag(m, &bad, key, 1)
	requireBad(err)
	found := 0
	visit := func(pager.Ref, int) error { return nil }
	require.NoError(t, Check(m, bad, visit, func(pager.Ref, string) { found++ }))
	require.NotZero(t, found)
	if inRange {
		try := bad
		_, err = DeleteRange(m, &try, key, append(bytes.Clone(key), 0xff))
		requireBad(err)
	}
	_, err = Put(m, &bad, key, nil, 0)
	requireBad(err)
}

// TestCheckFindsDamage makes one change at a time to a sound tree that CheckPage cannot see.
func TestCheckFindsDamage(t *testing.T) {
	build := func() (*memory, Tree, []byte, []byte) {
		m := newMemory(4096)
		var tree Tree
		for i := range 600 {
			size := 40
			if i == 300 {
				size = 5000
			}
			_, err := Put(m, &tree, number(i), make([]byte, size), 0)
			require.NoError(t, err)
		}
		require.EqualValues(t, 2, tree.Depth)
		root, err := m.Page(tree.Root)
		require.NoError(t, err)
		leaf, err := m.Page(childRef(root, count(root), 3))
		require.NoError(t, err)
		return m, tree, root, leaf
	}
	for _, c := range []struct {
		name, detail string
		damage       func(m *memory, tree *Tree, root, leaf []byte)
	}{
		{"rows_of_tree", "tree counts 601 rows, it has 600", func(_ *memory, tree *Tree, _, _ []byte) {
			tree.Rows++
		}},
		{"depth", "root", func(_ *memory, tree *Tree, _, _ []byte) { tree.Depth = 0 }},
		{"rows_of_child", "counts", func(_ *memory, _ *Tree, root, _ []byte) {
			setChildRows(root, count(root), 1, 1)
		}},
		{"overflow_bit", "no overflow bit", func(_ *memory, _ *Tree, root, _ []byte) {
			for i := range count(root) {
				setChildRows(root, count(root), i, childRows(root, count(root), i)&^rowsOverflow)
			}
		}},
		{"key_below_separator", "key 0 is below", func(_ *memory, _ *Tree, _, leaf []byte) {
			b := bytes.Clone(leaf)
			copy(leafKey(b, count(b), 0), number(0))
			writeLeaf(leaf, appendCells(nil, b, 0, count(b)))
		}},
		{"key_above_separator", "is not below", func(_ *memory, _ *Tree, _, leaf []byte) {
			b := bytes.Clone(leaf)
			copy(leafKey(b, count(b), count(b)-1), number(599))
			writeLeaf(leaf, appendCells(nil, b, 0, count(b)))
		}},
		{"page", "head 0 is", func(_ *memory, _ *Tree, _, leaf []byte) { leaf[offLeafHeads]++ }},
		{"epoch", "newer than its parent", func(m *memory, tree *Tree, _, _ []byte) {
			m.pages[tree.Root.Pgid].epoch = 0
			tree.Root.Epoch = 0
		}},
		{"extent", "overflow extent", func(m *memory, _ *Tree, _, _ []byte) {
			for _, p := range m.pages {
				if p.pages > 1 {
					p.b[pager.HeaderSize]++
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, tree, root, leaf := build()
			c.damage(m, &tree, root, leaf)
			var found []string
			require.NoError(t, Check(m, tree, func(pager.Ref, int) error { return nil },
				func(_ pager.Ref, detail string) { found = append(found, detail) }))
			require.NotEmpty(t, found)
			require.Contains(t, found[0], c.detail)
		})
	}
	m, tree, _, _ := build()
	pages := 0
	require.NoError(t, Check(m, tree, func(pager.Ref, int) error { pages++; return ErrSkip },
		func(_ pager.Ref, detail string) { require.Fail(t, detail) }))
	require.Equal(t, 1, pages)
	stop := errors.New("stop")
	require.ErrorIs(t, Check(m, tree, func(pager.Ref, int) error { return stop }, nil), stop)
}

// Walk calls fn for each page of the tree, parents before children, with its level. It descends
// below a branch if fn returns true. Walk reads no leaves and does not call fn for extents.
func Walk(r Reader, t Tree, fn func(ref pager.Ref, level uint8) (descend bool, err error)) error {
	if err := t.checkDepth(); err != nil || t.Depth == 0 {
		return err
	}
	return walk(r, t.Root, t.Depth-1, fn)
}

func walk(r Reader, ref pager.Ref, level uint8, fn func(pager.Ref, uint8) (bool, error)) error {
	descend, err := fn(ref, level)
	if err != nil || !descend || level == 0 {
		return err
	}
	b, n, err := pageAt(r, ref, level)
	if err != nil {
		return err
	}
	for i := range n {
		if err := walk(r, childRef(b, n, i), level-1, fn); err != nil {
			return err
		}
	}
	return nil
}
