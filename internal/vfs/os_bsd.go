//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func openOS(name string, flag Flag) (*os.File, error) {
	if flag&Direct != 0 {
		return nil, &os.PathError{Op: "open", Path: name, Err: ErrNoDirect}
	}
	return os.OpenFile(name, osFlags(flag), flag.Mode())
}

func (f *osFile) proveDirect() error { return ErrNoDirect }

func blockSize(*os.File) int { return 4096 }

// syncAll is fsync; on macOS os.File.Sync asks the drive to empty its cache too (F_FULLFSYNC).
// Where a mount does not know that request, fsync is the most that there is.
func syncAll(f *os.File) error {
	err := f.Sync()
	if errors.Is(err, unix.ENOTSUP) {
		return control(f, func(fd uintptr) error {
			return uninterrupted(func() error { return unix.Fsync(int(fd)) })
		})
	}
	return err
}

// syncData is a full sync: a cheaper one that reaches the drive does not exist on all of these
// systems.
func syncData(f *os.File) error { return syncAll(f) }

func writeBack(*os.File, int64, int64, bool) error { return nil }

func reserve(*os.File, int64, int64) error   { return errors.ErrUnsupported }
func punchHole(*os.File, int64, int64) error { return errors.ErrUnsupported }
