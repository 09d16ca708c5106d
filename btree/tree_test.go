package btree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
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
	for id := range m.pages { // they stay readable
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
	for _, n := range []int{MaxInline(4096, MaxKey(4096)), MaxInline(4096, MaxKey(4096)) + 1} {
		_, err = Put(m, &tree, bytes.Repeat([]byte{byte(n)}, MaxKey(4096)), make([]byte, n), 1)
		require.NoError(t, err)
	}
	m.commit(t)
	m.requireSound(t, tree)
	require.Equal(t, 2, m.inUse(), "one leaf, and one extent of one page")
}

// TestRowsOfAKilobyteShareLeaves: each took a page of its own beside its leaf, since only values of a
// quarter of a page were inline, and the file was four times its data.
func TestRowsOfAKilobyteShareLeaves(t *testing.T) {
	for size, inLeaf := range map[int]int{1000: 3, 1300: 3, 1900: 2, MaxInline(4096, 8): 2} {
		m := newMemory(4096)
		b := NewBuilder(m)
		const rows = 60
		for i := range rows {
			require.NoError(t, b.Add(number(i), make([]byte, size), 1))
		}
		tree, err := b.Finish()
		require.NoError(t, err)
		require.Equal(t, rows/inLeaf+1, m.inUse(), "leaves and a root, values of %d bytes", size)
		m.requireSound(t, tree)
	}
}

func TestReplacingAValueFreesItsExtent(t *testing.T) {
	m := newMemory(4096)
	var tree Tree
	for i, size := range []int{10_000, 5000, 10, 20, 20_000, MaxInline(4096, 1)} {
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

func TestErrorsOfTheWriterAreReturned(t *testing.T) {
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
	for i = range 1002 { // The puts below then replace cells of equal size.
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
	}), "Put of an existing key")
	i = 20_000
	require.LessOrEqual(t, testing.AllocsPerRun(5000, func() {
		i++
		if _, err := Put(a, &tree, benchKey(key, i), value, 0); err != nil {
			t.Error(err)
		}
	}), 0.05, "Put of a new key: the slices of the arena and a lost scratch")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		i--
		if was, err := Delete(a, &tree, benchKey(key, i)); !was.Found || err != nil {
			t.Error(was, err)
		}
		a.later, a.free = a.later[:0], a.free[:0]
	}), "Delete")
}
