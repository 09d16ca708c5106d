package vfs

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Linux writes past the page cache without a thread that waits: io_submit takes the bytes,
// io_getevents says when they are where the descriptor's flags want them. io_uring would do the
// same, where containers allow it.

// control block and event of the kernel's interface (linux/aio_abi.h)
type (
	aioBlock struct {
		_    [2]uint64 // what comes back with the event; a key, and the flags of the write
		op   uint16
		_    int16 // priority
		fd   uint32
		buf  uint64
		size uint64
		off  int64
		_    [2]uint64 // reserved; flags, and where else to tell of the end
	}
	aioEvent struct {
		_   [2]uint64 // data of the block, and where that was
		res int64
		_   int64
	}
)

const aioWrite = 1 // IOCB_CMD_PWRITE

// aio is a write on its way, and the context that it is under, which outlives it: to give one up
// takes the kernel milliseconds.
type aio struct {
	context uint // what the kernel names it by: an unsigned long
	block   aioBlock
	name    string
	p       []byte // being written: it must stay where it is
}

// idleAIO keeps contexts for the next write. There are as many as writes have been on their way at
// a time.
var idleAIO struct {
	mu   sync.Mutex
	list []*aio
}

func takeAIO() *aio {
	idleAIO.mu.Lock()
	defer idleAIO.mu.Unlock()
	if n := len(idleAIO.list); n > 0 {
		a := idleAIO.list[n-1]
		idleAIO.list = idleAIO.list[:n-1]
		return a
	}
	a := new(aio)
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&a.context)), 0); errno != 0 {
		return nil
	}
	return a
}

func (a *aio) give() {
	a.p = nil
	idleAIO.mu.Lock()
	idleAIO.list = append(idleAIO.list, a)
	idleAIO.mu.Unlock()
}

// startWrite has the system write p, and gives nil if it does not: then nothing has happened, and a
// plain write returns why.
func startWrite(f *os.File, p []byte, off int64) Pending {
	a := takeAIO()
	if a == nil {
		return nil
	}
	err := control(f, func(fd uintptr) error {
		a.name, a.p = f.Name(), p
		a.block = aioBlock{
			op:   aioWrite,
			fd:   uint32(fd),
			buf:  uint64(uintptr(unsafe.Pointer(&p[0]))),
			size: uint64(len(p)),
			off:  off,
		}
		blocks := [1]*aioBlock{&a.block}
		n, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, uintptr(a.context), 1,
			uintptr(unsafe.Pointer(&blocks)))
		if errno != 0 {
			return errno
		}
		if n != 1 {
			return unix.EAGAIN
		}
		return nil
	})
	if err != nil {
		a.give()
		return nil
	}
	return a
}

func (a *aio) Wait() (n int, err error) {
	var event aioEvent
	err = uninterrupted(func() error {
		got, _, errno := unix.Syscall6(
			unix.SYS_IO_GETEVENTS,
			uintptr(a.context),
			1,
			1,
			uintptr(unsafe.Pointer(&event)),
			0,
			0,
		)
		switch {
		case errno != 0:
			return errno
		case got == 0:
			return unix.EINTR
		}
		return nil
	})
	if err != nil {
		// io_destroy returns when no request is in flight: a caller that gets the error may touch
		// the file, and p.
		_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, uintptr(a.context), 0, 0)
		return 0, fmt.Errorf("learn the end of a write of %s: %w", a.name, err)
	}
	name, size := a.name, len(a.p)
	a.give()
	switch {
	case event.res < 0:
		return 0, osError(&os.PathError{Op: "write", Path: name, Err: unix.Errno(-event.res)})
	case event.res > int64(size):
		return 0, fmt.Errorf("write of %s: %d bytes of %d", name, event.res, size)
	}
	return int(event.res), nil
}
