package txn

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ebbkv/ebb/internal/crashfs"
	"github.com/ebbkv/ebb/internal/vfs"
)

// lateFS simulates another process that works on the directory between two calls of this one.
type lateFS struct {
	vfs.FS
	absent bool   // the next Stat answers as before the other process created the file
	opens  func() // runs before the next Open for writing of an existing file
}

func (l *lateFS) Stat(name string) (vfs.FileInfo, error) {
	if l.absent {
		l.absent = false
		return vfs.FileInfo{}, fs.ErrNotExist
	}
	return l.FS.Stat(name)
}

func (l *lateFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	if opens := l.opens; opens != nil && flag&vfs.Create == 0 {
		l.opens = nil
		opens()
	}
	return l.FS.Open(name, flag)
}

// TestOpenRemovesNoStoreOfAnother process, which created or opened it while this Open ran. That
// store may have commits already.
func TestOpenRemovesNoStoreOfAnother(t *testing.T) {
	for name, late := range map[string]func(fs vfs.FS, open, commit func()) vfs.FS{
		"created": func(fs vfs.FS, open, _ func()) vfs.FS {
			open()
			return &lateFS{FS: fs, absent: true}
		},
		"created, with a log": func(fs vfs.FS, open, commit func()) vfs.FS {
			open()
			commit()
			return &lateFS{FS: fs, absent: true}
		},
		"opened": func(fs vfs.FS, open, _ func()) vfs.FS { return &lateFS{FS: fs, opens: open} },
	} {
		t.Run(name, func(t *testing.T) {
			disk := crashfs.New(crashfs.Options{})
			var s *Store
			o := testOptions(disk)
			rows := 0
			commit := func() {
				update(t, s, func(tx *Tx) {
					if rows == 0 {
						require.NoError(t, tx.Create(9))
					}
					rows++
					putRow(t, tx, rows)
				})
			}
			o.FS = late(disk, func() { s = openTest(t, "/a.ebb", testOptions(disk)) }, commit)
			_, err := Open("/a.ebb", o)
			require.ErrorIs(t, err, ErrLocked)
			commit()
			again := mustOpen(t, testOptions(imageOf(t, disk).Disk(crashfs.Options{})))
			require.Equal(t, rows, rowsOf(t, again)[1])
			require.NoError(t, again.Close())
		})
	}
}

// TestOpenThatFailsLeavesNoNewFile: Open removes the unused file that it has created.
func TestOpenThatFailsLeavesNoNewFile(t *testing.T) {
	disk := crashfs.New(crashfs.Options{})
	failed := disk.Inject(crashfs.Fault{Kinds: crashfs.KindSyncDir})
	_, err := Open("/a.ebb", testOptions(disk))
	require.ErrorIs(t, err, crashfs.ErrIO)
	require.Equal(t, 1, failed.Fired())
	_, err = disk.Stat("/a.ebb")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
