package btree

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/racetest"
	"github.com/ebbkv/ebb/pager"
)

// requireRows requires that the tree has exactly the rows of the model.
func requireRows(t *testing.T, m *memory, tree Tree, want *model) {
	t.Helper()
	require.Equal(t, uint64(len(want.keys)), tree.Rows)
	var c Cursor
	c.Reset(m, tree)
	ok := c.First()
	for _, key := range want.keys {
		require.True(t, ok, key)
		require.Equal(t, key, string(c.Key()))
		require.True(t, bytes.Equal(want.rows[key].value, c.Value()), key)
		ok = c.Next()
	}
	require.False(t, ok)
	require.NoError(t, c.Err())
}

// partsKey pads the keys, for branches with few or many children.
func partsKey(i, pad int) []byte { return append(fmt.Appendf(nil, "%06d", i), make([]byte, pad)...) }

// TestPartitionsAreTheTree: after changes of the partitions, in any interleaving, the merged tree
// has the same rows as the model, and no page leaks or is reachable twice.
func TestPartitionsAreTheTree(t *testing.T) {
	racetest.NotQuick(t)
	racetest.OneGoroutine(t)
	seen := map[string]int{}
	rounds := 160
	if testing.Short() {
		rounds = racetest.Sample(150, 70)
	}
	for round := range rounds {
		r := rand.New(rand.NewPCG(uint64(round), 77))
		m := newMemory(pager.MinPageSize << r.IntN(2))
		m.deltas, m.low = r.IntN(2) == 0, r.IntN(3) == 0
		keys, pad, want, tree := partsTree(t, r, m)
		m.commit(t)
		for range 1 + r.IntN(3) {
			changes := someParts(r, keys, pad, want)
			most := 2 + r.IntN(MaxPartitions)
			var p Partitions
			before := tree
			n, err := p.Partition(m, tree, changes, most)
			require.NoError(t, err)
			require.Equal(t, before, tree)
			require.LessOrEqual(t, n, min(most, MaxPartitions))
			if n == 1 {
				seen["undivided"]++
				m.requireSound(t, tree)
				continue
			}
			seen["divided"]++
			if p.level < tree.Depth-1 {
				seen["divided below the root"]++
			}
			applyInPartitions(t, r, m, &p, n, changes, want)
			for i := range n {
				switch d := p.Tree(i).Depth; {
				case d == 0:
					seen["a partition is empty"]++
				case d-1 < p.level:
					seen["a partition is lower"]++
				case d-1 > p.level:
					seen["a partition is higher"]++
				}
			}
			require.NoError(t, p.Merge(m, &tree))
			switch {
			case tree.Depth == 0:
				seen["empty"]++
			case tree.Depth < before.Depth:
				seen["lower"]++
			case tree.Depth > before.Depth:
				seen["higher"]++
			}
			m.requireSound(t, tree)
			requireRows(t, m, tree, want)
			require.Nil(t, p.seps[1], "pages may be unmapped later")
			require.Nil(t, p.oldEntries.items[:1][0].sep)
			m.commit(t)
		}
	}
	for _, what := range []string{
		"undivided", "divided", "divided below the root", "a partition is empty", "a partition is lower",
		"a partition is higher", "empty", "lower", "higher",
	} {
		require.Positive(t, seen[what], "%s: %v", what, seen)
	}
}

// partsTree makes a tree of random rows, and its model. pad is the padding of its keys.
func partsTree(t *testing.T, r *rand.Rand, m *memory) (keys, pad int, want *model, tree Tree) {
	t.Helper()
	pad, keys = r.IntN(m.pageSize/6), 20+r.IntN(6000)
	if pad > 200 {
		keys = 20 + keys/8
	}
	want = newModel()
	for range r.IntN(2 * keys) {
		key, value := partsKey(r.IntN(keys), pad), make([]byte, r.IntN(60))
		_, err := Put(m, &tree, key, value, 0)
		require.NoError(t, err)
		want.put(string(key), value, 0)
	}
	return keys, pad, want, tree
}

// applyInPartitions applies the changes to n partitions, in random interleaving, and to the model.
func applyInPartitions(
	t *testing.T, r *rand.Rand, m *memory, p *Partitions, n int, changes []Change, want *model,
) {
	t.Helper()
	of := make([][]Change, n)
	for _, c := range changes {
		i := p.Index(c.Key)
		require.True(t, i == 0 || bytes.Compare(p.seps[i], c.Key) <= 0)
		require.True(t, i == n-1 || bytes.Compare(c.Key, p.seps[i+1]) < 0)
		of[i] = append(of[i], c)
	}
	cursors := make([]InsertCursor, n)
	for left := len(changes); left > 0; {
		i := r.IntN(n)
		some := of[i][:min(len(of[i]), 1+r.IntN(MaxDescent))]
		of[i] = of[i][len(some):]
		left -= len(some)
		require.NoError(t, Prefetch(m, *p.Tree(i), &cursors[i], some))
		for k := range some {
			c := &some[k]
			was, err := cursors[i].Apply(m, p.Tree(i), c)
			require.NoError(t, err)
			if c.Delete {
				require.Equal(t, want.delete(string(c.Key)), was)
			} else {
				require.Equal(t, want.put(string(c.Key), c.Value, c.Tag), was)
			}
		}
	}
}

