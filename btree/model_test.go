package btree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/pager"
)

// TestTreeMatchesSortedMap runs the same random operations on a tree and on a sorted map. After
// each transaction it checks the whole tree, that no page leaks, and reads in both directions.
func TestTreeMatchesSortedMap(t *testing.T) {
	var layouts [2]atomic.Int64
	var sameShape atomic.Int64
	t.Cleanup(func() { // A run with -run may have one layout only.
		if sameShape.Load() > 1 {
			require.Positive(t, layouts[0].Load(), "leaves that are not uniform")
			require.Positive(t, layouts[1].Load(), "uniform leaves")
		}
	})
	for _, pageSize := range []int{4096, 8192, 16384, 65536} {
		for _, ks := range keySpaces {
			t.Run(fmt.Sprintf("%d/%s", pageSize, ks.name), func(t *testing.T) {
				t.Parallel()
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				some := runModel(t, seed, pageSize, ks)
				if ks.sameShape != nil && pageSize == pager.MinPageSize {
					sameShape.Add(1)
					layouts[0].Add(int64(some[false]))
					layouts[1].Add(int64(some[true]))
				}
			})
		}
	}
}

// A modelRun is a tree, the model, and the source of the random operations on both.
type modelRun struct {
	t        *testing.T
	r        *rand.Rand
	m        *memory
	want     *model
	pageSize int
	ks       keySpace
	tree     Tree
	cursor   InsertCursor
}

// key returns an existing key or a new one.
func (run *modelRun) key() []byte {
	if keys := run.want.keys; len(keys) > 0 && run.r.IntN(3) == 0 {
		return []byte(keys[run.r.IntN(len(keys))])
	}
	return run.ks.key(run.r, run.pageSize)
}

// runModel returns the number of leaves of each layout that it has seen, see countLayouts.
func runModel(t *testing.T, seed uint64, pageSize int, ks keySpace) (layouts map[bool]int) {
	r := rand.New(rand.NewPCG(seed, 0))
	m := newMemory(pageSize)
	m.low = r.IntN(2) == 0
	run := &modelRun{t: t, r: r, m: m, want: newModel(), pageSize: pageSize, ks: ks}
	layouts = map[bool]int{}
	batches := 40
	if testing.Short() {
		batches = 10
	}
	for batch := range batches {
		m.deltas = batch%3 > 0
		for range 20 + r.IntN(150) {
			run.change(batch%8 < 5)
		}
		run.cursor = InsertCursor{}
		if r.IntN(4) == 0 {
			run.deleteRange()
		}
		if r.IntN(6) == 0 {
			run.relocate()
		}
		if r.IntN(6) == 0 {
			run.fill()
		}
		requireSame(t, m, run.tree, run.want, r, run.key)
		m.commit(t)
		m.requireSound(t, run.tree)
		countLayouts(t, m, run.tree, layouts)
	}
	if ks.sameShape == nil { // else all rows may fit into a page or two
		require.Positive(t, m.readForUpdate)
	}
	// Other key spaces have few deltas.
	if pageSize == 4096 && ks.name == "random_16" {
		require.Positive(t, m.storedDeltas)
	}
	run.freeTree()
	return layouts
}

