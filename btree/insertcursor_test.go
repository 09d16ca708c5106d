package btree

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// TestInsertCursorPutsTheSameRowsAsPut makes two trees of the same rows, in orders with and without
// locality. Both have the same rows and are sound, even with other changes in between, after which
// the caller resets the cursor.
func TestInsertCursorPutsTheSameRowsAsPut(t *testing.T) {
	for name, key := range map[string]func(r *rand.Rand, i int) int{
		"ascending":       func(_ *rand.Rand, i int) int { return i },
		"descending":      func(_ *rand.Rand, i int) int { return 3000 - i },
		"at random":       func(r *rand.Rand, _ int) int { return r.IntN(3000) },
		"in clusters":     func(r *rand.Rand, i int) int { return i/40*7919%100*40 + r.IntN(40) },
		"two streams":     func(_ *rand.Rand, i int) int { return i%2*10000 + i/2 },
		"repeated":        func(_ *rand.Rand, i int) int { return i % 60 },
		"large values":    func(_ *rand.Rand, i int) int { return i*2 + 1_000_000 },
		"large, repeated": func(_ *rand.Rand, i int) int { return i / 2 % 70 },
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			m, plain := newMemory(4096), newMemory(4096)
			var tree, same Tree
			var f InsertCursor
			for i := range 3000 {
				k := fmt.Appendf(nil, "%08d", key(r, i))
				size := r.IntN(60)
				if strings.HasPrefix(name, "large") && i%50 == 0 {
					size = 5000
				}
				was, err := f.Put(m, &tree, k, make([]byte, size), int64(i%3))
				require.NoError(t, err)
				want, err := Put(plain, &same, k, make([]byte, size), int64(i%3))
				require.NoError(t, err)
				require.Equal(t, want, was)
				if i%97 == 0 { // A change without the cursor.
					_, err := Delete(m, &tree, k)
					require.NoError(t, err)
					_, err = Delete(plain, &same, k)
					require.NoError(t, err)
					f = InsertCursor{}
				}
			}
			require.Equal(t, same.Rows, tree.Rows)
			m.requireSound(t, tree)
			var a, b Cursor
			a.Reset(m, tree)
			b.Reset(plain, same)
			for more := b.First(); more; more = b.Next() {
				require.True(t, a.Next())
				require.Equal(t, b.Key(), a.Key())
				require.Equal(t, b.Value(), a.Value())
				require.Equal(t, b.Tag(), a.Tag())
			}
			require.False(t, a.Next())
			require.NoError(t, errors.Join(a.Err(), b.Err()))
		})
	}
}

// TestInsertCursorFollowsRowsInOrder: it moves to the next leaf when one is full, so that a row
// needs a descent only after a branch split.
func TestInsertCursorFollowsRowsInOrder(t *testing.T) {
	m := newMemory(4096)
	var tree Tree
	var f InsertCursor
	lost, filled := 0, 0
	for i := range 20_000 {
		key := fmt.Appendf(nil, "%08d", i)
		before := f.leaf
		require.Equal(t, before != nil, f.Beyond(key))
		_, err := f.Put(m, &tree, key, make([]byte, 100), 0)
		require.NoError(t, err)
		if before != nil && f.leaf == nil {
			lost++
		}
		filled += f.TakeFilledLeaves()
	}
	require.Equal(t, uint8(3), tree.Depth)
	require.Equal(t, 20_000/35, filled, "with 35 rows each, all but the last")
	f = InsertCursor{}
	for i := range 1000 { // at random: few leaves split at their end
		_, err := f.Put(m, &tree, fmt.Appendf(nil, "%08d.5", i*7919%20_000), make([]byte, 100), 0)
		require.NoError(t, err)
	}
	require.Less(t, f.TakeFilledLeaves(), 1000/20)
	require.Less(t, lost, 10)
	require.False(t, f.Beyond([]byte("0")))
	m.requireSound(t, tree)
}

