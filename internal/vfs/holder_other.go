//go:build unix && !linux

package vfs

import "os"

// locked is ErrLocked: the system does not tell who holds a lock of flock(2).
func locked(*os.File) error { return ErrLocked }
