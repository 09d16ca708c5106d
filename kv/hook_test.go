package kv_test

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/ebbkv/ebb/internal/vfs"
)

// hookFS asks a function before each call that reaches the file system below: an error of it is the
// call's, a panic goes on through the engine. It is for one goroutine at a time, as a store is that
// has Tuning.Inline.
type hookFS struct {
	vfs.FS
	hook func(call, name string) error
}

// changeBuffer are the names of the calls that change a file or a directory, or ask for that to
// last.
var changeBuffer = []string{"create", "remove", "rename", "syncdir", "write", "truncate", "sync", "syncdata"}

func changes(call string) bool { return slices.Contains(changeBuffer, call) }

func (h *hookFS) Open(name string, flag vfs.Flag) (vfs.File, error) {
	call := "open"
	if flag&vfs.Write != 0 {
		call = "open_for_writing"
	}
	if _, err := h.FS.Stat(name); flag&vfs.Create != 0 && errors.Is(err, fs.ErrNotExist) {
		call = "create"
	}
	if err := h.hook(call, name); err != nil {
		return nil, err
	}
	f, err := h.FS.Open(name, flag)
	if err != nil {
		return nil, err
	}
	return &hookFile{f, h, name}, nil
}

func (h *hookFS) Remove(name string) error {
	if err := h.hook("remove", name); err != nil {
		return err
	}
	return h.FS.Remove(name)
}

func (h *hookFS) Rename(oldName, newName string) error {
	if err := h.hook("rename", oldName); err != nil {
		return err
	}
	return h.FS.Rename(oldName, newName)
}

func (h *hookFS) List(dir string) ([]string, error) {
	if err := h.hook("list", dir); err != nil {
		return nil, err
	}
	return h.FS.List(dir)
}

func (h *hookFS) SyncDir(dir string) error {
	if err := h.hook("syncdir", dir); err != nil {
		return err
	}
	return h.FS.SyncDir(dir)
}

func (h *hookFS) Stat(name string) (vfs.FileInfo, error) {
	if err := h.hook("stat", name); err != nil {
		return vfs.FileInfo{}, err
	}
	return h.FS.Stat(name)
}

type hookFile struct {
	vfs.File
	fs   *hookFS
	name string
}

func (f *hookFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.hook("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *hookFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.hook("write", f.name); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

// Window is none: every write asks.
func (f *hookFile) Window(int64, int64) (vfs.Window, error) { return nil, vfs.ErrNoMap }

// StartWriteAt asks when a write is started, and when it is waited for.
func (f *hookFile) StartWriteAt(p []byte, off int64) vfs.Pending {
	if err := f.fs.hook("start_write", f.name); err != nil {
		return hookWrite{f: f, err: err}
	}
	return hookWrite{f: f, begun: f.File.StartWriteAt(p, off)}
}

type hookWrite struct {
	f     *hookFile
	begun vfs.Pending
	err   error
}

func (w hookWrite) Wait() (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.begun.Wait()
	return n, errors.Join(err, w.f.fs.hook("end_write", w.f.name))
}

func (f *hookFile) Truncate(size int64) error {
	if err := f.fs.hook("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *hookFile) Sync() error {
	if err := f.fs.hook("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *hookFile) SyncData() error {
	if err := f.fs.hook("syncdata", f.name); err != nil {
		return err
	}
	return f.File.SyncData()
}

func (f *hookFile) Size() (int64, error) {
	if err := f.fs.hook("size", f.name); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f *hookFile) Lock(exclusive bool) error {
	if err := f.fs.hook("lock", f.name); err != nil {
		return err
	}
	return f.File.Lock(exclusive)
}

// Close closes in any case: as with the operating system, an error of it leaves nothing open.
func (f *hookFile) Close() error { return errors.Join(f.fs.hook("close", f.name), f.File.Close()) }
