package btree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

func number(i int) []byte { return fmt.Appendf(nil, "%08d", i) }

// load puts n rows with keys number(i) and values of size bytes, and commits.
func load(t testing.TB, m *memory, n, size int) Tree {
	t.Helper()
	var tree Tree
	for i := range n {
		_, err := Put(m, &tree, number(i), bytes.Repeat([]byte{byte(i)}, size), 0)
		require.NoError(t, err)
	}
	m.commit(t)
	return tree
}

func TestEmptyTreeHasNothing(t *testing.T) {
	m := newMemory(4096)
	var tree Tree
	_, found, err := Get(m, tree, []byte("a"))
	require.NoError(t, err)
	require.False(t, found)
	was, err := Delete(m, &tree, []byte("a"))
	require.NoError(t, err)
	require.Zero(t, was)
	rows, err := DeleteRange(m, &tree, nil, nil)
	require.NoError(t, err)
	require.Zero(t, rows)
	done, err := FreeTree(m, &tree, 1)
	require.NoError(t, err)
	require.True(t, done)
	var c Cursor
	require.False(t, c.Next())
	c.Reset(m, tree)
	require.False(t, c.First())
	require.False(t, c.Last())
	require.False(t, c.Next())
	require.False(t, c.Prev())
	require.False(t, c.Seek(nil))
	require.False(t, c.SeekBefore([]byte("x")))
	require.NoError(t, c.Err())
	m.requireSound(t, tree)
	require.Zero(t, tree)
}

func TestOldTreeValueKeepsItsContent(t *testing.T) {
	m := newMemory(4096)
	tree := load(t, m, 2000, 50)
	old := tree
	for i := range 2000 {
		if i%3 > 0 {
			_, err := Delete(m, &tree, number(i))
			require.NoError(t, err)
		}
	}
	for id := range m.pages { // they stay readable for whoever can still reach them
		if p := &m.pages[id]; p.b != nil && !p.owned {
			p.gone = false
		}
	}
	for i := range 2000 {
		_, found, err := Get(m, old, number(i))
		require.NoError(t, err)
		require.True(t, found)
		_, found, err = Get(m, tree, number(i))
		require.NoError(t, err)
		require.Equal(t, i%3 == 0, found)
	}
}

func TestLimitsOfKeyAndValue(t *testing.T) {
	m := newMemory(4096)
	var tree Tree
	_, err := Put(m, &tree, make([]byte, MaxKey(4096)+1), nil, 0)
	require.ErrorIs(t, err, ErrKeyTooLarge)
	b := NewBuilder(m)
	require.ErrorIs(t, b.Add(make([]byte, MaxKey(4096)+1), nil, 0), ErrKeyTooLarge)
	for _, n := range []int{MaxInline(4096), MaxInline(4096) + 1} {
		_, err = Put(m, &tree, bytes.Repeat([]byte{byte(n)}, MaxKey(4096)), make([]byte, n), 1)
		require.NoError(t, err)
	}
	m.commit(t)
	m.requireSound(t, tree)
	require.Equal(t, 2, m.inUse(), "one leaf, and one extent of one page")
}

func TestReplacingAValueGivesItsExtentBack(t *testing.T) {
	m := newMemory(4096)
	var tree Tree
	for i, size := range []int{10_000, 5000, 10, 20, 20_000, MaxInline(4096)} {
		was, err := Put(m, &tree, []byte("k"), make([]byte, size), 0)
		require.NoError(t, err)
		require.Equal(t, i > 0, was.Found)
		m.commit(t)
		m.requireSound(t, tree)
		v, found, err := Get(m, tree, []byte("k"))
		require.NoError(t, err)
		require.True(t, found)
		require.Len(t, v.Bytes, size)
	}
}

func TestSetTagCopiesOnlyForAChange(t *testing.T) {
	m := newMemory(4096)
	tree := load(t, m, 2000, 2000)
	before := tree
	was, err := SetTag(m, &tree, number(77), 0)
	require.NoError(t, err)
	require.Equal(t, Info{2000, 0, true}, was)
	was, err = SetTag(m, &tree, []byte("absent"), 1)
	require.NoError(t, err)
	require.Zero(t, was)
	require.Equal(t, before, tree)
	value, _, err := Get(m, tree, number(77))
	require.NoError(t, err)
	was, err = SetTag(m, &tree, number(77), 1)
	require.NoError(t, err)
	require.Equal(t, Info{2000, 0, true}, was)
	require.NotEqual(t, before, tree)
	info, err := GetInfo(m, tree, number(77))
	require.NoError(t, err)
	require.Equal(t, Info{2000, 1, true}, info)
	after, _, err := Get(m, tree, number(77))
	require.NoError(t, err)
	require.Same(t, &value.Bytes[0], &after.Bytes[0], "the extent is the same one")
	m.requireSound(t, tree)
}

