package txn

import (
	"bytes"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	tree "github.com/ebbkv/ebb/btree"
	"github.com/ebbkv/ebb/internal/badfile"
	"github.com/ebbkv/ebb/internal/vfs"
)

func TestReadOnlyOpenReplaysInMemory(t *testing.T) {
	disk := vfs.NewMemory()
	s := mustOpen(t, testOptions(disk))
	m := map[string]string{}
	for i := range 20 {
		update(t, s, func(tx *Tx) {
			for k := range 20 {
				key, value := fmt.Sprintf("%d-%d", i, k), string(bytes.Repeat([]byte{byte(i)}, 10+900*(k%5)))
				m[key] = value
				mustPut(t, tx, CatalogTree, []byte(key), []byte(value), 0)
			}
		})
	}
	image := copyFiles(t, disk)
	require.NoError(t, s.Close())
	o := testOptions(image)
	o.ReadOnly = true
	for range 2 {
		r := mustOpen(t, o)
		require.True(t, r.o.ReadOnly)
		require.False(t, r.Recovery().Clean)
		tx := begin(t, r, false)
		require.Equal(t, m, contents(t, tx, CatalogTree))
		_, err := tx.Put(CatalogTree, []byte("k"), nil, 0)
		require.ErrorIs(t, err, ErrReadOnlyDB)
		tx.Rollback()
		_, err = r.Begin(nil, true)
		require.ErrorIs(t, err, ErrReadOnlyDB)
		require.ErrorIs(t, r.Sync(), ErrReadOnlyDB)
		requireSound(t, r)
		require.NoError(t, r.Close())
	}
	names, err := image.List("/")
	require.NoError(t, err)
	require.Greater(t, len(names), 1, "nothing was removed")
	openTest(t, "/a.ebb", testOptions(image))
}

func TestForeignFilesAreNotWrittenTo(t *testing.T) {
	write := func(disk vfs.FS, name string, b []byte) {
		f, err := disk.Open(name, vfs.Write|vfs.Create)
		require.NoError(t, err)
		require.NoError(t, vfs.WriteFull(f, b, 0))
		require.NoError(t, f.Close())
	}
	text := bytes.Repeat([]byte("text of a user "), 1000)
	for _, test := range []struct {
		name  string
		files map[string][]byte
		o     Options
		want  error
	}{
		{"foreign", map[string][]byte{"/a.ebb": text}, Options{}, ErrNotDB},
		{"zeros", map[string][]byte{"/a.ebb": make([]byte, 9000)}, Options{}, badfile.ErrCorrupt},
		{"segments_without_main_file", map[string][]byte{"/a.ebb-wal-000001": text}, Options{},
			badfile.ErrCorrupt},
		{"absent_read_only", nil, Options{ReadOnly: true}, fs.ErrNotExist},
		{"absent_must_exist", nil, Options{MustExist: true}, fs.ErrNotExist},
		{"empty_read_only", map[string][]byte{"/a.ebb": nil}, Options{ReadOnly: true}, badfile.ErrCorrupt},
		{"page_size", nil, Options{PageSize: 5000}, ErrPageSize},
		{"page_size_too_small", nil, Options{PageSize: 2048}, ErrPageSize},
		{"directory", map[string][]byte{"/a.ebb/x": nil}, Options{}, vfs.ErrNotRegular},
	} {
		t.Run(test.name, func(t *testing.T) {
			disk := vfs.NewMemory()
			for name, b := range test.files {
				write(disk, name, b)
			}
			test.o.FS = disk
			_, err := Open("/a.ebb", test.o)
			require.ErrorIs(t, err, test.want)
			if test.files == nil {
				names, err := disk.List("/")
				require.NoError(t, err)
				require.Empty(t, names)
			}
		})
	}
	disk := vfs.NewMemory()
	write(disk, "/a.ebb", nil)
	s := openTest(t, "/a.ebb", testOptions(disk))
	require.True(t, s.Recovery().Created, "a file of no bytes is made a store")
	_, err := Open("/a.ebb", testOptions(disk))
	require.ErrorIs(t, err, ErrLocked)
	o := testOptions(disk)
	o.LockTimeout = 3 * time.Millisecond
	_, err = Open("/a.ebb", o)
	require.ErrorIs(t, err, ErrLocked)
	require.Equal(t, "/a.ebb", s.Path())
	require.Equal(t, 4096, s.PageSize())
	require.Equal(t, 1032, tree.MaxKey(s.PageSize()))
}

func TestPageSizeOfAnExistingStoreCannotBeChanged(t *testing.T) {
	disk := vfs.NewMemory()
	o := testOptions(disk)
	o.PageSize = 8192
	s := mustOpen(t, o)
	require.NoError(t, s.Close())
	o.PageSize = 4096
	_, err := Open("/a.ebb", o)
	require.ErrorIs(t, err, ErrPageSize)
	openTest(t, "/a.ebb", testOptions(disk))
}

func TestAReplacedFileIsNotWrittenTo(t *testing.T) {
	disk := vfs.NewMemory()
	s := mustOpen(t, testOptions(disk))
	require.NoError(t, disk.Rename("/a.ebb", "/b.ebb"))
	tx := begin(t, s, true)
	_, err := tx.Put(CatalogTree, []byte("k"), nil, 0)
	require.ErrorIs(t, err, ErrReplaced)
	require.ErrorIs(t, s.Failed(), ErrReplaced)
	tx.Rollback()
	if err := s.Close(); err != nil {
		require.ErrorIs(t, err, ErrReplaced)
	}
	info, err := disk.Stat("/b.ebb")
	require.NoError(t, err)
	require.Equal(t, int64(2*4096), info.Size)
}
