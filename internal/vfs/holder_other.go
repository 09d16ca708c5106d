//go:build unix && !linux

package vfs

import "os"

// locked is ErrLocked: the system does not report the holder of a lock of flock(2).
func locked(*os.File) error { return ErrLocked }
