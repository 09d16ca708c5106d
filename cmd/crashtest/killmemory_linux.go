package main

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// starves says whether this system can take address space away.
const starves = true

// hoard uses the address space up: nothing in it is garbage.
var hoard [][]byte

// starve lets a process die for want of memory. It fails only before that.
func (h hunger) starve() error {
	time.Sleep(h.after)
	has, err := addressSpace()
	if err != nil {
		return err
	}
	limit := &unix.Rlimit{Cur: has + h.left, Max: has + h.left}
	if err := unix.Setrlimit(unix.RLIMIT_AS, limit); err != nil {
		return os.NewSyscallError("setrlimit", err)
	}
	for {
		hoard = append(hoard, bytes.Repeat([]byte{1}, 32<<10))
	}
}

// addressSpace is what this process has of it, in bytes.
func addressSpace() (uint64, error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseUint(string(bytes.Fields(b)[0]), 10, 64)
	return pages * uint64(os.Getpagesize()), err
}
