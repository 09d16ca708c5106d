package limit

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where direct I/O wants memory and offsets to begin.
const directAlign = 4096

// directUnit is the block of nearly all disks; where it is larger the direct methods fail, and are
// left out.
const directUnit = 512

var methods = []method{
	{"write + fdatasync", openBuffered, 1, fdatasync},
	{
		"O_DIRECT + O_DSYNC",
		openDirect(unix.O_DIRECT | unix.O_DSYNC),
		directUnit,
		func(*os.File) error { return nil },
	},
	{"O_DIRECT + fdatasync", openDirect(unix.O_DIRECT), directUnit, fdatasync},
}

func fdatasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

func openDirect(flags int) func(string) (*os.File, error) {
	return func(name string) (*os.File, error) { return os.OpenFile(name, os.O_RDWR|flags, 0o600) }
}

// aligned returns n bytes that direct I/O can be done from.
func aligned(n int) []byte {
	b := make([]byte, n+directAlign)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (directAlign - 1)
	return b[skip : skip+n]
}
