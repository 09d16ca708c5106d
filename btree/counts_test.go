package btree

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/pager"
)

// TestCountsThatAddUpToTooMuch: in each branch of a file every count may be, and all together are
// more than any entry can tell. Whatever a change makes of it is a page that can be read, or
// damage. Splits and merges made entries that were refused when they were next read.
func TestCountsThatAddUpToTooMuch(t *testing.T) {
	for name, change := range map[string]func(m *memory, tree *Tree, i int) error{
		"put": func(m *memory, tree *Tree, i int) error {
			_, err := Put(m, tree, append(number(i), 'x'), make([]byte, 900), 0)
			return err
		},
		"delete": func(m *memory, tree *Tree, i int) error { _, err := Delete(m, tree, number(i)); return err },
		"behind": func(m *memory, tree *Tree, i int) error {
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
					tree = before // As a transaction does that is rolled back; what it has overwritten is read no more.
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
