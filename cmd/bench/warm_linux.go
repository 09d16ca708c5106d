package main

import "golang.org/x/sys/unix"

// warmHuge uses and frees n bytes in huge pages, where the system has them.
func warmHuge(n int) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return
	}
	if unix.Madvise(b, unix.MADV_HUGEPAGE) == nil {
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
	_ = unix.Munmap(b)
}
