package vfstest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
)

// Run checks a file system. newFS gives a file system and an empty directory in it, anew for each
// subtest.
func Run(t *testing.T, newFS func(t *testing.T) (fsys vfs.FS, dir string)) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, fsys vfs.FS, dir string)
	}{
		{"open_flags_are_kept", openFlags},
		{"files_are_created_with_their_permissions", permissions},
		{"bad_paths_are_refused", badPaths},
		{"reads_give_what_was_written", readWrite},
		{"read_at_the_end_is_EOF", readAtEnd},
		{"growth_reads_as_zeros", growth},
		{"holes_read_as_zeros", holes},
		{"read_only_handles_do_not_write", readOnly},
		{"use_after_close_is_ErrClosed", afterClose},
		{"rename_replaces", rename},
		{"remove_leaves_open_files_alive", remove},
		{"list_is_sorted", list},
		{"locks_exclude_each_other", locks},
		{"file_ids_tell_files_apart", ids},
		{"views_show_the_file", views},
		{"mapped_writes_are_writes", mappedWrites},
		{"direct_writes_are_aligned_or_refused", direct},
		{"concurrent_use_is_safe", concurrent},
		{"big_files_keep_their_bytes", bigFile},
	} {
		t.Run(test.name, func(t *testing.T) {
			fsys, dir := newFS(t)
			test.run(t, fsys, dir)
		})
	}
}

func open(t *testing.T, fsys vfs.FS, name string, flag vfs.Flag) vfs.File {
	t.Helper()
	f, err := fsys.Open(name, flag)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			require.ErrorIs(t, err, fs.ErrClosed)
		}
	})
	return f
}

func write(t *testing.T, f vfs.File, data string, off int64) {
	t.Helper()
	require.NoError(t, vfs.WriteFull(f, []byte(data), off))
}

func contents(t *testing.T, f vfs.File) string {
	t.Helper()
	size, err := f.Size()
	require.NoError(t, err)
	b := make([]byte, size)
	if size > 0 {
		require.NoError(t, vfs.ReadFull(f, b, 0))
	}
	return string(b)
}

func openFlags(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "a")
	for _, flag := range []vfs.Flag{0, vfs.Write} {
		_, err := fsys.Open(name, flag)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	for _, flag := range []vfs.Flag{
		vfs.Create, vfs.Direct, vfs.Write | vfs.Excl, vfs.Write | vfs.Perm(0o600), 1 << 20,
	} {
		_, err := fsys.Open(name, flag)
		require.Error(t, err, "flag %b", flag)
		require.NotErrorIs(t, err, fs.ErrNotExist, "flag %b", flag)
	}
	f := open(t, fsys, name, vfs.Write|vfs.Create|vfs.Excl)
	write(t, f, "kept", 0)
	_, err := fsys.Open(name, vfs.Write|vfs.Create|vfs.Excl)
	require.ErrorIs(t, err, fs.ErrExist)
	require.Equal(t, "kept", contents(t, open(t, fsys, name, vfs.Write|vfs.Create)))
	require.Equal(t, "kept", contents(t, open(t, fsys, name, 0)))
}

// permissions: a file is created with the bits that the flag names, else for its owner alone,
// whichever way it is opened later.
func permissions(t *testing.T, fsys vfs.FS, dir string) {
	for name, perm := range map[string]fs.FileMode{"default": 0, "owner": 0o600, "group": 0o640} {
		name = filepath.Join(dir, name)
		open(t, fsys, name, vfs.Write|vfs.Create|vfs.Perm(perm))
		open(t, fsys, name, vfs.Write|vfs.Create|vfs.Perm(0o604))
		open(t, vfs.WithMode(fsys, perm), name+"2", vfs.Write|vfs.Create|vfs.Excl)
		open(t, vfs.WithMode(fsys, perm), name+"2", vfs.Write)
		if runtime.GOOS == "windows" {
			continue
		}
		if perm == 0 {
			perm = vfs.DefaultMode
		}
		for _, name := range []string{name, name + "2"} {
			info, err := fsys.Stat(name)
			require.NoError(t, err)
			require.Zero(t, info.Mode.Perm()&^perm, "%s: %v", name, info.Mode)
			require.Equal(t, fs.FileMode(0o600), info.Mode.Perm()&0o600, "%s: %v", name, info.Mode)
		}
	}
}

