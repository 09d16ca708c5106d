//go:build unix

package server

import "syscall"

const canWriteNow = true

// writeNow writes to a descriptor that does not block, as those of connections.
func writeNow(fd uintptr, b []byte) int {
	n, err := syscall.Write(int(fd), b)
	if err != nil {
		return 0
	}
	return n
}
