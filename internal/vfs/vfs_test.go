package vfs_test

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/internal/vfs/vfstest"
)

func TestOperatingSystemIsAFileSystem(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) (vfs.FS, string) { return vfs.OS, t.TempDir() })
}

func TestMemoryIsAFileSystem(t *testing.T) {
	vfstest.Run(t, func(t *testing.T) (vfs.FS, string) { return vfs.NewMemory(), "dir" })
}

func TestMemoriesAreIndependent(t *testing.T) {
	a, b := vfs.NewMemory(), vfs.NewMemory()
	fa, err := a.Open("x", vfs.Write|vfs.Create)
	require.NoError(t, err)
	_, err = b.Open("x", 0)
	require.ErrorIs(t, err, fs.ErrNotExist)
	fb, err := b.Open("x", vfs.Write|vfs.Create)
	require.NoError(t, err)
	idA, err := fa.ID()
	require.NoError(t, err)
	idB, err := fb.ID()
	require.NoError(t, err)
	require.NotEqual(t, idA, idB)
}

func TestMissingParentIsNotCreated(t *testing.T) {
	_, err := vfs.OS.Open(filepath.Join(t.TempDir(), "no", "such"), vfs.Write|vfs.Create)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestMapIsPresentWhereItShouldBe(t *testing.T) {
	mapped := runtime.GOOS == "linux" || runtime.GOOS == "darwin" || runtime.GOOS == "freebsd"
	if !mapped || unsafe.Sizeof(0) < 8 {
		t.Skip("no maps on this platform")
	}
	f, err := vfs.OS.Open(filepath.Join(t.TempDir(), "a"), vfs.Write|vfs.Create)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	view, err := f.Map(0, 1<<30)
	require.NoError(t, err)
	require.NoError(t, f.Unmap(view))
}

func TestAlignedBufferIsAligned(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 4096, 4097, 1 << 20} {
		b := vfs.AlignedBuffer(n)
		require.Len(t, b, n)
		require.Equal(t, n, cap(b))
		if n > 0 {
			require.Zero(t, uintptr(unsafe.Pointer(&b[0]))%4096)
		}
	}
}

// scripted gives the counts and errors it is told to, one pair per call.
type scripted []struct {
	n   int
	err error
}

func (s *scripted) WriteAt([]byte, int64) (int, error) { return s.next() }
func (s *scripted) ReadAt([]byte, int64) (int, error)  { return s.next() }

func (s *scripted) next() (int, error) {
	step := (*s)[0]
	*s = (*s)[1:]
	return step.n, step.err
}

func TestWriteFullGoesOnAfterShortWritesAndNeverSpins(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		name   string
		script scripted
		want   error
	}{
		{"all_at_once", scripted{{10, nil}}, nil},
		{"short_without_error", scripted{{4, nil}, {6, nil}}, nil},
		{"short_with_ErrShortWrite", scripted{{4, io.ErrShortWrite}, {6, nil}}, nil},
		{"nothing_without_error", scripted{{4, nil}, {0, nil}}, io.ErrShortWrite},
		{"error_after_a_part", scripted{{4, broken}}, broken},
		{"impossible_count", scripted{{11, nil}}, io.ErrShortWrite},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := vfs.WriteFull(&test.script, make([]byte, 10), 0)
			require.ErrorIs(t, err, test.want)
			require.Empty(t, test.script)
		})
	}
}

func TestReadFullNeverSpins(t *testing.T) {
	require.ErrorIs(t, vfs.ReadFull(&scripted{{4, nil}, {0, nil}}, make([]byte, 10), 0), io.ErrNoProgress)
	require.NoError(t, vfs.ReadFull(&scripted{{4, nil}, {6, io.EOF}}, make([]byte, 10), 0))
}