func TestAscendingInsertsFillPages(t *testing.T) {
	m := newMemory(4096)
	share, _ := fill(t, m, load(t, m, 20_000, 40))
	require.Greater(t, share, 0.95)

	var tree Tree // at the right ends of a hundred ranges
	m = newMemory(4096)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 40_000 {
		_, err := Put(m, &tree, fmt.Appendf(nil, "%03d/%08d", r.IntN(100), i), make([]byte, 40), 0)
		require.NoError(t, err)
	}
	share, _ = fill(t, m, tree)
	require.Greater(t, share, 0.8, "the last leaf of each range is half full")
	m.requireSound(t, tree)
}

func TestRandomInsertsFillPagesToFourFifths(t *testing.T) {
	m := newMemory(4096)
	var tree Tree
	r := rand.New(rand.NewPCG(1, 1))
	for range 40_000 {
		_, err := Put(m, &tree, binary.BigEndian.AppendUint64(nil, r.Uint64()), make([]byte, 40), 0)
		require.NoError(t, err)
	}
	share, _ := fill(t, m, tree)
	require.Greater(t, share, 0.77)
}

func TestDeletesMergePages(t *testing.T) {
	m := newMemory(4096)
	tree := load(t, m, 20_000, 40)
	r := rand.New(rand.NewPCG(1, 1))
	for _, i := range r.Perm(20_000)[:19_800] {
		_, err := Delete(m, &tree, number(i))
		require.NoError(t, err)
	}
	m.commit(t)
	m.requireSound(t, tree)
	share, leaves := fill(t, m, tree)
	require.Greater(t, share, 0.25, "%d leaves", leaves)
}

// readCounter counts reads of leaves.
type readCounter struct {
	*memory
	leaves int
}

func (c *readCounter) Page(ref pager.Ref) ([]byte, error) {
	b, err := c.memory.Page(ref)
	if err == nil && isLeaf(b) {
		c.leaves++
	}
	return b, err
}

func TestLeavesWithoutOverflowAreFreedUnread(t *testing.T) {
	m := newMemory(4096)
	tree := load(t, m, 20_000, 40)
	c := &readCounter{memory: m}
	rows, err := DeleteRange(c, &tree, number(1000), number(19_000))
	require.NoError(t, err)
	require.EqualValues(t, 18_000, rows)
	require.LessOrEqual(t, c.leaves, 8, "the edges, and their neighbours")
	m.commit(t)
	m.requireSound(t, tree)

	c.leaves = 0
	for steps := 1; ; steps++ {
		before := m.inUse()
		done, err := FreeTree(c, &tree, 5)
		require.NoError(t, err)
		m.commit(t)
		require.LessOrEqual(t, before-m.inUse(), 5+int(tree.Depth)+2)
		if done {
			require.Greater(t, steps, 3)
			break
		}
	}
	require.Zero(t, c.leaves)
	require.Zero(t, m.inUse())
}

