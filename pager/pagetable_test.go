package pager

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsedSetDiff(t *testing.T) {
	u := &UsedSet{words: make([]uint64, 3), end: 130}
	v := u.Empty()
	require.True(t, u.Add(5))
	require.False(t, u.Add(5))
	require.False(t, u.Add(130))
	require.False(t, u.Add(1<<64-1))
	require.True(t, v.Add(5))
	require.True(t, v.Add(129))
	require.True(t, u.Add(64))
	var got []Pgid
	u.Diff(v, func(id Pgid, inU bool) bool {
		require.Equal(t, id == 64, inU)
		got = append(got, id)
		return true
	})
	require.Equal(t, []Pgid{64, 129}, got)
	u.Diff(v, func(id Pgid, _ bool) bool { require.Equal(t, Pgid(64), id); return false })
}

// TestTablesKeepTheirContentWhenTheyGrow: other goroutines may look at a slot while the directory
// above it is made longer.
func TestTablesKeepTheirContentWhenTheyGrow(t *testing.T) {
	var tab pageTable[cleanSlot]
	var set pageSet
	first := tab.slot(5)
	set.add(5)
	for _, id := range []Pgid{1 << 16, 1 << 20, 1 << 26} {
		tab.slot(id)
		set.add(id)
		require.Same(t, first, tab.peek(5))
		require.True(t, set.has(5))
	}
}

func TestTablesGrowUnderConcurrentReaders(t *testing.T) {
	var tab pageTable[cleanSlot]
	var set pageSet
	require.Nil(t, tab.peek(1<<63))
	require.False(t, set.has(1<<63))
	set.remove(1 << 63)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 300 {
				id := Pgid(i*977 + g*1_000_003)
				tab.slot(id).hot.Store(true)
				set.add(id)
				if !tab.peek(id).hot.Load() || !set.has(id) {
					t.Errorf("page %d is lost", id)
				}
			}
		}()
	}
	wg.Wait()
	set.remove(977)
	require.False(t, set.has(977))
	require.True(t, set.has(2*977))
}

// TestTableOutsideTheHeap: its slots begin empty, stay where they are, and are gone after close,
// which frees them once.
func TestTableOutsideTheHeap(t *testing.T) {
	var tab pageTable[Epoch]
	tab.offHeap = true
	*tab.slot(5), *tab.slot(40 * tableChunk) = 1, 2
	first := tab.peek(5)
	for i := range Pgid(3 * tableChunk) {
		*tab.slot(i)++
	}
	require.Same(t, first, tab.peek(5))
	require.EqualValues(t, 2, *first)
	require.EqualValues(t, 2, *tab.peek(40 * tableChunk))
	require.Len(t, tab.slabs, 4, "one for each chunk in use")
	tab.close()
	tab.close()
	require.Nil(t, tab.peek(5))
}
