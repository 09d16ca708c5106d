//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package vfs

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func isNoSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG)
}

func isNoFiles(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

func isInvalid(err error) bool { return errors.Is(err, unix.EINVAL) }

// uninterrupted calls fn until no signal cuts it short.
func uninterrupted(fn func() error) error {
	for {
		if err := fn(); err != unix.EINTR {
			return err
		}
	}
}

// canMap is false where address space is short, and on OpenBSD, whose maps do not see what write(2)
// writes.
const canMap = math.MaxUint>>32 != 0 && runtime.GOOS != "openbsd"

// mapFile turns the read-ahead of the system off. A fault would read up to the read-ahead size of
// the disk around the page that it is for: where memory is short, pages that are free or not wanted
// evict those that are.
func mapFile(f *os.File, off, n int64) ([]byte, error) {
	b, err := mapShared(f, off, n, unix.PROT_READ)
	if err == nil {
		_ = unix.Madvise(b, unix.MADV_RANDOM) // A refusal costs memory and no more.
	}
	return b, err
}

func mapShared(f *os.File, off, n int64, prot int) ([]byte, error) {
	if !canMap {
		return nil, ErrNoMap
	}
	var view []byte
	err := control(f, func(fd uintptr) error {
		p, err := unix.MmapPtr(int(fd), off, nil, uintptr(n), prot, unix.MAP_SHARED)
		if err == nil {
			view = unsafe.Slice((*byte)(p), n)
		}
		return err
	})
	switch {
	case err == nil:
		return view, nil
	case err == unix.ENODEV || err == unix.ENOTSUP || err == unix.ENOMEM:
		// ENOMEM is a bound on addresses: a map asks for no memory.
		err = errors.Join(ErrNoMap, err)
	}
	return nil, &fs.PathError{Op: "mmap", Path: f.Name(), Err: err}
}

func unmapFile(b []byte) error {
	if !canMap || len(b) == 0 {
		return fs.ErrInvalid
	}
	return os.NewSyscallError("munmap", unix.MunmapPtr(unsafe.Pointer(&b[0]), uintptr(len(b))))
}

// dropPages drops the whole pages in b from the map.
func dropPages(b []byte) {
	size := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if skip := -at % size; skip < uintptr(len(b)) {
		if b = b[skip:]; uintptr(len(b)) >= size {
			// Without it memory stays in use.
			_ = unix.Madvise(b[:uintptr(len(b))/size*size], unix.MADV_DONTNEED)
		}
	}
}

// readAhead asks piece by piece: Linux reads no more for one call than the disk takes in one
// request.
func readAhead(b []byte) {
	const piece = 512 << 10
	for b = wholePages(b); len(b) > 0; b = b[min(piece, len(b)):] {
		_ = unix.Madvise(b[:min(piece, len(b))], unix.MADV_WILLNEED) // A hint.
	}
}

// wholePages widens b to whole memory pages, of a view or a map; nil if b is empty.
func wholePages(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	size := uintptr(os.Getpagesize())
	at := unsafe.Pointer(unsafe.SliceData(b))
	skip := uintptr(at) % size
	n := (skip + uintptr(len(b)) + size - 1) / size * size
	return unsafe.Slice((*byte)(unsafe.Add(at, -int(skip))), n)
}

// lockFile uses flock, whose locks belong to the open file: two handles of one process exclude each
// other too, and closing one handle does not drop the lock of another, as fcntl locks would.
func lockFile(f *os.File, exclusive, _ bool) error {
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	err := control(f, func(fd uintptr) error {
		return uninterrupted(func() error { return unix.Flock(int(fd), how|unix.LOCK_NB) })
	})
	switch {
	case err == unix.EWOULDBLOCK:
		return &fs.PathError{Op: "flock", Path: f.Name(), Err: locked(f)}
	case errors.Is(err, fs.ErrClosed):
		return err
	case err != nil:
		return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	return nil
}

// unlockFile need not succeed: the lock ends with the open file, too.
func unlockFile(f *os.File) {
	_ = control(f, func(fd uintptr) error {
		return uninterrupted(func() error { return unix.Flock(int(fd), unix.LOCK_UN) })
	})
}

// syncDir takes EINVAL for "this file system keeps no directory that could be synced" (network and
// FUSE mounts say so); there is nothing more that a caller could do there.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = syncAll(d)
	if isInvalid(err) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

func pathID(_ string, info fs.FileInfo) (FileID, error) { return statID(info) }

func openID(_ *os.File, info fs.FileInfo) (FileID, error) { return statID(info) }

func statID(info fs.FileInfo) (FileID, error) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return FileID{}, errors.ErrUnsupported
	}
	return FileID{Dev: uint64(st.Dev), Ino: uint64(st.Ino)}, nil
}

func allocated(info fs.FileInfo) int64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return info.Size()
	}
	const unit = 512 // of st_blocks, whatever the file system
	return st.Blocks * unit
}
