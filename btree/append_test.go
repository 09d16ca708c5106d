package btree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// rowsSameShape makes n rows in key order whose cells have equal headers.
func rowsSameShape(r *rand.Rand, from, n int) []Change {
	changes := make([]Change, n)
	size, tag := 8+r.IntN(200), int64(r.IntN(2))
	for i := range changes {
		changes[i] = Change{Key: number(from + i), Value: make([]byte, size), Tag: tag}
	}
	return changes
}

// rowsBehind makes n rows in key order. Some keys have a long suffix, so that branches fill soon.
func rowsBehind(r *rand.Rand, from, n int) []Change {
	changes := make([]Change, n)
	for i := range changes {
		changes[i] = Change{
			Key:   append(number(from+i), bytes.Repeat([]byte{'x'}, r.IntN(2)*r.IntN(400))...),
			Value: make([]byte, r.IntN(200)), Tag: int64(r.IntN(3)),
		}
	}
	return changes
}

// TestFillLeafMakesTheLeafThatPutsMake compares the pages byte by byte if the rows have one shape;
// other leaves are rewritten by the put that changes the shape, so their cells are compared.
// FillLeaf returns the number of rows.
func TestFillLeafMakesTheLeafThatPutsMake(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		m := newMemory(4096)
		changes, sameShape := rowsBehind(r, r.IntN(100), 1+r.IntN(80)), r.IntN(2) == 0
		if sameShape {
			changes = rowsSameShape(r, r.IntN(100), 1+r.IntN(80))
		}
		b := bytes.Repeat([]byte{0xee}, 4096)
		pager.WriteHeader(b, pager.Header{Pgid: 2, Epoch: 1, Kind: pager.KindLeaf})
		n, full := FillLeaf(b, changes)
		require.Positive(t, n)
		require.NoError(t, CheckPage(b, 4096))
		var tree Tree
		for _, c := range changes[:n] {
			_, err := Put(m, &tree, c.Key, c.Value, c.Tag)
			require.NoError(t, err)
		}
		require.EqualValues(t, 1, tree.Depth)
		want, err := m.Page(tree.Root)
		require.NoError(t, err)
		h := pager.ReadHeader(want)
		require.Equal(t, n, int(h.Count))
		pager.WriteHeader(b, h)
		if sameShape {
			require.True(t, uniform(b))
			require.Equal(t, want, b)
		} else {
			require.Equal(t, appendCells(nil, want, 0, n), appendCells(nil, b, 0, n))
			require.Equal(t, n > 1 && !uniform(want), !uniform(b))
		}
		require.Equal(t, n < len(changes), full)
		if full {
			_, err = Put(m, &tree, changes[n].Key, changes[n].Value, changes[n].Tag)
			require.NoError(t, err)
			require.EqualValues(t, 2, tree.Depth, "the leaf was full")
		}
	}
}

// TestFillLeafStopsAtARowItCannotAppend: a row that is not above the one before it, a deletion, or
// a row that does not fit into a leaf.
func TestFillLeafStopsAtARowItCannotAppend(t *testing.T) {
	row := func(key string) Change { return Change{Key: []byte(key), Value: []byte("v")} }
	for name, last := range map[string]Change{
		"the same":      row("b"),
		"before":        row("a1"),
		"a deletion":    {Key: []byte("c"), Delete: true},
		"a large value": {Key: []byte("c"), Value: make([]byte, MaxInline(4096, 1)+1)},
		"a long key":    {Key: bytes.Repeat([]byte("c"), MaxKey(4096)+1)},
	} {
		b := make([]byte, 4096)
		pager.WriteHeader(b, pager.Header{Kind: pager.KindLeaf})
		n, full := FillLeaf(b, []Change{row("a"), row("b"), last, row("d")})
		require.Equal(t, 2, n, name)
		require.False(t, full, name)
		if name == "the same" || name == "before" {
			continue
		}
		n, full = FillLeaf(b, []Change{last})
		require.Zero(t, n, name)
		require.False(t, full, name)
	}
}

// TestAppendedLeavesAreTheTree appends leaves to trees of any depth, with puts in between. The tree
// is sound and has all rows.
func TestAppendedLeavesAreTheTree(t *testing.T) {
	racetest.OneGoroutine(t)
	for _, copied := range []bool{false, true} {
		t.Run(fmt.Sprintf("copied=%v", copied), func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			m := newMemory(4096)
			var tree Tree
			model := map[string]Change{}
			last, next := []byte(nil), 0
			for tree.Depth < uint8(racetest.Sample(4, 3)) {
				changes := rowsBehind(r, next, 1+r.IntN(300))
				past, err := IsPastEnd(m, tree, changes[0].Key)
				require.NoError(t, err)
				require.True(t, past)
				if len(last) > 0 {
					past, err = IsPastEnd(m, tree, last)
					require.NoError(t, err)
					require.False(t, past)
				}
				next += len(changes)
				for len(changes) > 0 {
					ref, b, err := m.New(pager.KindLeaf, 0)
					require.NoError(t, err)
					n, _ := FillLeaf(b, changes)
					for _, c := range changes[:n] {
						model[string(c.Key)] = c
					}
					if copied {
						err = CopyLeafRun(m, &tree, ref, 1)
					} else {
						err = AppendLeaf(m, &tree, ref, uint64(n), last, changes[0].Key)
					}
					require.NoError(t, err)
					last = changes[n-1].Key
					changes = changes[n:]
				}
				if r.IntN(2) == 0 {
					m.commit(t)
				}
				for range r.IntN(40) { // below the last one
					key := fmt.Appendf(nil, "%08dz", r.IntN(next-1))
					if _, err := Put(m, &tree, key, nil, 0); err != nil {
						t.Fatal(err)
					}
					model[string(key)] = Change{Key: key}
				}
				if r.IntN(20) == 0 {
					m.requireSound(t, tree)
				}
			}
			m.requireSound(t, tree)
			require.EqualValues(t, len(model), tree.Rows)
			var c Cursor
			c.Reset(m, tree)
			for c.Next() {
				want, ok := model[string(c.Key())]
				require.True(t, ok)
				require.True(t, bytes.Equal(want.Value, c.Value()))
				require.Equal(t, want.Tag, c.Tag())
				delete(model, string(c.Key()))
			}
			require.NoError(t, c.Err())
			require.Empty(t, model)
		})
	}
}

// TestAppendedLeafIsCounted: a branch that counts nearly maxRows rows is damaged, and rejects more.
func TestAppendedLeafIsCounted(t *testing.T) {
	m := newMemory(4096)
	var tree Tree
	r := rand.New(rand.NewPCG(5, 6))
	for i := 0; tree.Depth < 3; i++ {
		c := rowsBehind(r, i, 1)[0]
		_, err := Put(m, &tree, c.Key, c.Value, 0)
		require.NoError(t, err)
	}
	_, b, err := m.Edit(tree.Root, nil)
	require.NoError(t, err)
	n := count(b)
	setChildRows(b, n, n-1, maxRows-1)
	leaf, lb, err := m.New(pager.KindLeaf, 0)
	require.NoError(t, err)
	FillLeaf(lb, rowsBehind(r, 5_000_000, 2))
	err = AppendLeaf(m, &tree, leaf, 2, []byte("1"), []byte("2"))
	require.ErrorIs(t, err, badfile.ErrCorrupt)
}