func badPaths(t *testing.T, fsys vfs.FS, dir string) {
	for _, name := range []string{"", "a\x00b"} {
		_, err := fsys.Open(name, vfs.Write|vfs.Create)
		require.ErrorIs(t, err, vfs.ErrInvalidPath)
		_, err = fsys.Stat(name)
		require.ErrorIs(t, err, vfs.ErrInvalidPath)
		_, err = fsys.List(name)
		require.ErrorIs(t, err, vfs.ErrInvalidPath)
		require.ErrorIs(t, fsys.Remove(name), vfs.ErrInvalidPath)
		require.ErrorIs(t, fsys.Rename(name, filepath.Join(dir, "a")), vfs.ErrInvalidPath)
		require.ErrorIs(t, fsys.Rename(filepath.Join(dir, "a"), name), vfs.ErrInvalidPath)
		require.ErrorIs(t, fsys.SyncDir(name), vfs.ErrInvalidPath)
	}
	// A file makes the directory be there in those file systems that have none of their own.
	open(t, fsys, filepath.Join(dir, "a"), vfs.Write|vfs.Create)
	for _, flag := range []vfs.Flag{0, vfs.Write | vfs.Create} {
		_, err := fsys.Open(dir, flag)
		require.ErrorIs(t, err, vfs.ErrNotRegular)
	}
	info, err := fsys.Stat(dir)
	require.NoError(t, err)
	require.True(t, info.Mode.IsDir())
	_, err = fsys.Stat(filepath.Join(dir, "b"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, fsys.Remove(filepath.Join(dir, "b")), fs.ErrNotExist)
	require.ErrorIs(t, fsys.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "c")), fs.ErrNotExist)
	require.NoError(t, fsys.SyncDir(dir))
}

func readWrite(t *testing.T, fsys vfs.FS, dir string) {
	f := open(t, fsys, filepath.Join(dir, "a"), vfs.Write|vfs.Create)
	write(t, f, "hello, world", 0)
	write(t, f, "W", 7)
	write(t, f, "", 3)
	require.Equal(t, "hello, World", contents(t, f))
	write(t, f, "!", 12)
	require.NoError(t, f.SyncData())
	require.NoError(t, f.Sync())
	info, err := fsys.Stat(filepath.Join(dir, "a"))
	require.NoError(t, err)
	require.EqualValues(t, 13, info.Size)
	require.True(t, info.Mode.IsRegular())
	b := make([]byte, 5)
	n, err := f.ReadAt(b, 7)
	require.NoError(t, err)
	require.Equal(t, "World", string(b[:n]))
	_, err = f.ReadAt(b, -1)
	require.Error(t, err)
	_, err = f.WriteAt(b, -1)
	require.Error(t, err)
	require.Error(t, f.Truncate(-1))
}

func readAtEnd(t *testing.T, fsys vfs.FS, dir string) {
	f := open(t, fsys, filepath.Join(dir, "a"), vfs.Write|vfs.Create)
	b := make([]byte, 4)
	for _, off := range []int64{0, 1, 1 << 40} {
		n, err := f.ReadAt(b, off)
		require.Equal(t, io.EOF, err)
		require.Zero(t, n)
	}
	write(t, f, "abcdef", 0)
	n, err := f.ReadAt(b, 4)
	require.Equal(t, io.EOF, err)
	require.Equal(t, "ef", string(b[:n]))
	require.NoError(t, vfs.ReadFull(f, b, 2))
	require.Equal(t, io.ErrUnexpectedEOF, vfs.ReadFull(f, b, 3))
	require.Equal(t, io.EOF, vfs.ReadFull(f, b, 6))
	n, err = f.ReadAt(nil, 0)
	require.NoError(t, err)
	require.Zero(t, n)
}

func growth(t *testing.T, fsys vfs.FS, dir string) {
	f := open(t, fsys, filepath.Join(dir, "a"), vfs.Write|vfs.Create)
	write(t, f, "abc", 5)
	require.Equal(t, "\x00\x00\x00\x00\x00abc", contents(t, f))
	require.NoError(t, f.Truncate(6))
	require.Equal(t, "\x00\x00\x00\x00\x00a", contents(t, f))
	require.NoError(t, f.Truncate(9))
	require.Equal(t, "\x00\x00\x00\x00\x00a\x00\x00\x00", contents(t, f))
	require.NoError(t, f.Grow(3))
	require.Equal(t, "\x00\x00\x00\x00\x00a\x00\x00\x00", contents(t, f), "it only grows")
	require.NoError(t, f.Grow(11))
	require.Equal(t, "\x00\x00\x00\x00\x00a\x00\x00\x00\x00\x00", contents(t, f))
	require.NoError(t, f.Truncate(0))
	require.Equal(t, "", contents(t, f))
	write(t, f, "z", 10000)
	require.NoError(t, f.WriteBack(0, 5000))
	require.NoError(t, f.WriteBack(4096, 1<<20), "also past the end")
	require.NoError(t, f.StartWriteBack(0, 1<<20))
	for _, at := range [][2]int64{{0, 1 << 20}, {0, 8 << 20}, {4096, 6 << 20}, {-1, 8 << 20}, {8 << 20, -1}} {
		f.DropCache(at[0], at[1]) // also past the end
	}
	require.Equal(t, string(make([]byte, 10000))+"z", contents(t, f))
}