func TestRelocateEmptiesTheEndOfTheFile(t *testing.T) {
	m := newMemory(4096)
	room := load(t, m, 9000, 40)
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
	done, err := FreeTree(m, &room, 1<<30)
	require.NoError(t, err)
	require.True(t, done)
	m.commit(t)
	m.low = true
	limit := pager.Pgid(2 + m.inUse() + int(tree.Depth)) // a step needs the old path until it is committed
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

func TestBuilderMakesTheSameRowsAsPut(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, pageSize := range []int{4096, 65536} {
		for _, ks := range keySpaces {
			for _, n := range []int{0, 1, 2, 30, 12_000_000 / pageSize} {
				t.Run(fmt.Sprintf("%d/%s/%d", pageSize, ks.name, n), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(n), 7))
					want := newModel()
					for range n {
						want.put(string(ks.key(r, pageSize)), randomValue(r, pageSize), randomTag(r))
					}
					m := newMemory(pageSize)
					b := NewBuilder(m)
					for i, k := range want.keys {
						require.NoError(t, b.Add([]byte(k), want.rows[k].value, want.rows[k].tag))
						require.ErrorIs(t, b.Add([]byte(k), nil, 0), ErrOrder)
						if i > 0 {
							require.ErrorIs(t, b.Add([]byte(want.keys[i-1]), nil, 0), ErrOrder)
						}
					}
					tree, err := b.Finish()
					require.NoError(t, err)
					require.Error(t, b.Add([]byte("late"), nil, 0))
					pick := func() []byte { return ks.key(r, pageSize) }
					requireSame(t, m, tree, want, r, pick)
					m.commit(t)
					for range 200 { // it is a tree like any other
						k, v := pick(), randomValue(r, pageSize)
						_, err := Put(m, &tree, k, v, 0)
						require.NoError(t, err)
						want.put(string(k), v, 0)
					}
					requireSame(t, m, tree, want, r, pick)
					require.NoError(t, Walk(m, tree, func(ref pager.Ref, level uint8) (bool, error) {
						b, err := m.Page(ref)
						require.True(t, level == 0 || count(b) > 1)
						return true, err
					}))
				})
			}
		}
	}
}

func TestBuilderFillsPages(t *testing.T) {
	m := newMemory(4096)
	b := NewBuilder(m)
	for i := range 50_000 {
		require.NoError(t, b.Add(number(i), make([]byte, 20), 0))
	}
	tree, err := b.Finish()
	require.NoError(t, err)
	share, _ := fill(t, m, tree)
	require.Greater(t, share, 0.98)
	m.requireSound(t, tree)
}

// TestPageInTheWrongPlaceIsDamage swaps every child of a branch for pages of other kinds and
// levels.
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
			// Everything happens on a copy of the root (and of the middle page) that names the
			// wrong page.
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
			requireBad := func(err error) {
				t.Helper()
				var bf *badfile.Error
				require.ErrorAs(t, err, &bf)
				require.NotEmpty(t, bf.Detail)
			}
			_, _, err = Get(m, bad, key)
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
			require.NoError(
				t,
				Check(m, bad, func(pager.Ref, int) error { return nil }, func(pager.Ref, string) { found++ }),
			)
			require.NotZero(t, found)
			if name != "branch_for_a_leaf" {
				try := bad
				_, err = DeleteRange(m, &try, key, append(bytes.Clone(key), 0xff))
				requireBad(err)
			}
			_, err = Put(m, &bad, key, nil, 0)
			requireBad(err)
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
	require.Equal(t, 1, found, "nothing else can be said of it")
}

// TestCheckFindsDamage changes one thing in a sound tree at a time, in ways that each page by
// itself cannot tell.
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
		{"rows_of_tree", "tree counts 601 rows, it has 600", func(_ *memory, tree *Tree, _, _ []byte) { tree.Rows++ }},
		{"depth", "root", func(_ *memory, tree *Tree, _, _ []byte) { tree.Depth = 0 }},
		{"rows_of_child", "counts", func(_ *memory, _ *Tree, root, _ []byte) { setChildRows(root, count(root), 1, 1) }},
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

// TestErrorsOfTheWriterComeBack lets every n-th call that takes space fail.
// TestFalseRowCountsAreFoundByChanges: a child that keeps rows is never left with a count that no
// page may have.
func TestFalseRowCountsAreFoundByChanges(t *testing.T) {
	for _, c := range []struct {
		name  string
		rows  uint64 // that the root claims below its first child
		first func(m *memory, tree *Tree) error
		then  func(m *memory, tree *Tree) error
	}{
		{"delete", 2, deletes(1), deletes(2)},
		{"delete_range", 3, deletes(1), func(m *memory, tree *Tree) error {
			_, err := DeleteRange(m, tree, number(2), number(4))
			return err
		}},
		{"put", maxRows - 1, puts(nil, "0000001x"), puts(nil, "0000002x")},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, tree, root := treeOfManyLeaves(t)
			require.NoError(t, deletes(40)(m, &tree)) // for room
			require.NoError(t, deletes(41)(m, &tree))
			setChildRows(root, count(root), 0, c.rows)
			require.NoError(t, c.first(m, &tree))
			require.ErrorIs(t, c.then(m, &tree), badfile.ErrCorrupt)
			require.NoError(t, CheckPage(root, 4096))
		})
	}
	t.Run("finger", func(t *testing.T) {
		m, tree, root := treeOfManyLeaves(t)
		for i := range 8 { // room in the first leaf
			require.NoError(t, deletes(i)(m, &tree))
		}
		setChildRows(root, count(root), 0, maxRows-3)
		var f InsertCursor
		// the finger points there from the second
		for i, key := range []string{"0000001a", "0000001b", "0000001c"} {
			require.NoError(t, puts(&f, key)(m, &tree), i)
		}
		require.NotNil(t, f.leaf)
		require.ErrorIs(t, puts(&f, "0000001d")(m, &tree), badfile.ErrCorrupt)
		require.NoError(t, CheckPage(root, 4096))
	})
}

