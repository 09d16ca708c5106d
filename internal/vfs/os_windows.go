package vfs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

func isNoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

func isNoFiles(err error) bool { return errors.Is(err, windows.ERROR_TOO_MANY_OPEN_FILES) }

func isInvalid(err error) bool { return errors.Is(err, windows.ERROR_INVALID_PARAMETER) }

// openOS shares deletion, which os.OpenFile does not: open segments are renamed and removed.
func openOS(name string, flag Flag) (*os.File, error) {
	if flag&Direct != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: ErrNoDirect}
	}
	path, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	access, how := uint32(windows.GENERIC_READ), uint32(windows.OPEN_EXISTING)
	if flag&Write != 0 {
		access |= windows.GENERIC_WRITE
	}
	switch {
	case flag&Excl != 0:
		how = windows.CREATE_NEW
	case flag&Create != 0:
		how = windows.OPEN_ALWAYS
	}
	const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	h, err := windows.CreateFile(path, access, share, nil, how, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(h), name), nil
}

func (f *osFile) proveDirect() error { return ErrNoDirect }

func blockSize(*os.File) int { return 4096 }

func syncAll(f *os.File) error  { return f.Sync() }
func syncData(f *os.File) error { return f.Sync() }

// syncDir does nothing: Windows journals directory entries itself and opens no directory for
// flushing.
func syncDir(string) error { return nil }

func mapFile(*os.File, int64, int64) ([]byte, error) { return nil, ErrNoMap }
func unmapFile([]byte) error                         { return fs.ErrInvalid }
func dropPages([]byte)                               {}
func readAhead([]byte)                               {}

// lockOffsetHigh puts the locked byte at 1<<62: locks of Windows are mandatory, and no call reads
// or writes there.
const lockOffsetHigh = 1 << 30

func lockFile(f *os.File, exclusive, locked bool) error {
	flags := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if exclusive {
		flags |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := control(f, func(fd uintptr) error {
		if locked {
			// A handle conflicts with itself here; release it first, as flock does when it converts a
			// lock. That it may already be gone, after a conversion that found a conflict, is no
			// error.
			_ = windows.UnlockFileEx(windows.Handle(fd), 0, 1, 0,
				&windows.Overlapped{OffsetHigh: lockOffsetHigh})
		}
		return windows.LockFileEx(
			windows.Handle(fd),
			flags,
			0,
			1,
			0,
			&windows.Overlapped{OffsetHigh: lockOffsetHigh},
		)
	})
	switch {
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING):
		return &fs.PathError{Op: "lock", Path: f.Name(), Err: ErrLocked}
	case errors.Is(err, fs.ErrClosed):
		return err
	case err != nil:
		return &fs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return nil
}

func unlockFile(f *os.File) {
	_ = control(f, func(fd uintptr) error {
		return windows.UnlockFileEx(windows.Handle(fd), 0, 1, 0,
			&windows.Overlapped{OffsetHigh: lockOffsetHigh})
	})
}

func pathID(name string, info fs.FileInfo) (FileID, error) {
	path, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return FileID{}, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	const share = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE
	// FILE_FLAG_BACKUP_SEMANTICS opens directories too.
	h, err := windows.CreateFile(
		path,
		0,
		share,
		nil,
		windows.OPEN_EXISTING,
		windows.FILE_FLAG_BACKUP_SEMANTICS,
		0,
	)
	if err != nil {
		return FileID{}, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	id, err := handleID(h)
	return id, errors.Join(err, windows.CloseHandle(h))
}

func openID(f *os.File, _ fs.FileInfo) (id FileID, err error) {
	err = control(f, func(fd uintptr) error {
		id, err = handleID(windows.Handle(fd))
		return err
	})
	return id, err
}

func handleID(h windows.Handle) (FileID, error) {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(h, &info); err != nil {
		return FileID{}, os.NewSyscallError("GetFileInformationByHandle", err)
	}
	return FileID{
		Dev: uint64(info.VolumeSerialNumber),
		Ino: uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow),
	}, nil
}

func writeBack(*os.File, int64, int64, bool) error { return nil }

func reserve(*os.File, int64, int64) error   { return errors.ErrUnsupported }
func punchHole(*os.File, int64, int64) error { return errors.ErrUnsupported }

func allocated(info fs.FileInfo) int64 { return info.Size() }