func holes(t *testing.T, fsys vfs.FS, dir string) {
	const block, size = 64 << 10, 5 * 64 << 10
	f := open(t, fsys, filepath.Join(dir, "a"), vfs.Write|vfs.Create)
	want := bytes.Repeat([]byte{7}, size)
	require.NoError(t, vfs.WriteFull(f, want, 0))
	require.NoError(t, f.Sync())
	full, err := f.Allocated()
	require.NoError(t, err)
	require.NoError(t, f.Reserve(0, size), "nothing changes")
	same := func() {
		t.Helper()
		got := make([]byte, size)
		require.NoError(t, vfs.ReadFull(f, got, 0))
		require.True(t, bytes.Equal(want, got))
		n, err := f.Size()
		require.NoError(t, err)
		require.EqualValues(t, size, n)
	}
	same()
	err = f.PunchHole(block, 2*block)
	if errors.Is(err, errors.ErrUnsupported) {
		same()
		return
	}
	require.NoError(t, err)
	clear(want[block : 3*block])
	same()
	less, err := f.Allocated()
	require.NoError(t, err)
	require.LessOrEqual(t, less, full-2*block)
	require.NoError(t, f.Reserve(block, block))
	same()
	half, err := f.Allocated()
	require.NoError(t, err)
	require.GreaterOrEqual(t, half, less+block)
	require.NoError(t, vfs.WriteFull(f, want[:2*block], 2*block))
	copy(want[2*block:], want[:2*block])
	same()
	require.NoError(t, f.PunchHole(4*block, block), "at the end: the size stays")
	clear(want[4*block:])
	same()
	require.NoError(t, f.Truncate(2*block))
	require.NoError(t, f.Truncate(size))
	clear(want[2*block:])
	same()
}

func readOnly(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "a")
	write(t, open(t, fsys, name, vfs.Write|vfs.Create), "abc", 0)
	f := open(t, fsys, name, 0)
	_, err := f.WriteAt([]byte("x"), 0)
	require.Error(t, err)
	require.Error(t, f.Truncate(0))
	require.Error(t, f.Grow(9))
	require.Equal(t, "abc", contents(t, f))
}

func afterClose(t *testing.T, fsys vfs.FS, dir string) {
	f := open(t, fsys, filepath.Join(dir, "a"), vfs.Write|vfs.Create)
	require.NoError(t, f.Close())
	_, err := f.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = f.WriteAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = f.Size()
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = f.ID()
	require.ErrorIs(t, err, fs.ErrClosed)
	for what, err := range map[string]error{
		"truncate": f.Truncate(0), "grow": f.Grow(1),
		"punch": f.PunchHole(0, 1), "reserve": f.Reserve(0, 1), "sync": f.Sync(), "syncdata": f.SyncData(),
		"lock": f.Lock(true), "close": f.Close(),
	} {
		require.ErrorIs(t, err, fs.ErrClosed, what)
	}
}

func views(t *testing.T, fsys vfs.FS, dir string) {
	f := open(t, fsys, filepath.Join(dir, "a"), vfs.Write|vfs.Create)
	write(t, f, "abc", 0)
	view, err := f.Map(0, 1<<20)
	if errors.Is(err, vfs.ErrNoMap) {
		t.Skip("no maps here")
	}
	require.NoError(t, err)
	require.Len(t, view, 1<<20)
	require.Equal(t, "abc", string(view[:3]))
	write(t, f, "B", 1)
	require.Equal(t, "aBc", string(view[:3]))
	// The view was taken past the end; the file grows into it.
	write(t, f, "far", 200<<10)
	require.Equal(t, "far", string(view[200<<10:200<<10+3]))
	second, err := f.Map(64<<10, 64<<10)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 64<<10), second)
	f.DontNeed(view[1 : len(view)-1])
	f.DontNeed(view[3:3])
	f.DontNeed(view[3:9])
	f.ReadAhead(view[1 : len(view)-1])
	f.ReadAhead(view[3:3])
	units := f.Resident(view[:200<<10], 100<<10)
	require.LessOrEqual(t, units, uint64(3))
	if units&1 != 0 { // 0 says nothing.
		require.EqualValues(t, 1, f.Resident(view[1:9], 8))
	}
	require.Zero(t, f.Resident(view[3:3], 1))
	require.Equal(t, "aBc", string(view[:3]))
	require.Equal(t, "far", string(view[200<<10:200<<10+3]))
	require.NoError(t, f.Unmap(second))
	require.NoError(t, f.Unmap(view))
	for _, bad := range [][2]int64{{-65536, 4096}, {4096, 4096}, {0, 0}, {0, -1}} {
		_, err := f.Map(bad[0], bad[1])
		require.Error(t, err, "%v", bad)
	}
}