// change applies one random operation, or a batch of changes. The tree grows or shrinks.
func (run *modelRun) change(grow bool) {
	t, r, m, want := run.t, run.r, run.m, run.want
	if r.IntN(15) == 0 {
		runBatch(t, r, m, &run.tree, &run.cursor, want, func() Change {
			value, tag := run.ks.row(r, run.pageSize)
			return Change{Key: run.key(), Value: value, Tag: tag, Delete: (r.IntN(8) < 6) != grow}
		})
		return
	}
	k := run.key()
	switch op := r.IntN(100); {
	case op < 10:
		_, tag := run.ks.row(r, run.pageSize)
		was, err := SetTag(m, &run.tree, k, tag)
		require.NoError(t, err)
		require.Equal(t, want.info(string(k)), was)
		if row, ok := want.rows[string(k)]; ok {
			want.rows[string(k)] = modelRow{row.value, tag}
		}
	case grow && op < 85 || !grow && op < 25:
		v, tag := run.ks.row(r, run.pageSize)
		was, err := run.cursor.Put(m, &run.tree, k, v, tag)
		require.NoError(t, err)
		require.Equal(t, want.put(string(k), v, tag), was)
		return
	default:
		before, used := run.tree, m.inUse()
		was, err := Delete(m, &run.tree, k)
		require.NoError(t, err)
		require.Equal(t, want.delete(string(k)), was)
		if !was.Found {
			require.Equal(t, before, run.tree)
			require.Equal(t, used, m.inUse())
		}
	}
	run.cursor = InsertCursor{}
}

func (run *modelRun) deleteRange() {
	r, keys := run.r, run.want.keys
	var lo, hi []byte
	if r.IntN(8) > 0 {
		lo = run.key()
	}
	if r.IntN(8) > 0 {
		hi = run.key()
	}
	if r.IntN(2) == 0 && len(keys) > 0 { // a narrow one
		i := r.IntN(len(keys))
		lo, hi = []byte(keys[i]), []byte(keys[min(i+r.IntN(30), len(keys)-1)])
	}
	rows, err := DeleteRange(run.m, &run.tree, lo, hi)
	require.NoError(run.t, err)
	require.Equal(run.t, run.want.deleteRange(lo, hi), int(rows))
}

func (run *modelRun) relocate() {
	r, m := run.r, run.m
	step := Move{Limit: pager.Pgid(r.IntN(len(m.pages) + 1)), Most: 1 + r.IntN(20)}
	if r.IntN(2) == 0 {
		step.Since = m.epoch - pager.Epoch(r.IntN(min(4, int(m.epoch))))
	}
	for range 1 + r.IntN(3) {
		moved, err := Relocate(m, &run.tree, step)
		require.NoError(run.t, err)
		if step.From = moved.Next; moved.Next == nil {
			return
		}
	}
}

// fill fills the tree in steps, not always to its end.
func (run *modelRun) fill() {
	step := FillStep{Reads: 1 + run.r.IntN(20)}
	for range 1 + run.r.IntN(30) {
		filled, err := Fill(run.m, &run.tree, step)
		require.NoError(run.t, err)
		if step.From = filled.Next; filled.Next == nil {
			return
		}
	}
}

// freeTree frees the tree in steps and compares the rest after each.
func (run *modelRun) freeTree() {
	t, m, want := run.t, run.m, run.want
	for {
		rows := run.tree.Rows
		done, err := FreeTree(m, &run.tree, 1+run.r.IntN(30))
		require.NoError(t, err)
		for _, k := range want.keys[run.tree.Rows:] {
			delete(want.rows, k)
		}
		want.keys = want.keys[:run.tree.Rows]
		m.commit(t)
		m.requireSound(t, run.tree)
		if done {
			require.Zero(t, run.tree)
			require.Zero(t, m.inUse())
			return
		}
		require.LessOrEqual(t, run.tree.Rows, rows)
		requireSame(t, m, run.tree, want, run.r, run.key)
	}
}

// countLayouts adds the uniform leaves to layouts[true], and the others to layouts[false].
func countLayouts(t *testing.T, m *memory, tree Tree, layouts map[bool]int) {
	t.Helper()
	require.NoError(t, Walk(m, tree, func(ref pager.Ref, level uint8) (bool, error) {
		if level > 0 {
			return true, nil
		}
		b, err := m.Page(ref)
		if err == nil {
			layouts[uniform(b)]++
		}
		return true, err
	}))
}

