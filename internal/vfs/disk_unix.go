//go:build unix

package vfs

import (
	"os"
	"syscall"
)

// DiskBytes is the disk space of a file, without its holes; ok is false where the system does not
// tell.
func DiskBytes(name string) (n int64, ok bool) {
	info, err := os.Stat(name)
	if err != nil {
		return 0, false
	}
	sys, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int64(sys.Blocks) * 512, true
}
