package main

import (
	"errors"
	"io/fs"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/wal"
)

// A command that fails leaves no store behind that it has created itself: its path is as it was, so
// that the same command with other flags, such as --page-size, is not bound by what the failed one
// has made. What an earlier transaction of the command has stored stays.

// freshFS is the system's files. With discard it removes the main file of a store when that is
// closed: under its lock, so that another process which opens it meanwhile finds out, and behind
// the log. Where the log is still there it stays.
type freshFS struct {
	vfs.FS
	path    string
	absent  bool // nothing was at path before
	discard bool
}

func newFreshFS(path string) *freshFS {
	path = vfs.Follow(path)
	_, err := vfs.OS.Stat(path)
	return &freshFS{FS: vfs.OS, path: path, absent: errors.Is(err, fs.ErrNotExist)}
}

// Open is that of the system.
func (f *freshFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	file, err := f.FS.Open(name, flag)
	if err != nil || name != f.path {
		return file, err
	}
	return freshFile{file, f}, nil
}

type freshFile struct {
	vfs.File
	fs *freshFS
}

// Close removes the file first if it is to be discarded.
func (f freshFile) Close() error {
	if !f.fs.discard {
		return f.File.Close()
	}
	var err error
	if segments, _ := wal.Files(f.fs.FS, f.fs.path); len(segments) == 0 {
		err = f.fs.Remove(f.fs.path)
	}
	return errors.Join(err, f.File.Close())
}

// closeWritten closes a store that openToWrite has opened. If the command failed, and has created
// the store where nothing was before, and no row is in it, nothing of it is left.
func (a *app) closeWritten(db *kv.DB, failed bool) error {
	if a.held != nil {
		return nil // The shell closes it.
	}
	if failed && db.RecoveryInfo().Created {
		rows := int64(0)
		for _, f := range db.Stats().Families {
			rows += f.Rows
		}
		a.fresh.discard = rows == 0 && a.fresh.absent
	}
	return db.Close()
}
