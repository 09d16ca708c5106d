//go:build (linux || darwin || freebsd) && !race

package offheap

import "golang.org/x/sys/unix"

// Alloc returns n zeroed bytes, aligned to a memory page. The caller gives them back whole with
// Free.
func Alloc(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	if n >= HugePage {
		adviseHuge(b)
	}
	return b, nil
}

// Free releases what Alloc returned; no slice of it may be used afterwards.
func Free(b []byte) error { return unix.Munmap(b) }
