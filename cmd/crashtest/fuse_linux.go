package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// A fuseFile is a file system that is one regular file, whose content is a cacheDisk: the kernel's
// FUSE with a root that is no directory, mounted over an empty file. It is opened for direct I/O,
// so that each write of a loop device arrives as it was issued, in its order, and nothing of it
// stays in a page cache between the two; a flush of the loop device arrives as FSYNC.
//
// One goroutine answers one request after the other. It must not wait for the file systems above:
// they wait for it.
type fuseFile struct {
	at    string // the file that it is mounted over
	fd    int    // of /dev/fuse
	disk  *cacheDisk
	ended chan struct{} // closed when the server has ended
}

// Requests of the kernel, and their answers: a header, then the fields of the operation, all of
// them in the byte order of the machine. See include/uapi/linux/fuse.h.
const (
	opForget      = 2 // has no answer
	opGetattr     = 3
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opFlush       = 25
	opInit        = 26
	opDestroy     = 38
	opBatchForget = 42 // has no answer

	inHeader  = 40 // length u32, operation u32, unique u64, node, user, group, process
	outHeader = 16 // length u32, error i32, unique u64
	writeBody = 40 // handle u64, offset u64, size u32 and flags; of READ too

	fuseMajor, fuseMinor = 7, 31
	initSize             = 64
	maxWrite             = 1 << 20
	flagBigWrites        = 1 << 5
	flagMaxPages         = 1 << 22
	openDirectIO         = 1
)

// serveFile mounts a disk over the file at. An error that wraps errNoMounts is a system without
// FUSE.
func serveFile(at string, disk *cacheDisk) (*fuseFile, error) {
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		return nil, err
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: /dev/fuse: %w", errNoMounts, err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0", fd, unix.S_IFREG|0o600)
	if err := unix.Mount("crashtest", at, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENODEV) {
			err = fmt.Errorf("%w: mount of FUSE: %w", errNoMounts, err)
		}
		return nil, errors.Join(err, unix.Close(fd))
	}
	f := &fuseFile{at: at, fd: fd, disk: disk, ended: make(chan struct{})}
	go f.serve()
	return f, nil
}

// close ends the connection and the server. Whatever is still under way fails, so that nothing
// waits for a server that has gone.
func (f *fuseFile) close() error {
	err := unix.Unmount(f.at, unix.MNT_FORCE|unix.MNT_DETACH)
	if err != nil {
		return fmt.Errorf("unmount %s: %w", f.at, err)
	}
	<-f.ended
	return nil
}

// serve answers requests until the connection ends. When it returns, the last descriptor of the
// connection is closed, and the kernel fails all requests.
func (f *fuseFile) serve() {
	// While the kernel gives memory to this thread it must not wait for writes to this disk.
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_IO_FLUSHER, 1, 0, 0, 0)
	err := f.answerAll()
	f.disk.fail(fmt.Errorf("the disk has ended: %w", err))
	_ = unix.Close(f.fd)
	close(f.ended)
}

func (f *fuseFile) answerAll() error {
	in := make([]byte, inHeader+writeBody+maxWrite)
	out := make([]byte, outHeader+maxWrite)
	for {
		n, err := unix.Read(f.fd, in)
		switch {
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOENT):
			continue // ENOENT: the request was withdrawn.
		case err != nil:
			return err // ENODEV: unmounted.
		case n < inHeader:
			return fmt.Errorf("request of %d bytes", n)
		}
		size, errno := f.answer(in[:n], out[outHeader:])
		if size < 0 {
			continue
		}
		binary.NativeEndian.PutUint32(out, uint32(outHeader+size))
		binary.NativeEndian.PutUint32(out[4:], uint32(-int32(errno)))
		copy(out[8:16], in[8:16])
		if _, err := unix.Write(f.fd, out[:outHeader+size]); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
}

// answer does one request and gives the size of its answer, below 0 for none.
func (f *fuseFile) answer(in, out []byte) (size int, errno unix.Errno) {
	u32 := func(off int) uint32 { return binary.NativeEndian.Uint32(in[inHeader+off:]) }
	u64 := func(off int) uint64 { return binary.NativeEndian.Uint64(in[inHeader+off:]) }
	operation := binary.NativeEndian.Uint32(in[4:])
	switch operation {
	case opForget, opBatchForget:
		return -1, 0
	case opInit:
		return f.answerInit(out), 0
	case opGetattr:
		return f.answerAttr(out), 0
	case opOpen: // handle u64, flags u32, unused u32
		clear(out[:16])
		binary.NativeEndian.PutUint32(out[8:], openDirectIO)
		return 16, 0
	case opRead, opWrite:
		if len(in) < inHeader+writeBody {
			return 0, unix.EIO
		}
		off, n := int64(u64(8)), int64(u32(16))
		if operation == opWrite {
			data := in[inHeader+writeBody:]
			if int64(len(data)) < n || f.disk.write(data[:n], off) != nil {
				return 0, unix.EIO
			}
			clear(out[:8])
			binary.NativeEndian.PutUint32(out, uint32(n))
			return 8, 0
		}
		n = max(0, min(n, maxWrite, f.disk.size-off))
		f.disk.read(out[:n], off)
		return int(n), 0
	case opStatfs: // blocks, free blocks, files, sizes
		clear(out[:80])
		binary.NativeEndian.PutUint32(out[40:], blockSize)
		return 80, 0
	case opFsync:
		f.disk.flush()
		return 0, 0
	case opFlush, opRelease, opDestroy: // A close is no flush of the disk.
		return 0, 0
	}
	return 0, unix.ENOSYS
}

// answerInit settles the version and the largest write.
func (f *fuseFile) answerInit(out []byte) int {
	clear(out[:initSize])
	binary.NativeEndian.PutUint32(out, fuseMajor)
	binary.NativeEndian.PutUint32(out[4:], fuseMinor)
	binary.NativeEndian.PutUint32(out[12:], flagBigWrites|flagMaxPages)
	binary.NativeEndian.PutUint32(out[20:], maxWrite)
	binary.NativeEndian.PutUint32(out[24:], 1) // nanoseconds
	binary.NativeEndian.PutUint16(out[28:], uint16(maxWrite/os.Getpagesize()))
	return initSize
}

// answerAttr: how long it is valid, then the attributes of the file.
func (f *fuseFile) answerAttr(out []byte) int {
	const attr = 16
	clear(out[:attr+88])
	binary.NativeEndian.PutUint64(out, 1<<32) // seconds
	binary.NativeEndian.PutUint64(out[attr:], 1)
	binary.NativeEndian.PutUint64(out[attr+8:], uint64(f.disk.size))
	binary.NativeEndian.PutUint64(out[attr+16:], uint64(f.disk.size/sectorSize))
	binary.NativeEndian.PutUint32(out[attr+60:], unix.S_IFREG|0o600)
	binary.NativeEndian.PutUint32(out[attr+64:], 1) // links
	binary.NativeEndian.PutUint32(out[attr+80:], blockSize)
	return attr + 88
}
