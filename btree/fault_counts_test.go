package btree

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// TestCountsThatAddUpToTooMuch: each count in a branch of a file is valid, and their sum is above
// maxRows. A change then leaves a valid page or returns damage. Splits and merges made entries that
// CheckPage refused at the next read.
func TestCountsThatAddUpToTooMuch(t *testing.T) {
	racetest.OneGoroutine(t)
	for name, change := range map[string]func(m *memory, tree *Tree, i int) error{
		"put": func(m *memory, tree *Tree, i int) error {
			_, err := Put(m, tree, append(number(i), 'x'), make([]byte, 900), 0)
			return err
		},
		"delete": func(m *memory, tree *Tree, i int) error {
			_, err := Delete(m, tree, number(i))
			return err
		},
		"append": func(m *memory, tree *Tree, i int) error {
			_, err := Put(m, tree, number(1<<20+i), make([]byte, 900), 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(4096)
			tree := load(t, m, 3000, 900)
			require.Equal(t, uint8(3), tree.Depth)
			eachBranch(t, m, tree, func(b []byte) {
				for i := range count(b) {
					setChildRows(b, count(b), i, maxRows/2)
				}
			})
			tree.Rows = maxRows
			rnd := rand.New(rand.NewPCG(1, 2))
			refused := 0
			for range 6000 {
				before := tree
				if err := change(m, &tree, rnd.IntN(3000)); err != nil {
					require.ErrorIs(t, err, badfile.ErrCorrupt)
					tree = before // As in a rollback.
					refused++
					break
				}
				eachBranch(t, m, tree, func(b []byte) { require.NoError(t, CheckPage(b, len(b))) })
			}
			require.Positive(t, refused, "no change came to the bound")
		})
	}
}

func eachBranch(t *testing.T, m *memory, tree Tree, fn func(b []byte)) {
	t.Helper()
	require.NoError(t, Walk(m, tree, func(ref pager.Ref, level uint8) (bool, error) {
		if level == 0 {
			return false, nil
		}
		b, _, err := pageAt(m, ref, level)
		if err == nil {
			fn(b)
		}
		return level > 1, err
	}))
}

// TestFalseRowCountsAreFoundByChanges: a change never leaves a row count that CheckPage refuses.
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
			require.NoError(t, deletes(40)(m, &tree)) // for free space
			require.NoError(t, deletes(41)(m, &tree))
			setChildRows(root, count(root), 0, c.rows)
			require.NoError(t, c.first(m, &tree))
			require.ErrorIs(t, c.then(m, &tree), badfile.ErrCorrupt)
			require.NoError(t, CheckPage(root, 4096))
		})
	}
	t.Run("insert cursor", func(t *testing.T) {
		m, tree, root := treeOfManyLeaves(t)
		for i := range 8 { // free space in the first leaf
			require.NoError(t, deletes(i)(m, &tree))
		}
		setChildRows(root, count(root), 0, maxRows-3)
		var f InsertCursor
		// the cursor points there from the second on
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

// treeOfManyLeaves has 600 rows of one shape below one branch, which it returns, too.
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
