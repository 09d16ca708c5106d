package btree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/pager"
)

// A model is a sorted map that the tree is compared with.
type model struct {
	keys []string // sorted
	rows map[string]modelRow
}

type modelRow struct {
	value []byte
	tag   int64
}

func newModel() *model { return &model{rows: map[string]modelRow{}} }

func (m *model) info(key string) Info {
	row, ok := m.rows[key]
	return Info{len(row.value), row.tag, ok}
}

func (m *model) put(key string, value []byte, tag int64) (was Info) {
	was = m.info(key)
	if i, existed := slices.BinarySearch(m.keys, key); !existed {
		m.keys = slices.Insert(m.keys, i, key)
	}
	m.rows[key] = modelRow{bytes.Clone(value), tag}
	return was
}

func (m *model) delete(key string) (was Info) {
	was = m.info(key)
	if i, existed := slices.BinarySearch(m.keys, key); existed {
		m.keys = slices.Delete(m.keys, i, i+1)
		delete(m.rows, key)
	}
	return was
}

// randomTag is often none, and as often one that other rows have as others.
func randomTag(r *rand.Rand) int64 {
	return [...]int64{0, 0, 0, 1, -1, int64(r.Uint64()) | 1}[r.IntN(6)]
}

// span returns the places of the keys in [lo, hi); a nil bound is no bound.
func (m *model) span(lo, hi []byte) (i, j int) {
	j = len(m.keys)
	if lo != nil {
		i, _ = slices.BinarySearch(m.keys, string(lo))
	}
	if hi != nil {
		j, _ = slices.BinarySearch(m.keys, string(hi))
	}
	return i, max(i, j)
}

func (m *model) deleteRange(lo, hi []byte) int {
	i, j := m.span(lo, hi)
	for _, k := range m.keys[i:j] {
		delete(m.rows, k)
	}
	m.keys = slices.Delete(m.keys, i, j)
	return j - i
}

// A keySpace makes keys that stress one side of the page layout.
type keySpace struct {
	name string
	key  func(r *rand.Rand, pageSize int) []byte
	// alike, if not nil, is the value of most rows, and tagged says that these have a tag: with
	// keys of one size their leaves are uniform.
	alike  []byte
	tagged bool
}

// row makes the value and the tag of a row.
func (ks *keySpace) row(r *rand.Rand, pageSize int) (value []byte, tag int64) {
	if ks.alike == nil || r.IntN(60*pageSize/pager.MinPageSize) == 0 { // some leaves have one
		if r.IntN(4) == 0 {
			return make([]byte, MaxInline(pageSize)), 1
		}
		return randomValue(r, pageSize), randomTag(r)
	}
	if ks.tagged {
		tag = int64(r.Uint64()) | 1
	}
	return ks.alike, tag
}

var keySpaces = []keySpace{
	{name: "few_small", key: func(r *rand.Rand, _ int) []byte { return fmt.Appendf(nil, "%d", r.IntN(3000)) }},
	{name: "alike", alike: make([]byte, 100), key: func(r *rand.Rand, _ int) []byte {
		return fmt.Appendf(nil, "%016x", r.Uint64()>>44<<20)
	}},
	{name: "alike_small_tagged", alike: []byte{}, tagged: true, key: func(r *rand.Rand, _ int) []byte {
		return fmt.Appendf(nil, "%08d", r.IntN(6000)) // with the tag as small as a leaf of such rows may have
	}},
	{name: "alike_and_limit", alike: make([]byte, 8), key: func(r *rand.Rand, pageSize int) []byte {
		key := fmt.Appendf(nil, "%08d", r.IntN(6000))
		if r.IntN(100) == 0 {
			key = append(key, make([]byte, MaxKey(pageSize)-len(key))...)
		}
		return key
	}},
	{name: "alike_but_for_some_keys", alike: make([]byte, 40), key: func(r *rand.Rand, _ int) []byte {
		if r.IntN(40) == 0 {
			return fmt.Appendf(nil, "%d/%d", r.IntN(3000), r.IntN(5))
		}
		return fmt.Appendf(nil, "%08d", r.IntN(3000))
	}},
	{name: "random_16", key: func(r *rand.Rand, _ int) []byte {
		return fmt.Appendf(nil, "%016x", r.Uint64()>>44<<20)
	}},
	{name: "shared_prefix", key: func(r *rand.Rand, _ int) []byte {
		return fmt.Appendf(nil, "tenant/%03d/table/%02d/row/%08d", r.IntN(4), r.IntN(3), r.IntN(2000))
	}},
	{name: "limit", key: func(r *rand.Rand, pageSize int) []byte {
		n := MaxKey(pageSize)
		b := bytes.Repeat([]byte{byte('a' + r.IntN(2))}, n-r.IntN(3))
		b[r.IntN(len(b))] = byte(r.IntN(5))
		return b
	}},
	{name: "zeros_and_empty", key: func(r *rand.Rand, _ int) []byte {
		b := make([]byte, r.IntN(14))
		for i := range b {
			if r.IntN(4) == 0 {
				b[i] = byte(r.IntN(3)) * 127
			}
		}
		return b
	}},
	{name: "equal_heads", key: func(r *rand.Rand, _ int) []byte {
		return fmt.Appendf(nil, "%c%s%04d", 'a'+rune(r.IntN(2)), strings.Repeat("x", 20), r.IntN(3000))
	}},
	{name: "any_length", key: func(r *rand.Rand, pageSize int) []byte {
		b := make([]byte, r.IntN(MaxKey(pageSize)+1))
		for i := range b {
			b[i] = byte(r.IntN(2))
		}
		if len(b) > 3 && r.IntN(2) == 0 {
			b = b[:3+r.IntN(len(b)-3)]
		}
		return b
	}},
}

