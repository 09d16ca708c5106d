//go:build !linux

package vfs

import "io/fs"

// Window is not used where no test shows that a map and write(2) see each other's bytes at once.
func (f *osFile) Window(int64, int64) (Window, error) {
	return nil, &fs.PathError{Op: "window", Path: f.f.Name(), Err: ErrNoMap}
}
