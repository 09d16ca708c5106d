package crashfs

import (
	"io/fs"

	"github.com/ebbkv/ebb/internal/vfs"
)

// window is a Window. A copy is two writes here, the second half first: a process killed during a
// copy may have copied any of it.
type window struct {
	f        file // a handle of its own
	off, end int64
}

func (f *file) Window(off, n int64) (vfs.Window, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if off%(64<<10) != 0 || n <= 0 || off+n < off {
		return nil, pathError("window", f.name, fs.ErrInvalid)
	}
	if err := f.check("window", true, off); err != nil {
		return nil, err
	}
	own := file{d: f.d, ino: f.ino, name: f.name, flag: f.flag &^ vfs.Direct}
	return &window{f: own, off: off, end: off + n}, nil
}

func (w *window) Copy(p []byte, off int64) error {
	if off < w.off || off > w.end || int64(len(p)) > w.end-off {
		return pathError("window", w.f.name, fs.ErrInvalid)
	}
	size, err := w.size()
	if err != nil {
		return err
	}
	if off+int64(len(p)) > size {
		return pathError("window", w.f.name, vfs.ErrIO) // The memory behind the end of a file cannot be touched.
	}
	half := len(p) / 2
	if err := vfs.WriteFull(&w.f, p[half:], off+int64(half)); err != nil {
		return err
	}
	return vfs.WriteFull(&w.f, p[:half], off)
}

func (w *window) size() (int64, error) {
	w.f.d.mu.Lock()
	defer w.f.d.mu.Unlock()
	return w.f.ino.size, w.f.check("window", true, 0)
}

func (w *window) Close() error {
	w.f.d.mu.Lock()
	defer w.f.d.mu.Unlock()
	if w.f.closed {
		return pathError("window", w.f.name, fs.ErrClosed)
	}
	w.f.closed = true
	return nil
}