func mappedWrites(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "a")
	f, reader := open(t, fsys, name, vfs.Write|vfs.Create), open(t, fsys, name, 0)
	const size, at = 100 << 10, 64 << 10
	want := make([]byte, size)
	write(t, f, string(want), 0)
	put := func(p string, off int) {
		t.Helper()
		require.NoError(t, f.WriteMapped([]byte(p), int64(off)))
		want = append(append(want[:off:off], p...), want[min(off+len(p), len(want)):]...)
		require.True(t, string(want) == contents(t, reader), "%d bytes at %d", len(p), off)
	}
	// Within a page, across two, across two maps, in an earlier map, at the end and across it.
	for _, off := range []int{at, at + 1, at + 4000, at - 100, 0, size - 300, size - 100} {
		put(strings.Repeat(string(rune('a'+off%26)), 300), off)
		write(t, f, "written", int64(off)+100) // each shows what the other did
		copy(want[off+100:], "written")
		put("copied", off+110)
	}
	put("", at)
	require.Error(t, reader.WriteMapped([]byte("bad"), 0))
	require.NoError(t, f.SyncData())

	put("x", at)
	require.NoError(t, f.Truncate(at)) // below the map: a copy has a fault
	want = want[:at]
	put("grown by the write", at)
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.WriteMapped([]byte("late"), at), fs.ErrClosed)
	require.Equal(t, string(want), contents(t, reader))
}

func direct(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "a")
	plain := open(t, fsys, name, vfs.Write|vfs.Create)
	require.Contains(t, []int{512, 4096}, plain.BlockSize())
	f, err := fsys.Open(name, vfs.Write|vfs.Direct)
	if errors.Is(err, vfs.ErrNoDirect) {
		t.Skip("no direct writes here")
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	block := f.BlockSize()
	require.Contains(t, []int{512, 4096}, block)
	p := vfs.AlignedBuffer(2 * block)
	for i := range p {
		p[i] = byte(i/block + 1)
	}
	require.NoError(t, vfs.WriteFull(f, p, 0))
	require.NoError(t, vfs.WriteFull(f, p[:block], int64(3*block)))
	_, err = f.WriteAt(p[:block], 1)
	require.Error(t, err)
	_, err = f.WriteAt(p[1:block+1], 0)
	require.Error(t, err)
	_, err = f.WriteAt(p[:block-1], 0)
	require.Error(t, err)
	want := append(bytes.Clone(p), make([]byte, block)...)
	want = append(want, p[:block]...)
	require.Equal(t, string(want), contents(t, plain))
	for _, h := range []vfs.File{f, plain} { // a write that is started, and one that is done at once
		clear(p)
		begun := h.StartWriteAt(p, int64(block))
		require.NoError(t, vfs.WriteRest(h, begun, p, int64(block)))
		clear(want[block : 3*block])
		require.Equal(t, string(want), contents(t, plain))
	}
	_, err = f.StartWriteAt(p[:block-1], 0).Wait()
	require.Error(t, err)
}

func concurrent(t *testing.T, fsys vfs.FS, dir string) {
	f := open(t, fsys, filepath.Join(dir, "a"), vfs.Write|vfs.Create)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			part := bytes.Repeat([]byte{byte(w + 1)}, 1000)
			got := make([]byte, 1000)
			for i := range 20 {
				off := int64(i*4+w) * 1000
				if vfs.WriteFull(f, part, off) != nil || vfs.ReadFull(f, got, off) != nil ||
					!bytes.Equal(part, got) {
					t.Errorf("writer %d: part %d is not what was written", w, i)
				}
			}
		})
	}
	wg.Wait()
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, 80_000, size)
}

func bigFile(t *testing.T, fsys vfs.FS, dir string) {
	f := open(t, fsys, filepath.Join(dir, "a"), vfs.Write|vfs.Create)
	const piece = 100_003
	for i := range 20 {
		require.NoError(t, vfs.WriteFull(f, bytes.Repeat([]byte{byte(i + 1)}, piece), int64(i)*piece))
	}
	got := make([]byte, piece)
	for i := range 20 {
		require.NoError(t, vfs.ReadFull(f, got, int64(i)*piece))
		require.Equal(t, bytes.Repeat([]byte{byte(i + 1)}, piece), got)
	}
	require.NoError(t, f.Truncate(300_000))
	require.NoError(t, f.Truncate(900_000))
	b := make([]byte, 600_000)
	require.NoError(t, vfs.ReadFull(f, b, 300_000))
	require.Equal(t, make([]byte, 600_000), b)
}
