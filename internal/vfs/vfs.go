package vfs

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
)

// Errors that a file system gives besides those of io/fs. ErrNoSpace is matched by ENOSPC and
// EDQUOT.
var (
	ErrLocked      = errors.New("vfs: file is locked")
	ErrNoMap       = errors.New("vfs: file cannot be mapped")
	ErrNoDirect    = errors.New("vfs: direct writes are not possible here")
	ErrNoSpace     = errors.New("vfs: no space left")
	ErrNoFiles     = errors.New("vfs: too many open files")
	ErrNotRegular  = errors.New("vfs: not a regular file")
	ErrInvalidPath = errors.New("vfs: path is empty or holds a NUL byte")
)

// ErrIO is what the system says of a disk that could not read. A read through a map has no other
// way to tell but a fault.
var ErrIO error = syscall.EIO

// Flag says how Open opens.
type Flag int

// Open flags; Perm gives further ones. Without Write the file is read-only. Direct asks for a
// second kind of descriptor whose WriteAt takes whole, aligned blocks past the page cache and
// returns when the data is durable (O_DIRECT|O_DSYNC): see File.WriteAt.
const (
	Write  Flag = 1 << iota // read and write
	Create                  // create if absent; needs Write
	Excl                    // fail with fs.ErrExist if present; needs Create
	Direct                  // see above; needs Write; ErrNoDirect where the file system refuses it
)

// FileID distinguishes two files while both exist, whatever their names (device and inode).
type FileID struct{ Dev, Ino uint64 }

// FileInfo is what Stat returns for a name.
type FileInfo struct {
	Size int64
	Mode fs.FileMode // type and permission bits
	ID   FileID
}

// FS is a file system. Names are paths as the operating system takes them. Errors wrap those of
// io/fs
// (fs.ErrNotExist, fs.ErrExist, fs.ErrPermission), ErrNoSpace, or the machine's own.
type FS interface {
	// Open opens a regular file. Anything else at that name is ErrNotRegular, found out before
	// opening, so that a FIFO cannot block.
	Open(name string, flag Flag) (File, error)
	Remove(name string) error
	// Rename replaces newName if it exists. Durable only after SyncDir.
	Rename(oldName, newName string) error
	// List gives the base names in dir, sorted.
	List(dir string) ([]string, error)
	// SyncDir makes the entries of dir durable, not the data of the files that they name.
	SyncDir(dir string) error
	// Stat follows symbolic links.
	Stat(name string) (FileInfo, error)
}

