//go:build !linux

package vfs

// writeMap is not used where no test shows that a map and write(2) see each other's bytes at once.
type writeMap struct{}

func (writeMap) close() {}

func (f *osFile) WriteMapped(p []byte, off int64) error { return WriteFull(f, p, off) }
