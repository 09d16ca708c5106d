package live

import (
	"fmt"
	"io/fs"

	"github.com/ebbkv/ebb/internal/vfs"
)

// Unlocked is a file system on which a store that another process has open can be opened read-only:
// without a lock, and without a map, so that each page is verified when it is copied into memory.
// Nothing can be changed through it.
//
// The pages of the checkpoint that such an open begins from stay as they are until the next one is
// complete. After that its reads may fail: each page names its epoch, so a page that was reused is
// damage and never a row of another state. A reader that finds damage therefore asks for the number
// of the checkpoint (pager.RawFile): if it is a later one, it opens again.
func Unlocked(fsys vfs.FS) vfs.FS { return unlockedFS{fsys} }

type unlockedFS struct{ vfs.FS }

func readOnly(name string) error { return fmt.Errorf("%s is open to read: %w", name, fs.ErrPermission) }

// Open implements vfs.FS.
func (u unlockedFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	if flag&vfs.Write != 0 {
		return nil, readOnly(name)
	}
	file, err := u.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return unlockedFile{file}, nil
}

// Remove implements vfs.FS.
func (u unlockedFS) Remove(name string) error { return readOnly(name) }

// Rename implements vfs.FS.
func (u unlockedFS) Rename(oldName, _ string) error { return readOnly(oldName) }

// SyncDir implements vfs.FS.
func (u unlockedFS) SyncDir(dir string) error { return readOnly(dir) }

type unlockedFile struct{ vfs.File }

// Lock implements vfs.File.
func (unlockedFile) Lock(bool) error { return nil }

// Map implements vfs.File.
func (unlockedFile) Map(int64, int64) ([]byte, error) { return nil, vfs.ErrNoMap }
