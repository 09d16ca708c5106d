// Package sites is read by the tests of StaticSyncSites.
package sites

import (
	"errors"

	"github.com/ebbkv/ebb/internal/vfs"
)

// Log has a Sync of its own, which is no call of the disk.
type Log struct {
	file vfs.File
	dirs interface{ SyncDir(dir string) error }
}

// Sync syncs.
func (l *Log) Sync() error {
	return errors.Join(l.file.SyncData(), l.dirs.SyncDir("."))
}

// Open opens.
func Open(fsys vfs.FS) (*Log, error) {
	f, err := fsys.Open("log", vfs.Write|vfs.Create)
	if err != nil {
		return nil, err
	}
	l := &Log{file: f}
	finish := func() error { return f.Sync() }
	return l, errors.Join(finish(), l.Sync(), fsys.SyncDir("."))
}

// Box is generic.
type Box[T any] struct {
	file vfs.File
	held T
}

func (b *Box[T]) flush() error { return b.file.Sync() }

func (l *Log) sync(all bool) error {
	sync := l.file.SyncData
	if all {
		sync = l.file.Sync
	}
	return sync()
}
