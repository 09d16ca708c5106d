package vfs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestMapReadsOnlyWhatIsTouched. The read-ahead of the system brought in 128 KiB and more for each
// page: a store that was larger than memory lost its pages to such that were not wanted.
func TestMapReadsOnlyWhatIsTouched(t *testing.T) {
	if !canMap {
		t.Skip("no maps on 32 bits")
	}
	const size = 16 << 20
	name := filepath.Join(t.TempDir(), "a")
	require.NoError(t, os.WriteFile(name, make([]byte, size), 0o600))
	f, err := OS.Open(name, Write)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Sync())
	view, err := f.Map(0, size)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Unmap(view)) }()
	require.NoError(t, control(f.(*osFile).f, func(fd uintptr) error {
		return unix.Fadvise(int(fd), 0, 0, unix.FADV_DONTNEED)
	}))
	if f.Resident(view[size/2:size/2+4096], 4096) != 0 {
		t.Skip("this file system has no page cache, or does not let go of it")
	}
	before := view[size/2]
	require.EqualValues(t, 1, f.Resident(view[size/2:size/2+1], 1))
	resident := 0
	for at := 0; at < size; at += 4096 {
		if f.Resident(view[at:at+1], 1) != 0 {
			resident++
		}
	}
	require.Less(t, resident, 32, "pages around the one that was touched")
	f.ReadAhead(view[:1<<20])
	for at := 0; at < 1<<20; at += 4096 {
		before |= view[at] // waits for the disk where it has to
	}
	require.Zero(t, before)
	require.EqualValues(t, 0xff, f.Resident(view[:128<<10], 16<<10))
	across := f.Resident(view[1<<20-64<<10+1:][:128<<10], 16<<10)
	require.EqualValues(t, 7, across&7)
	require.NotEqualValues(t, 0xff, across, "not all of it")
	require.Zero(t, f.Resident(view[:(MaxResident+1)*os.Getpagesize()], 64<<10), "more than one call tells")
}
