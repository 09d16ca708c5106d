package vfs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestDontNeedGivesMemoryBack looks at how much of the file the process holds, before and after, and
// when it has read it once more.
func TestDontNeedGivesMemoryBack(t *testing.T) {
	if !canMap {
		t.Skip("no maps on 32 bits")
	}
	const size = 64 << 20
	f, err := OS.Open(filepath.Join(t.TempDir(), "a"), Write|Create)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, WriteFull(f, bytes.Repeat([]byte{7}, size), 0))
	view, err := f.Map(0, size)
	require.NoError(t, err)
	sum := func() (n int) {
		for at := 0; at < size; at += os.Getpagesize() {
			n += int(view[at])
		}
		return n
	}
	before := heldBytes(t)
	want := sum()
	all := heldBytes(t)
	require.Greater(t, all, before+size*3/4)
	f.DontNeed(view[1 : size/2])
	require.Less(t, heldBytes(t), all-size/4)
	require.Equal(t, want, sum())
	require.Greater(t, heldBytes(t), before+size*3/4)
	require.NoError(t, f.Unmap(view))
}

// heldBytes is the size of the pages of files that the process holds (proc(5), statm).
func heldBytes(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var total, resident, shared int
	_, err = fmt.Sscan(string(b), &total, &resident, &shared)
	require.NoError(t, err)
	return shared * os.Getpagesize()
}

// cachedPages tells of each of the system's pages of a file whether it is in memory (mincore).
func cachedPages(t *testing.T, name string, size int) []bool {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(b)) }()
	in := make([]byte, size/os.Getpagesize())
	_, _, errno := unix.Syscall(
		unix.SYS_MINCORE,
		uintptr(unsafe.Pointer(&b[0])),
		uintptr(size),
		uintptr(unsafe.Pointer(&in[0])),
	)
	require.Zero(t, errno)
	held := make([]bool, len(in))
	for i, v := range in {
		held[i] = v&1 != 0
	}
	return held
}

// TestDropCacheGivesUpPagesThatNoViewMaps, one by one: what is written in one call the page cache may
// hold in one piece, which it gives up whole or not at all.
func TestDropCacheGivesUpPagesThatNoViewMaps(t *testing.T) {
	if !canMap {
		t.Skip("no maps on 32 bits")
	}
	page, name := os.Getpagesize(), filepath.Join(t.TempDir(), "a")
	f, err := OS.Open(name, Write|Create)
	require.NoError(t, err)
	defer f.Close()
	for i := range 8 {
		require.NoError(t, WriteFull(f, bytes.Repeat([]byte{7}, page), int64(i*page)))
	}
	require.NoError(t, f.Sync()) // What is dirty stays.
	size := 8 * page
	f.DropCache(int64(2*page), int64(3*page))
	if held := cachedPages(t, name, size); held[2] {
		t.Skip("this file system keeps its pages")
	}
	require.Equal(t, []bool{true, true, false, false, false, true, true, true}, cachedPages(t, name, size))
	view, err := f.Map(0, mapAlign)
	require.NoError(t, err)
	require.Equal(t, byte(7), view[6*page])
	f.DropCache(int64(6*page), int64(page))
	require.True(t, cachedPages(t, name, size)[6])
	f.DontNeed(view[6*page : 7*page])
	f.DropCache(int64(6*page), int64(page))
	require.False(t, cachedPages(t, name, size)[6])
	require.Equal(t, byte(7), view[6*page])
	require.NoError(t, f.Unmap(view))
}
