package vfs

import (
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/ebbkv/ebb/internal/mapfault"
)

// mapWindow maps a range of the file to be written to.
type mapWindow struct {
	name string
	off  int64 // in the file
	b    []byte
}

func (f *osFile) Window(off, n int64) (Window, error) {
	if off < 0 || n <= 0 || off%mapAlign != 0 || off+n < 0 {
		return nil, &fs.PathError{Op: "window", Path: f.f.Name(), Err: fs.ErrInvalid}
	}
	b, err := mapShared(f.f, off, n, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, err
	}
	return &mapWindow{name: f.f.Name(), off: off, b: b}, nil
}

func (w *mapWindow) Copy(p []byte, off int64) error {
	at := off - w.off
	if at < 0 || at > int64(len(w.b)) || int64(len(p)) > int64(len(w.b))-at {
		return &fs.PathError{Op: "window", Path: w.name, Err: fs.ErrInvalid}
	}
	return mapfault.Guard(w.refused, func() error {
		copy(w.b[at:], p)
		return nil
	})
}

// refused is for a fault: the system does not say why.
func (w *mapWindow) refused(uintptr) error {
	return &fs.PathError{Op: "window", Path: w.name, Err: ErrIO}
}

func (w *mapWindow) Close() error {
	if w.b == nil {
		return &fs.PathError{Op: "window", Path: w.name, Err: fs.ErrClosed}
	}
	b := w.b
	w.b = nil
	return unmapFile(b)
}
