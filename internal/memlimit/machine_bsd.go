//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package memlimit

import (
	"math"

	"golang.org/x/sys/unix"
)

func machine() int64 {
	for _, name := range []string{"hw.memsize", "hw.physmem64", "hw.physmem"} {
		if n, err := unix.SysctlUint64(name); err == nil && n < math.MaxInt64 {
			return int64(n)
		}
	}
	return 0
}