func deletes(i int) func(*memory, *Tree) error {
	return func(m *memory, tree *Tree) error {
		_, err := Delete(m, tree, number(i))
		return err
	}
}

func puts(f *InsertCursor, key string) func(*memory, *Tree) error {
	return func(m *memory, tree *Tree) error {
		_, err := f.Put(m, tree, []byte(key), make([]byte, 40), 0)
		return err
	}
}

// treeOfManyLeaves has 600 rows, which are alike, below one branch, which is returned too.
func treeOfManyLeaves(t *testing.T) (*memory, Tree, []byte) {
	m := newMemory(4096)
	var tree Tree
	for i := range 600 {
		_, err := Put(m, &tree, number(i), make([]byte, 40), 0)
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, tree.Depth)
	root, err := m.Page(tree.Root)
	require.NoError(t, err)
	return m, tree, root
}

func TestErrorsOfTheWriterComeBack(t *testing.T) {
	full := errors.New("no space")
	m := newMemory(4096)
	tree := load(t, m, 3000, 40)
	m.fail = full
	try := tree
	_, err := Put(m, &try, number(1), nil, 0)
	require.ErrorIs(t, err, full)
	_, err = Put(m, &try, number(1), make([]byte, 9000), 0)
	require.ErrorIs(t, err, full)
	require.Equal(t, tree, try)
	_, err = Delete(m, &try, number(1))
	require.ErrorIs(t, err, full)
	_, err = DeleteRange(m, &try, number(1), number(5))
	require.ErrorIs(t, err, full)
	_, err = SetTag(m, &try, number(1), 1)
	require.ErrorIs(t, err, full)
	_, err = FreeTree(m, &try, 1)
	require.ErrorIs(t, err, full)
	b := NewBuilder(m)
	for i := 0; err == nil || i == 0; i++ {
		err = b.Add(number(i), make([]byte, 100), 0)
	}
	require.ErrorIs(t, err, full)
	_, err = b.Finish()
	require.ErrorIs(t, err, full)
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	a, tree := benchTree(t, 4096, 20_000)
	key, value := make([]byte, 16), make([]byte, 100)
	i := 0
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		i++
		if _, ok, err := Get(a, tree, benchKey(key, i)); !ok || err != nil {
			t.Error(ok, err)
		}
	}), "Get")
	var c Cursor
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.Reset(a, tree)
		c.Seek(benchKey(key, 5))
		for range 500 {
			c.Next()
		}
		for range 900 {
			c.Prev()
		}
	}), "Cursor")
	for i = range 1002 { // Now their cells are as large as those that follow.
		_, err := Put(a, &tree, benchKey(key, i), value, 1)
		require.NoError(t, err)
	}
	i = 0
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		i++
		if _, err := Put(a, &tree, benchKey(key, i), value, 1); err != nil {
			t.Error(err)
		}
		if _, err := SetTag(a, &tree, benchKey(key, i), 2); err != nil {
			t.Error(err)
		}
	}), "Put of a key that is there")
	i = 20_000
	require.LessOrEqual(t, testing.AllocsPerRun(5000, func() {
		i++
		if _, err := Put(a, &tree, benchKey(key, i), value, 0); err != nil {
			t.Error(err)
		}
	}), 0.05, "Put of a new key: what the arena's own slices and a lost scratch cost")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		i--
		if was, err := Delete(a, &tree, benchKey(key, i)); !was.Found || err != nil {
			t.Error(was, err)
		}
		a.later, a.free = a.later[:0], a.free[:0]
	}), "Delete")
}