// runBatch applies a batch of changes that are prefetched together.
func runBatch(
	t *testing.T, r *rand.Rand, m *memory, tree *Tree, cursor *InsertCursor, want *model,
	change func() Change,
) {
	t.Helper()
	changes := make([]Change, 1+r.IntN(MaxDescent))
	for i := range changes {
		changes[i] = change()
	}
	if r.IntN(3) == 0 {
		slices.SortFunc(changes, func(a, b Change) int { return bytes.Compare(a.Key, b.Key) })
	}
	require.NoError(t, Prefetch(m, *tree, cursor, changes))
	for i := range changes {
		c := &changes[i]
		row := want.rows[string(c.Key)].value
		if c.Delete {
			c.Value = [][]byte{nil, row, c.Value}[r.IntN(3)]
		}
		other := !bytes.Equal(c.Value, row) || len(row) > MaxInline(m.pageSize, len(c.Key))
		kept := c.Delete && c.Value != nil && other
		was, err := cursor.Apply(m, tree, c)
		require.NoError(t, err)
		if kept {
			require.Zero(t, was)
		} else if c.Delete {
			require.Equal(t, want.delete(string(c.Key)), was)
		} else {
			require.Equal(t, want.put(string(c.Key), c.Value, c.Tag), was)
		}
	}
}

// requireSame compares the tree with the model: all rows in both directions, and reads of single
// keys.
func requireSame(t *testing.T, m *memory, tree Tree, want *model, r *rand.Rand, pick func() []byte) {
	t.Helper()
	m.requireSound(t, tree)
	require.Equal(t, len(want.keys), int(tree.Rows))
	var c Cursor
	c.Reset(m, tree)
	n := 0
	for ok := c.First(); ok; ok = c.Next() {
		if n >= len(want.keys) || string(c.Key()) != want.keys[n] {
			require.Fail(t, "scan", "row %d is %q", n, c.Key())
		}
		row := want.rows[want.keys[n]]
		if !bytes.Equal(c.Value(), row.value) || c.Tag() != row.tag || c.Size() != len(row.value) {
			require.Fail(t, "scan", "value of row %d, key %q", n, c.Key())
		}
		n++
	}
	require.NoError(t, c.Err())
	require.Equal(t, len(want.keys), n)
	require.False(t, c.Valid())
	require.Nil(t, c.Key())
	require.Nil(t, c.Value())
	require.False(t, c.Next())
	for c.Prev() {
		n--
		if n < 0 || string(c.Key()) != want.keys[n] {
			require.Fail(t, "scan back", "row %d is %q", n, c.Key())
		}
	}
	require.NoError(t, c.Err())
	require.Zero(t, n)
	require.False(t, c.Prev())
	require.Equal(t, len(want.keys) > 0, c.Next())
	for range 40 {
		k := pick()
		row, ok := want.rows[string(k)]
		v, found, err := Get(m, tree, k)
		require.NoError(t, err)
		require.Equal(t, ok, found)
		info, err := GetInfo(m, tree, k)
		require.NoError(t, err)
		require.Equal(t, want.info(string(k)), info)
		if ok {
			require.True(t, bytes.Equal(row.value, v.Bytes))
			require.Equal(t, row.tag, v.Tag)
		}
		i, _ := want.indexRange(k, nil)
		rank, err := Rank(m, tree, k)
		require.NoError(t, err)
		require.Equal(t, uint64(i), rank)
		at := func(ok bool, i int) {
			t.Helper()
			require.NoError(t, c.Err())
			require.Equal(t, i >= 0 && i < len(want.keys), ok)
			require.Equal(t, ok, c.Valid())
			if ok {
				require.Equal(t, want.keys[i], string(c.Key()))
			}
		}
		if r.IntN(2) == 0 {
			at(c.Seek(k), i)
		} else {
			i--
			at(c.SeekBefore(k), i)
		}
		for range 3 { // a short walk, over both ends and back
			if r.IntN(2) == 0 {
				i = min(i+1, len(want.keys))
				at(c.Next(), i)
			} else {
				i = max(i-1, -1)
				at(c.Prev(), i)
			}
		}
	}
}