// TestInsertCursorAppendsTheSameBytesAsPut: the caller puts the rows that Append leaves.
func TestInsertCursorAppendsTheSameBytesAsPut(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	seen := map[string]int{}
	for round := range 300 {
		r := rand.New(rand.NewPCG(uint64(round), 8))
		size := pager.MinPageSize << r.IntN(3)
		m, plain := newMemory(size), newMemory(size)
		var tree, same Tree
		var f, g InsertCursor
		at, step, most := r.IntN(1000), 1+r.IntN(300), 1+r.IntN(2*MaxInline(size, 8))
		sameShape := r.IntN(2) == 0
		for range 1 + r.IntN(60) {
			changes := make([]Change, 1+r.IntN(MaxDescent))
			for i := range changes {
				at += 1 + r.IntN(step)
				c := &changes[i]
				c.Key = fmt.Appendf(nil, "%05d", at)
				switch {
				case r.IntN(30) == 0:
					c.Key = append(c.Key, make([]byte, r.IntN(MaxKey(size)-len(c.Key)))...)
				case r.IntN(40) == 0:
					c.Key = c.Key[:1+r.IntN(5)]
				}
				if r.IntN(50) == 0 {
					c.Delete = true
					continue
				}
				c.Value, c.Tag = make([]byte, r.IntN(most)), int64(r.IntN(2))
				if sameShape && r.IntN(40) > 0 {
					c.Value, c.Tag = make([]byte, most/2), 1
				}
			}
			n := f.Append(&tree, changes)
			if seen["appended"] += n; n > 0 && n < len(changes) {
				seen["some"]++
			}
			for i := range changes {
				c := &changes[i]
				if c.Delete {
					require.GreaterOrEqual(t, i, n)
					a, err := Delete(m, &tree, c.Key)
					require.NoError(t, err)
					b, err := Delete(plain, &same, c.Key)
					require.NoError(t, err)
					require.Equal(t, b, a)
					f, g = InsertCursor{}, InsertCursor{}
					continue
				}
				want, err := g.Put(plain, &same, c.Key, c.Value, c.Tag)
				require.NoError(t, err)
				if i < n {
					require.Equal(t, Info{}, want)
					continue
				}
				was, err := f.Put(m, &tree, c.Key, c.Value, c.Tag)
				require.NoError(t, err)
				require.Equal(t, want, was)
			}
			require.Equal(t, same, tree)
		}
		require.Equal(t, plain.pages, m.pages)
		m.requireSound(t, tree)
	}
	require.Greater(t, seen["appended"], 1000)
	require.Greater(t, seen["some"], 100)
}

// inOrder returns a tree of n rows without values, put in order, and their insert cursor.
func inOrder(t *testing.T, n int) (m *memory, tree Tree, f InsertCursor) {
	t.Helper()
	m = newMemory(4096)
	for i := range n {
		_, err := f.Put(m, &tree, number(i), nil, 0)
		require.NoError(t, err)
	}
	require.NotNil(t, f.leaf)
	return m, tree, f
}

// TestAppendCountsAtMostMaxRows: a file may already count as many.
func TestAppendCountsAtMostMaxRows(t *testing.T) {
	m, tree, f := inOrder(t, 250)
	require.EqualValues(t, 1, f.branches)
	changes := []Change{{Key: number(250)}, {Key: number(251)}, {Key: number(252)}}
	s := &f.path[1]
	rows := childRows(s.b, s.n, s.i)
	setChildRows(s.b, s.n, s.i, maxRows)
	require.Zero(t, f.Append(&tree, changes))
	setChildRows(s.b, s.n, s.i, maxRows-2)
	require.Equal(t, 2, f.Append(&tree, changes))
	require.Equal(t, uint64(maxRows), childRows(s.b, s.n, s.i))
	setChildRows(s.b, s.n, s.i, rows+2)
	m.requireSound(t, tree)
}

// TestAppendNeedsTheRightmostLeaf: the next leaf may begin with a lower key.
func TestAppendNeedsTheRightmostLeaf(t *testing.T) {
	_, tree, f := inOrder(t, 100)
	row := []Change{{Key: append(number(99), 0)}}
	left := f
	left.rightmost = false
	require.Zero(t, left.Append(&tree, row))
	require.Zero(t, (*InsertCursor)(nil).Append(&tree, row))
	require.Equal(t, 1, f.Append(&tree, row))
}
