package vfs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func openOS(name string, flag Flag) (*os.File, error) {
	n := osFlags(flag)
	if flag&Direct != 0 {
		n |= unix.O_DIRECT | unix.O_DSYNC
	}
	f, err := os.OpenFile(name, n, flag.Mode())
	if err != nil && flag&Direct != 0 && isInvalid(err) {
		return nil, errors.Join(ErrNoDirect, err)
	}
	return f, err
}

// proveDirect finds out whether the file system that let us open the file for direct access really
// offers it, without changing the file: by asking (since Linux 6.1), else by a direct read.
func (f *osFile) proveDirect() error {
	if mem, _, known := directAlign(f.f); known {
		if mem == 0 || f.BlockSize() > bufferAlign {
			return ErrNoDirect
		}
		return nil
	}
	if _, err := f.f.ReadAt(AlignedBuffer(bufferAlign), 0); isInvalid(err) {
		return errors.Join(ErrNoDirect, err)
	}
	return nil
}

// directAlign gives what addresses and offsets of direct access must be multiples of. known is
// false where the kernel does not say; mem is 0 where it says that there is no direct access.
func directAlign(f *os.File) (mem, off int, known bool) {
	var st unix.Statx_t
	err := control(f, func(fd uintptr) error {
		return uninterrupted(func() error {
			return unix.Statx(int(fd), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
		})
	})
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return 0, 0, false
	}
	return int(st.Dio_mem_align), int(st.Dio_offset_align), true
}

// blockSize is 512 only where the kernel says that it writes 512 bytes without touching their
// neighbours.
func blockSize(f *os.File) int {
	if mem, off, known := directAlign(f); known && mem > 0 && off > 0 && off <= 512 {
		return 512
	}
	return 4096
}

// writeBack does not tell the disk to keep what it has in its own cache: that is what makes it
// cheap.
func writeBack(f *os.File, off, n int64, wait bool) error {
	how := unix.SYNC_FILE_RANGE_WRITE
	if wait {
		how |= unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	}
	err := control(f, func(fd uintptr) error {
		return uninterrupted(func() error { return unix.SyncFileRange(int(fd), off, n, how) })
	})
	switch {
	case err == nil, errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ESPIPE):
		return nil // Not every file system has it, nor every sandbox.
	}
	return &fs.PathError{Op: "write back", Path: f.Name(), Err: err}
}

func syncAll(f *os.File) error { return f.Sync() }

func syncData(f *os.File) error {
	err := control(f, func(fd uintptr) error {
		return uninterrupted(func() error { return unix.Fdatasync(int(fd)) })
	})
	if err != nil {
		return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

// reserve gives [off, off+n) blocks, and makes the file so long.
func reserve(f *os.File, off, n int64) error { return allocate(f, 0, off, n) }

func punchHole(f *os.File, off, n int64) error {
	return allocate(f, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

func allocate(f *os.File, mode uint32, off, n int64) error {
	err := control(f, func(fd uintptr) error {
		return uninterrupted(func() error { return unix.Fallocate(int(fd), mode, off, n) })
	})
	if err == unix.ENOSYS {
		return errors.ErrUnsupported // EOPNOTSUPP says so by itself
	}
	return err
}