// someParts makes changes of a random kind: scattered ones, mostly deletions, deletions of all
// rows, or changes of one end.
func someParts(r *rand.Rand, keys, pad int, now *model) (changes []Change) {
	kind := r.IntN(5)
	from, n := 0, 1+r.IntN(2*keys)
	switch kind {
	case 1: // delete all
		for _, key := range now.keys {
			changes = append(changes, Change{Key: []byte(key), Delete: true})
		}
		r.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
		return changes
	case 2: // delete nearly all
		for _, key := range now.keys {
			if r.IntN(20) > 0 {
				changes = append(changes, Change{Key: []byte(key), Delete: true})
			}
		}
		return changes
	case 3: // one end
		from = keys / 3
	}
	for range n {
		c := Change{Key: partsKey(from+r.IntN(keys-from), pad)}
		if kind == 4 { // between the existing keys
			c.Key = append(c.Key, byte(r.IntN(256)))
		}
		if c.Delete = r.IntN(3) == 0; !c.Delete {
			c.Value, c.Tag = make([]byte, r.IntN(60)), randomTag(r)
		}
		changes = append(changes, c)
	}
	return changes
}

// TestPartitionDividesTheChangesEvenly: about as many to each partition, and no division without a
// benefit.
func TestPartitionDividesTheChangesEvenly(t *testing.T) {
	racetest.OneGoroutine(t)
	m := newMemory(4096)
	tree := load(t, m, 80_000, 40)
	require.Equal(t, uint8(3), tree.Depth)
	r := rand.New(rand.NewPCG(5, 6))
	divide := func(most int, key func(i int) int) []int {
		changes := make([]Change, 3000)
		for i := range changes {
			changes[i].Key = number(key(i))
		}
		var p Partitions
		n, err := p.Partition(m, tree, changes, most)
		require.NoError(t, err)
		shares := make([]int, n)
		for i := range changes {
			if n > 1 {
				shares[p.Index(changes[i].Key)]++
			}
		}
		return shares
	}
	anywhere := func(int) int { return r.IntN(80_000) }
	for _, most := range []int{2, 3, 4, 8} {
		shares := divide(most, anywhere)
		require.Len(t, shares, most)
		require.Less(t, slices.Max(shares), 2*3000/most, "%v", shares)
		require.Greater(t, slices.Min(shares), 3000/most/2, "%v", shares)
	}
	require.Len(t, divide(4, func(i int) int { return i * 20 }), 4, "in order, but all over the tree")
	require.Len(t, divide(4, func(i int) int { return 80_000 + i }), 1, "above all keys")
	require.Len(t, divide(4, func(i int) int { return 30_000 + i%10 }), 1, "all in one range")
	half := divide(4, func(i int) int { return 30_000 + i%10 + i%2*i*9 })
	require.Greater(t, len(half), 1, "half in one range")
	require.Greater(t, len(divide(4, func(i int) int { return i % 4 * i * 5 })), 1, "a quarter in one range")
	require.Len(t, divide(1, anywhere), 1)
	require.GreaterOrEqual(t, len(divide(MaxPartitions, anywhere)), 8, "as far as the root has children")
	require.Len(t, divide(4, func(i int) int { return i % 2 * 59_000 }), 2, "in two ranges")
}

// TestPartitionReturnsErrorsOfPagesAndWriter: damage and a full Writer; a failed Merge leaves the
// tree.
func TestPartitionReturnsErrorsOfPagesAndWriter(t *testing.T) {
	m := newMemory(4096)
	tree := load(t, m, 60_000, 40)
	var changes []Change
	for i := range 1000 {
		changes = append(changes, Change{Key: number(i * 60)})
	}
	var p Partitions
	for _, wrong := range []Tree{{Root: tree.Root, Depth: 2}, {Root: tree.Root, Depth: maxDepth + 1}} {
		_, err := p.Partition(m, wrong, changes, 4)
		require.ErrorIs(t, err, badfile.ErrCorrupt)
	}
	for _, small := range []Tree{{}, {Root: tree.Root, Depth: 1}} {
		n, err := p.Partition(m, small, changes, 4)
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	n, err := p.Partition(m, tree, changes, 4)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	full := errors.New("full")
	m.fail = full
	again := tree
	require.ErrorIs(t, p.Merge(m, &again), full)
	require.Equal(t, tree, again)
	_, err = p.Partition(m, tree, changes, 4)
	require.ErrorIs(t, err, full)
}

// TestBranchesHoldEntriesOfAnySize: evenly filled, and none too full.
func TestBranchesHoldEntriesOfAnySize(t *testing.T) {
	racetest.OneGoroutine(t)
	r := rand.New(rand.NewPCG(8, 9))
	for range racetest.Sample(300, 60) {
		size := pager.MinPageSize << r.IntN(4)
		m := newMemory(size)
		items := make([]item, 1+r.IntN(600))
		rows, most := uint64(0), 1+r.IntN(MaxKey(size)-6)
		for i := range items {
			leaf, b, err := m.New(pager.KindLeaf, 0)
			require.NoError(t, err)
			initLeaf(b, &cell{})
			sp := partsKey(i, r.IntN(most))
			var c cell
			c.set(sp, nil, 0)
			leafInsert(b, 0, &c, true)
			items[i] = item{sp, leaf, 1}
			rows++
		}
		tree, err := buildBranches(m, 1, items)
		require.NoError(t, err)
		require.Equal(t, rows, tree.Rows)
		m.requireSound(t, tree)
		if itemsSize(items)-len(items[0].sep) <= size-offHeads {
			require.Equal(t, uint8(2), tree.Depth)
		}
	}
}
