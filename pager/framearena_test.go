package pager

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestFramesKeepTheirContentWhileMemoryIsPrefaulted by goroutines, which end before the arena is
// closed.
func TestFramesKeepTheirContentWhileMemoryIsPrefaulted(t *testing.T) {
	const pageSize = 4096
	a := frameArena{pageSize: pageSize}
	frames := map[unsafe.Pointer]uint64{}
	for i := range uint64(93 << 19 / pageSize) {
		f, err := a.alloc()
		require.NoError(t, err)
		_, twice := frames[f]
		require.False(t, twice)
		frames[f] = i
		words := unsafe.Slice((*uint64)(f), pageSize/8)
		require.Zero(t, words[0], "fresh memory")
		words[0], words[len(words)-1] = i, i
	}
	for f, i := range frames {
		words := unsafe.Slice((*uint64)(f), pageSize/8)
		require.True(t, words[0] == i && words[len(words)-1] == i)
	}
	a.close()
}

// TestTrimGivesRunsOfFreeFramesBack, and no frames in use; alloc reuses their addresses before it
// allocates new slabs. 405 MB of frames stayed with a process after a checkpoint, so that the page
// cache starved; then, where a checkpoint beside commits had left a frame in use in each huge page, all
// 64 MB of a cgroup of 256 MB.
func TestTrimGivesRunsOfFreeFramesBack(t *testing.T) {
	const pageSize, between = 4096, 100
	a := frameArena{pageSize: pageSize, scarce: func() bool { return true }}
	defer a.close()
	frames := map[unsafe.Pointer]uint64{}
	var order []unsafe.Pointer
	for i := range uint64(40 << 20 / pageSize) {
		f, err := a.alloc()
		require.NoError(t, err)
		*(*uint64)(f) = i
		frames[f], order = i, append(order, f)
	}
	var kept []unsafe.Pointer
	for i, f := range order {
		if i%between == 7 || i%between < 5 {
			kept = append(kept, f)
			continue
		}
		a.release(f)
	}
	a.trim()
	require.Equal(t, len(a.slabs), a.small)
	released := 0
	for _, run := range a.trimmed {
		require.GreaterOrEqual(t, len(run), trimRun*pageSize)
		released += len(run)
	}
	require.Greater(t, released, len(order)*pageSize*9/10)
	gone, slabs := len(a.trimmed), len(a.slabs)
	a.trim()
	require.Len(t, a.trimmed, gone)
	for _, f := range kept {
		require.Equal(t, frames[f], *(*uint64)(f), "what is in use stays")
	}
	used := map[unsafe.Pointer]bool{}
	for _, f := range kept {
		used[f] = true
	}
	for range len(order) - len(kept) + len(a.uncut)/pageSize {
		f, err := a.alloc()
		require.NoError(t, err)
		require.False(t, used[f], "twice")
		used[f] = true
	}
	require.Empty(t, a.trimmed)
	require.Len(t, a.slabs, slabs)
}

func TestFramesAreReusedLastFreedFirst(t *testing.T) {
	p := memoryBed().newPager(t, MinPageSize)
	a, first, err := p.New(7, AllocPolicy{})
	require.NoError(t, err)
	b, second, err := p.New(7, AllocPolicy{})
	require.NoError(t, err)
	require.NoError(t, p.Unused(a, 1))
	require.NoError(t, p.Unused(b, 1))
	id, frame, err := p.New(8, AllocPolicy{})
	require.NoError(t, err)
	require.Equal(t, b, id, "the hot stack keeps numbers dense")
	require.Same(t, &second[0], &frame[0])
	require.Equal(t, uint64(8), p.Pool.Owner(b))
	id, frame, err = p.New(8, AllocPolicy{})
	require.NoError(t, err)
	require.Equal(t, a, id)
	require.Same(t, &first[0], &frame[0])

	// Reuse returns a page of the transaction in its own frame, or in a new one if it was spilled.
	again, err := p.Reuse(a, 9)
	require.NoError(t, err)
	require.Same(t, &first[0], &again[0])
	require.Equal(t, uint64(9), p.Pool.Owner(a))
	WriteHeader(again, Header{Pgid: a, Epoch: 2, Kind: KindLeaf})
	again[HeaderSize] = 77
	require.NoError(t, p.WriteEarly([]Pgid{a}))
	p.FreeFrames([]Pgid{a})
	require.False(t, p.Pool.InFrame(a))
	page := mustPage(t, p, Ref{a, 2}, 1)
	require.Equal(t, byte(77), filled(page))
	edit, err := p.Frame(Ref{a, 2}, p.Reader.View(1, Newest))
	require.NoError(t, err)
	require.Equal(t, byte(77), filled(edit))
	require.True(t, p.Pool.InFrame(a))
	same, err := p.Frame(Ref{a, 2}, p.Reader.View(1, Newest))
	require.NoError(t, err)
	require.Same(t, &edit[0], &same[0])
	require.NoError(t, p.WriteEarly([]Pgid{a}))
	p.FreeFrames([]Pgid{a})
	_, err = p.Reuse(a, 10)
	require.NoError(t, err)
	require.False(t, p.Pool.InFrame(1<<40))
	require.Zero(t, p.Pool.Owner(1<<40))
}

func TestArenaReusesFreedFramesAndCutsLargerSlabs(t *testing.T) {
	a := frameArena{pageSize: 65536}
	defer a.close()
	seen := map[*byte]bool{}
	var frames []*byte
	for range 300 {
		f, err := a.alloc()
		require.NoError(t, err)
		b := (*byte)(f)
		require.False(t, seen[b])
		seen[b] = true
		frames = append(frames, b)
	}
	require.Equal(t, int64(300*65536), a.bytes())
	require.Greater(t, len(a.slabs), 3)
	require.Less(t, len(a.slabs), 10)
	slabs := len(a.slabs)
	f, _ := a.alloc()
	a.release(f)
	for range 50 {
		again, err := a.alloc()
		require.NoError(t, err)
		require.Equal(t, f, again)
		a.release(again)
	}
	require.Len(t, a.slabs, slabs)
	require.NotEmpty(t, frames)
}