func randomValue(r *rand.Rand, pageSize int) []byte {
	var n int
	switch r.IntN(20) {
	case 0:
		n = MaxInline(pageSize) + r.IntN(3) - 1
	case 1:
		n = r.IntN(3 * pageSize)
	case 2, 3, 4:
		n = r.IntN(MaxInline(pageSize))
	default:
		n = r.IntN(60)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestTreeMatchesSortedMap runs the same random operations on a tree and on a sorted map. After
// each transaction the tree is checked as a whole, no page may leak, and reads in both directions
// must agree.
func TestTreeMatchesSortedMap(t *testing.T) {
	var layouts [2]atomic.Int64
	var alike atomic.Int64
	t.Cleanup(func() { // One of the runs may meet one layout only.
		if alike.Load() > 1 {
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
				if ks.alike != nil && pageSize == pager.MinPageSize {
					alike.Add(1)
					layouts[0].Add(int64(some[false]))
					layouts[1].Add(int64(some[true]))
				}
			})
		}
	}
}

// runModel tells how many leaves of each layout it has met: see countLayouts.
func runModel(t *testing.T, seed uint64, pageSize int, ks keySpace) (layouts map[bool]int) {
	r := rand.New(rand.NewPCG(seed, 0))
	m, want := newMemory(pageSize), newModel()
	m.low = r.IntN(2) == 0
	var tree Tree
	var finger InsertCursor
	pick := func() []byte {
		if len(want.keys) > 0 && r.IntN(3) == 0 {
			return []byte(want.keys[r.IntN(len(want.keys))])
		}
		return ks.key(r, pageSize)
	}
	followed := 0
	layouts = map[bool]int{}
	batches := 40
	if testing.Short() {
		batches = 10
	}
	for batch := range batches {
		grow := batch%8 < 5
		m.patches = batch%3 > 0
		for range 20 + r.IntN(150) {
			if r.IntN(15) == 0 {
				followed += runWays(t, r, m, &tree, &finger, want, func() Change {
					value, tag := ks.row(r, pageSize)
					return Change{Key: pick(), Value: value, Tag: tag, Delete: (r.IntN(8) < 6) != grow}
				})
				continue
			}
			k := pick()
			switch op := r.IntN(100); {
			case op < 10:
				_, tag := ks.row(r, pageSize)
				was, err := SetTag(m, &tree, k, tag)
				require.NoError(t, err)
				require.Equal(t, want.info(string(k)), was)
				if row, ok := want.rows[string(k)]; ok {
					want.rows[string(k)] = modelRow{row.value, tag}
				}
			case grow && op < 85 || !grow && op < 25:
				v, tag := ks.row(r, pageSize)
				was, err := finger.Put(m, &tree, k, v, tag)
				require.NoError(t, err)
				require.Equal(t, want.put(string(k), v, tag), was)
				continue
			default:
				before, used := tree, m.inUse()
				was, err := Delete(m, &tree, k)
				require.NoError(t, err)
				require.Equal(t, want.delete(string(k)), was)
				if !was.Found {
					require.Equal(t, before, tree)
					require.Equal(t, used, m.inUse())
				}
			}
			finger = InsertCursor{}
		}
		finger = InsertCursor{}
		if r.IntN(4) == 0 {
			var lo, hi []byte
			if r.IntN(8) > 0 {
				lo = pick()
			}
			if r.IntN(8) > 0 {
				hi = pick()
			}
			if r.IntN(2) == 0 && len(want.keys) > 0 { // a narrow one
				i := r.IntN(len(want.keys))
				lo, hi = []byte(want.keys[i]), []byte(want.keys[min(i+r.IntN(30), len(want.keys)-1)])
			}
			rows, err := DeleteRange(m, &tree, lo, hi)
			require.NoError(t, err)
			require.Equal(t, want.deleteRange(lo, hi), int(rows))
		}
		if r.IntN(6) == 0 {
			limit := pager.Pgid(r.IntN(len(m.pages) + 1))
			step := Move{Limit: limit, Most: 1 + r.IntN(20)}
			if r.IntN(2) == 0 {
				step.Since = m.epoch - pager.Epoch(r.IntN(min(4, int(m.epoch))))
			}
			for range 1 + r.IntN(3) {
				moved, err := Relocate(m, &tree, step)
				require.NoError(t, err)
				if step.From = moved.Next; moved.Next == nil {
					break
				}
			}
		}
		requireSame(t, m, tree, want, r, pick)
		m.commit(t)
		m.requireSound(t, tree)
		countLayouts(t, m, tree, layouts)
	}
	if ks.alike == nil { // else a page or two may have room for all rows
		require.Positive(t, followed)
		require.Positive(t, m.drafts)
	}
	// There are few where a row is large, joins the one before, or all have one leaf.
	if pageSize == 4096 && ks.name == "random_16" {
		require.Positive(t, m.patched)
	}
	for {
		rows := tree.Rows
		done, err := FreeTree(m, &tree, 1+r.IntN(30))
		require.NoError(t, err)
		for _, k := range want.keys[tree.Rows:] {
			delete(want.rows, k)
		}
		want.keys = want.keys[:tree.Rows]
		m.commit(t)
		m.requireSound(t, tree)
		if done {
			require.Zero(t, tree)
			require.Zero(t, m.inUse())
			return layouts
		}
		require.LessOrEqual(t, tree.Rows, rows)
		requireSame(t, m, tree, want, r, pick)
	}
}

// countLayouts adds the leaves that are uniform to layouts[true], and the others to layouts[false].
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

// runWays carries a bunch of changes out by their ways and counts those whose ways held.
func runWays(
	t *testing.T,
	r *rand.Rand,
	m *memory,
	tree *Tree,
	finger *InsertCursor,
	want *model,
	change func() Change,
) (held int) {
	t.Helper()
	changes := make([]Change, 1+r.IntN(MaxHints))
	for i := range changes {
		changes[i] = change()
	}
	if r.IntN(3) == 0 {
		slices.SortFunc(changes, func(a, b Change) int { return bytes.Compare(a.Key, b.Key) })
	}
	var s PathHints
	require.NoError(t, s.Prefetch(m, *tree, finger, changes))
	for i := range changes {
		c := &changes[i]
		if s.valid && tree.Depth > 1 {
			held++
		}
		row := want.rows[string(c.Key)].value
		if c.Delete {
			c.Value = [][]byte{nil, row, c.Value}[r.IntN(3)]
		}
		kept := c.Delete && c.Value != nil && (!bytes.Equal(c.Value, row) || len(row) > MaxInline(m.pageSize))
		was, err := s.Apply(m, tree, finger, i, c)
		require.NoError(t, err)
		if kept {
			require.Zero(t, was)
		} else if c.Delete {
			require.Equal(t, want.delete(string(c.Key)), was)
		} else {
			require.Equal(t, want.put(string(c.Key), c.Value, c.Tag), was)
		}
	}
	return held
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
		i, _ := want.span(k, nil)
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
		for range 3 { // a short walk from there, over the ends and back
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
