package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

func dropCache(f *os.File, off, n int64) {
	_ = control(f, func(fd uintptr) error { // A refusal costs memory and no more.
		return unix.Fadvise(int(fd), off, n, unix.FADV_DONTNEED)
	})
}
