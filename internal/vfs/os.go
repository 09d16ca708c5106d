package vfs

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// OS is the operating system's file system.
var OS FS = osFS{}

// ErrMisaligned is what a write or read of a Direct file gives when offset, length or address is no
// multiple of BlockSize. It is a bug of the caller, found before anything is written.
var ErrMisaligned = errors.New("vfs: direct access is not aligned to the block")

// bufferAlign is the alignment of AlignedBuffer: the largest BlockSize.
const bufferAlign = 4096

// AlignedBuffer gives n zero bytes whose address is a multiple of 4096, as WriteAt of a Direct file
// needs it.
func AlignedBuffer(n int) []byte {
	b := make([]byte, n+bufferAlign-1)
	skip := 0
	if len(b) > 0 {
		if past := int(uintptr(unsafe.Pointer(&b[0])) % bufferAlign); past != 0 {
			skip = bufferAlign - past
		}
	}
	return b[skip : skip+n : skip+n]
}

type osFS struct{}

// osFile is a file of the operating system. os.File already goes on after EINTR and after short
// writes, and gives fs.ErrClosed for use after Close, so that a late call never uses a descriptor
// that has become someone else's.
type osFile struct {
	f      *os.File
	direct bool

	blockOnce sync.Once
	block     int // set by blockOnce

	punchOnce sync.Once
	noPunch   bool // set by punchOnce

	lockMu sync.Mutex
	locked bool // guarded by lockMu

	mapped writeMap // used by WriteMapped and Close
}

func checkPath(name string) error {
	if name == "" || strings.IndexByte(name, 0) >= 0 {
		return ErrInvalidPath
	}
	return nil
}

// noSpaceError adds ErrNoSpace to an error of the operating system and hides nothing of it.
type noSpaceError struct{ error }

func (e noSpaceError) Unwrap() error        { return e.error }
func (e noSpaceError) Is(target error) bool { return target == ErrNoSpace }

type noFilesError struct{ error }

func (e noFilesError) Unwrap() error        { return e.error }
func (e noFilesError) Is(target error) bool { return target == ErrNoFiles }

// osError marks errors that mean a full disk or a used up quota.
func osError(err error) error {
	if err != nil && isNoSpace(err) {
		return noSpaceError{err}
	}
	if err != nil && isNoFiles(err) {
		return noFilesError{err}
	}
	return err
}

func (osFS) Open(name string, flag Flag) (File, error) {
	if err := checkPath(name); err != nil {
		return nil, err
	}
	if err := checkFlag(flag); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	// Look before opening: open(2) of a FIFO waits for its other end.
	switch info, err := os.Stat(name); {
	case err == nil && !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "open", Path: name, Err: ErrNotRegular}
	case err == nil || errors.Is(err, fs.ErrNotExist):
	default:
		return nil, err
	}
	f, err := openOS(name, flag)
	if err != nil {
		return nil, osError(err)
	}
	file := &osFile{f: f, direct: flag&Direct != 0}
	if file.direct {
		if err := file.proveDirect(); err != nil {
			return nil, errors.Join(&fs.PathError{Op: "open", Path: name, Err: err}, f.Close())
		}
	}
	return file, nil
}

// checkFlag refuses combinations that Flag's comment rules out.
func checkFlag(flag Flag) error {
	bad := flag&^(Write|Create|Excl|Direct|permBits) != 0 ||
		flag&permBits != 0 && flag&Create == 0 ||
		flag&(Create|Direct) != 0 && flag&Write == 0 ||
		flag&Excl != 0 && flag&Create == 0
	if bad {
		return fs.ErrInvalid
	}
	return nil
}

// osFlags translates all of flag but Direct.
func osFlags(flag Flag) int {
	n := os.O_RDONLY
	if flag&Write != 0 {
		n = os.O_RDWR
	}
	if flag&Create != 0 {
		n |= os.O_CREATE
	}
	if flag&Excl != 0 {
		n |= os.O_EXCL
	}
	return n
}

func (osFS) Remove(name string) error {
	if err := checkPath(name); err != nil {
		return err
	}
	return osError(os.Remove(name))
}

func (osFS) Rename(oldName, newName string) error {
	if err := errors.Join(checkPath(oldName), checkPath(newName)); err != nil {
		return err
	}
	return osError(os.Rename(oldName, newName))
}

func (osFS) List(dir string) ([]string, error) {
	if err := checkPath(dir); err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	if err = errors.Join(err, d.Close()); err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

func (osFS) SyncDir(dir string) error {
	if err := checkPath(dir); err != nil {
		return err
	}
	return osError(syncDir(dir))
}

func (osFS) Stat(name string) (FileInfo, error) {
	if err := checkPath(name); err != nil {
		return FileInfo{}, err
	}
	info, err := os.Stat(name)
	if err != nil {
		return FileInfo{}, err
	}
	id, err := pathID(name, info)
	if err != nil {
		return FileInfo{}, err
	}
	return FileInfo{Size: info.Size(), Mode: info.Mode(), ID: id}, nil
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.aligned(p, off); err != nil {
		return 0, err
	}
	return f.f.ReadAt(p, off)
}

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.aligned(p, off); err != nil {
		return 0, err
	}
	n, err := f.f.WriteAt(p, off)
	if err != nil && f.direct && isInvalid(err) {
		err = errors.Join(ErrNoDirect, err)
	}
	return n, osError(err)
}

