package btree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// TestDeltasAreSplit: random inserts into leaves with deltas, in small transactions, split the
// deltas without making pages of them.
func TestDeltasAreSplit(t *testing.T) {
	racetest.OneGoroutine(t)
	r := rand.New(rand.NewPCG(3, 4))
	m := newMemory(4096)
	var tree Tree
	want := newModel()
	for n := range racetest.Sample(600, 200) {
		m.deltas = n > 50
		for range 20 {
			key, value := fmt.Appendf(nil, "%016x", r.Uint64()), make([]byte, 100)
			was, err := Put(m, &tree, key, value, 0)
			require.NoError(t, err)
			require.Equal(t, want.put(string(key), value, 0), was)
		}
		m.commit(t)
		m.requireSound(t, tree)
	}
	require.Positive(t, m.newDeltas)
}

// TestCellsMovedByASplitStayGone: after the leaf that got them is freed, the other half covers
// their keys again, and its base still has the cells.
func TestCellsMovedByASplitStayGone(t *testing.T) {
	m := newMemory(4096)
	var tree Tree
	for i := range 600 {
		_, err := Put(m, &tree, number(i), make([]byte, 100+i%2), 0) // two shapes: a delta accepts any row
		require.NoError(t, err)
	}
	m.commit(t)
	m.deltas = true
	root, err := m.Page(tree.Root)
	require.NoError(t, err)
	n, at := count(root), 5
	for childRef(root, n, at).Pgid%3 == 0 { // not CanDelta
		at++
	}
	first := sep(root, n, at)
	for i := 0; m.newDeltas == 0; i++ {
		_, err := Put(m, &tree, fmt.Appendf(bytes.Clone(first), "%04d", i), make([]byte, 100), 0)
		require.NoError(t, err)
	}
	m.commit(t)
	root, err = m.Page(tree.Root)
	require.NoError(t, err)
	require.Equal(t, n+1, count(root))
	lo, hi := bytes.Clone(sep(root, n+1, at+1)), bytes.Clone(sep(root, n+1, at+2))
	var c Cursor
	c.Reset(m, tree)
	require.True(t, c.Seek(hi))
	require.True(t, c.Prev())
	moved := bytes.Clone(c.Key())
	require.Positive(t, bytes.Compare(moved, lo))

	rows, err := DeleteRange(m, &tree, lo, hi)
	require.NoError(t, err)
	require.Greater(t, rows, uint64(5))
	m.commit(t)
	root, err = m.Page(tree.Root)
	require.NoError(t, err)
	_, base, changes, err := m.DeltaBase(childRef(root, count(root), at))
	require.NoError(t, err)
	require.NotNil(t, changes, "the other half is still a delta")
	_, s := leafFind(base, count(base), moved)
	require.True(t, s.found(), "and its base has the cell")

	_, found, err := Get(m, tree, moved)
	require.NoError(t, err)
	require.False(t, found)
	rows = tree.Rows
	was, err := Put(m, &tree, moved, []byte("new"), 0)
	require.NoError(t, err)
	require.Zero(t, was)
	require.Equal(t, rows+1, tree.Rows)
	m.commit(t)
	m.requireSound(t, tree)
}

// TestSplitDeltaCountsItsFreeSpace: the half without the new row is the fuller one, and its delta
// has space for the next row.
func TestSplitDeltaCountsItsFreeSpace(t *testing.T) {
	split := 0
	for leaves := range 4 { // some give the leaf a CanDelta page number
		m := newMemory(4096)
		var tree Tree
		put := func(name string, size int) {
			t.Helper()
			key := append([]byte(name), make([]byte, max(size-950, 20))...) // with its value size bytes
			_, err := Put(m, &tree, key, make([]byte, size-len(key)), 0)
			require.NoError(t, err)
		}
		for i := range 3 * leaves {
			put(fmt.Sprint("b", i), 1300)
		}
		put("ka", 1540)
		put("kb", 1540)
		put("kc", 700)
		for i := range 9 {
			put(fmt.Sprint("r", i), 1300)
		}
		m.commit(t)
		m.deltas = true
		put("kd", 940)
		split += m.newDeltas
		put("kaa", 950)
		m.commit(t)
		m.requireSound(t, tree)
	}
	require.Positive(t, split)
}

// TestSplitDeltaCountsTheFreeSpaceOfItsPage, with and without headers for the put rows.
func TestSplitDeltaCountsTheFreeSpaceOfItsPage(t *testing.T) {
	for _, sameShape := range []bool{true, false} {
		b := make([]byte, pager.MinPageSize)
		pager.WriteHeader(b, pager.Header{Pgid: 2, Epoch: 1, Kind: pager.KindLeaf})
		var cells []detachedCell
		for i := range 20 {
			size := 30
			if !sameShape && i == 0 {
				size++
			}
			cells = append(cells, detachedCell{append(number(i), make([]byte, size)...), uint32(size), 8})
		}
		writeLeaf(b, cells[:15])
		require.Equal(t, sameShape, uniform(b))
		changes, ok := buildDelta(nil, b, 3, 15, append(cells[7:9:9], cells[15:]...))
		require.True(t, ok)
		require.NoError(t, ApplyDelta(b, changes))
		require.Equal(t, 17, count(b))
		require.Equal(t, leafFree(b), ld16(changes, deltaFree))
		require.NoError(t, CheckPage(b, len(b)))
	}
}
