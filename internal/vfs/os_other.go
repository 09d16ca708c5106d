//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package vfs

import (
	"errors"
	"io/fs"
	"os"
)

// Systems without a lock build and can use Memory; Lock on a real file is an error there, so that
// no store opens without the protection it promises.

func isNoSpace(error) bool { return false }
func isNoFiles(error) bool { return false }
func isInvalid(error) bool { return false }

func openOS(name string, flag Flag) (*os.File, error) {
	if flag&Direct != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: ErrNoDirect}
	}
	return os.OpenFile(name, osFlags(flag), flag.Mode())
}

func (f *osFile) proveDirect() error { return ErrNoDirect }

func blockSize(*os.File) int { return 4096 }

func syncAll(f *os.File) error  { return f.Sync() }
func syncData(f *os.File) error { return f.Sync() }
func syncDir(string) error      { return nil }

func mapFile(*os.File, int64, int64) ([]byte, error) { return nil, ErrNoMap }
func unmapFile([]byte) error                         { return fs.ErrInvalid }
func dropPages([]byte)                               {}
func readAhead([]byte)                               {}

func lockFile(*os.File, bool, bool) error { return errors.ErrUnsupported }

func unlockFile(*os.File) {}

func pathID(string, fs.FileInfo) (FileID, error)   { return FileID{}, errors.ErrUnsupported }
func openID(*os.File, fs.FileInfo) (FileID, error) { return FileID{}, errors.ErrUnsupported }

func writeBack(*os.File, int64, int64, bool) error { return nil }

func reserve(*os.File, int64, int64) error   { return errors.ErrUnsupported }
func punchHole(*os.File, int64, int64) error { return errors.ErrUnsupported }

func allocated(info fs.FileInfo) int64 { return info.Size() }