func (f *osFile) StartWriteAt(p []byte, off int64) Pending {
	if !f.direct || len(p) == 0 || off < 0 || f.aligned(p, off) != nil {
		return WriteNow(f, p, off)
	}
	if begun := startWrite(f.f, p, off); begun != nil {
		return begun
	}
	return WriteNow(f, p, off)
}

// aligned checks what a Direct file needs. The kernel would say the same less clearly, or, on a
// file system that quietly falls back to buffers, not at all.
func (f *osFile) aligned(p []byte, off int64) error {
	if !f.direct || len(p) == 0 {
		return nil
	}
	mask := uint64(f.BlockSize() - 1)
	if (uint64(off)|uint64(len(p))|uint64(uintptr(unsafe.Pointer(&p[0]))))&mask != 0 {
		return ErrMisaligned
	}
	return nil
}

func (f *osFile) Size() (int64, error) {
	info, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *osFile) Truncate(size int64) error { return osError(f.f.Truncate(size)) }

func (f *osFile) Grow(size int64) error {
	from, err := f.Size()
	if err != nil || size <= from {
		return err
	}
	err = reserve(f.f, from, size-from)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errors.ErrUnsupported):
		return f.Truncate(size)
	}
	// What was reserved before it failed is given back, as far as the system lets us.
	_ = f.f.Truncate(from)
	return osError(&fs.PathError{Op: "reserve", Path: f.f.Name(), Err: err})
}

func (f *osFile) Reserve(off, n int64) error {
	err := reserve(f.f, off, n)
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return osError(&fs.PathError{Op: "reserve", Path: f.f.Name(), Err: err})
}

func (f *osFile) PunchHole(off, n int64) error {
	f.punchOnce.Do(func() { f.noPunch = errors.Is(reserve(f.f, off, n), errors.ErrUnsupported) })
	if f.noPunch {
		return errors.ErrUnsupported
	}
	err := punchHole(f.f, off, n)
	if err == nil || errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return osError(&fs.PathError{Op: "punch hole", Path: f.f.Name(), Err: err})
}

func (f *osFile) Allocated() (int64, error) {
	info, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return allocated(info), nil
}

func (f *osFile) WriteBack(off, n int64) error { return osError(writeBack(f.f, off, n, true)) }

func (f *osFile) StartWriteBack(off, n int64) error { return osError(writeBack(f.f, off, n, false)) }

func (f *osFile) DropCache(off, n int64) { dropCache(f.f, off, n) }

func (f *osFile) Sync() error     { return osError(syncAll(f.f)) }
func (f *osFile) SyncData() error { return osError(syncData(f.f)) }

// Close releases the lock first: a map of the file that stays, or a child process that is being
// started, has the open file, and with it the lock, for longer than its descriptor is open here.
func (f *osFile) Close() error {
	f.lockMu.Lock()
	if f.locked {
		unlockFile(f.f)
		f.locked = false
	}
	f.lockMu.Unlock()
	f.mapped.close() // It would keep the disk space of a removed file.
	return osError(f.f.Close())
}

func (f *osFile) Map(off, n int64) ([]byte, error) {
	if off < 0 || n <= 0 || off%mapAlign != 0 || off+n < 0 {
		return nil, &fs.PathError{Op: "map", Path: f.f.Name(), Err: fs.ErrInvalid}
	}
	return mapFile(f.f, off, n)
}

// mapAlign is the multiple that Map's off must be of: the coarsest unit of any system that Ebb runs
// on.
const mapAlign = 64 << 10

func (f *osFile) Unmap(b []byte) error { return unmapFile(b) }
func (f *osFile) DontNeed(part []byte) { dropPages(part) }

func (f *osFile) ReadAhead(part []byte)                 { readAhead(part) }
func (f *osFile) Resident(part []byte, unit int) uint64 { return resident(part, unit) }

func (f *osFile) Lock(exclusive bool) error {
	f.lockMu.Lock()
	defer f.lockMu.Unlock()
	if err := lockFile(f.f, exclusive, f.locked); err != nil {
		return err
	}
	f.locked = true
	return nil
}

func (f *osFile) ID() (FileID, error) {
	info, err := f.f.Stat()
	if err != nil {
		return FileID{}, err
	}
	return openID(f.f, info)
}

func (f *osFile) BlockSize() int {
	f.blockOnce.Do(func() { f.block = blockSize(f.f) })
	return f.block
}

// control runs fn on the descriptor while it is sure to stay open.
func control(f *os.File, fn func(fd uintptr) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	// Control itself fails for one reason only, which it gives a private error.
	if raw.Control(func(fd uintptr) { inner = fn(fd) }) != nil {
		return fs.ErrClosed
	}
	return inner
}