// File is one open file.
type File interface {
	io.ReaderAt // n < len(p) only with a non-nil error; io.EOF past the end
	// WriteAt may write less than asked, with or without an error: use WriteFull. On a Direct file,
	// offset, length and the address of p must be multiples of BlockSize (see AlignedBuffer), and a
	// nil error means durable.
	io.WriterAt
	// StartWriteAt is WriteAt of a Direct file that need not wait for the disk: p must stay as it
	// is, and the file open, until Wait of what it gives has returned, which says what WriteAt
	// would have. Where the system has no such call it is done at once.
	StartWriteAt(p []byte, off int64) Pending
	// WriteMapped is WriteFull for bytes in pages that WriteAt has just written: where it can, it
	// copies them into a shared map, in less time than a system call takes. They outlive the
	// process, as those of WriteAt do, but if it is killed meanwhile any of them may be there, not
	// only the first ones. One call at a time, and none beside Close.
	WriteMapped(p []byte, off int64) error
	Size() (int64, error)
	// Truncate cuts or grows the file; growth reads as zeros. Durable after Sync.
	Truncate(size int64) error
	// Grow makes the file size bytes long unless it is longer, as Truncate does, and has the file
	// system reserve the room: writes to it do not fail for want of space later. Without enough it
	// is ErrNoSpace, and the size stays. Where nothing can be reserved the file only becomes
	// longer.
	Grow(size int64) error
	// PunchHole gives the room of [off, off+n), within the file, back to the file system: the bytes
	// read as zeros, and the size stays. Until a Sync a power cut may undo any part of it. It is
	// errors.ErrUnsupported, and nothing has changed, where Reserve could not undo it, or the system
	// has no such call.
	PunchHole(off, n int64) error
	// Reserve has the file system reserve room for all of [off, off+n), within the file: writes to
	// it do not fail for want of space later. The bytes stay as they are. Without enough room it is
	// ErrNoSpace, and a part may be reserved. Where nothing can be reserved nothing happens.
	Reserve(off, n int64) error
	// Allocated is the room that the file has on the disk, in bytes: less than its size if it has
	// holes.
	Allocated() (int64, error)
	// Sync makes data, size and metadata durable (fsync). The directory entry is SyncDir's.
	Sync() error
	// SyncData makes data durable, and the size where reading the data needs it (fdatasync).
	SyncData() error
	// WriteBack writes the cached bytes of [off, off+n) to the disk, and returns when they are
	// written: a later Sync, and any other use of the disk, does not wait for all of them at once.
	// It makes nothing durable. An error is one of a write. Where the system has no such call
	// nothing happens.
	WriteBack(off, n int64) error
	// StartWriteBack is WriteBack that does not wait: the disk is at work while the caller does
	// something else.
	StartWriteBack(off, n int64) error
	// DropCache says that [off, off+n) will not be read soon: the system may drop the page cache of
	// it, if no view maps it (see DontNeed). Nothing in the file changes, and nothing is promised.
	DropCache(off, n int64)
	// Map gives a read-only shared view of [off, off+n), which may reach past the end of the file:
	// touching bytes past the end faults until the file has grown. off is a multiple of 64 KiB.
	// ErrNoMap where that is not possible, for want of addresses too. The system reads no more of
	// the file than the pages that are touched: see ReadAhead.
	Map(off, n int64) ([]byte, error)
	// Unmap ends a view that Map gave; no slice of it may be used afterwards.
	Unmap(b []byte) error
	// ReadAhead has the system begin to read a part of a view from the disk, and waits for nothing.
	// Nothing is promised, and nothing happens where the system has no such call.
	ReadAhead(part []byte)
	// Resident reports which units of a part of a view the system holds in memory, all of unit i if bit
	// i is set: to touch it waits for no disk. The part has at most MaxResident units and memory
	// pages. 0 also where the system does not say.
	Resident(part []byte, unit int) (units uint64)
	// DontNeed says that a part of a view will not be read soon: the process may drop the memory that
	// maps it. Nothing else changes: a later read finds the file's bytes, as before.
	DontNeed(part []byte)
	// Lock takes an advisory lock on the whole file without waiting: ErrLocked if someone else, in
	// this process or another, holds one that conflicts. The lock ends with Close.
	Lock(exclusive bool) error
	ID() (FileID, error)
	// BlockSize is the unit that direct writes must be aligned to, and that a torn write may lose:
	// 512 or 4096.
	BlockSize() int
	Close() error
}

// MaxResident is the number of units, and of memory pages, that one call of Resident may ask for.
const MaxResident = 64

// Pending is a write that may be in flight. Wait is called once, by any goroutine.
type Pending interface {
	Wait() (n int, err error)
}

// written is a write that is over.
type written struct {
	n   int
	err error
}

func (w written) Wait() (int, error) { return w.n, w.err }

// WriteNow is StartWriteAt of a file that can only WriteAt.
func WriteNow(f io.WriterAt, p []byte, off int64) Pending {
	n, err := f.WriteAt(p, off)
	return written{n, err}
}

// WriteFull writes all of p at off, going on after short writes. A write of nothing without an
// error becomes io.ErrShortWrite, so that it never spins.
func WriteFull(f io.WriterAt, p []byte, off int64) error {
	if len(p) == 0 {
		return nil
	}
	n, err := f.WriteAt(p, off)
	return writeOn(f, p, off, n, err)
}

// WriteRest waits for a write of p at off that was started, and goes on as WriteFull does after a
// short one.
func WriteRest(f io.WriterAt, begun Pending, p []byte, off int64) error {
	n, err := begun.Wait()
	return writeOn(f, p, off, n, err)
}

// writeOn writes what a write of p at off has left, which gave n and err.
func writeOn(f io.WriterAt, p []byte, off int64, n int, err error) error {
	for {
		if n < 0 || n > len(p) {
			return errors.Join(io.ErrShortWrite, err)
		}
		p, off = p[n:], off+int64(n)
		if len(p) == 0 {
			return err // no other call reports it
		}
		if err != nil && !errors.Is(err, io.ErrShortWrite) {
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
		n, err = f.WriteAt(p, off)
	}
}

// ReadFull reads exactly len(p) bytes at off. The end of the file before that is
// io.ErrUnexpectedEOF, at off io.EOF.
func ReadFull(f io.ReaderAt, p []byte, off int64) error {
	done := 0
	for done < len(p) {
		n, err := f.ReadAt(p[done:], off+int64(done))
		done += n
		if done == len(p) {
			return nil
		}
		switch {
		case err == io.EOF && done == 0:
			return io.EOF
		case err == io.EOF:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case n == 0:
			return io.ErrNoProgress
		}
	}
	return nil
}
