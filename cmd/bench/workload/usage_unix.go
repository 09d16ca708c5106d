//go:build unix

package workload

import (
	"io/fs"
	"path/filepath"
	"syscall"
	"time"
)

// cpuTime is what all threads of this process have used, for themselves and in the system.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// majorFaults is how often a thread of this process has waited for a page from the disk.
func majorFaults() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return int64(u.Majflt)
}

// diskBytes is what the files of a directory occupy on the disk: several stores make their files
// long before they fill them, and holes cost nothing.
func diskBytes(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // It went away meanwhile: stores delete files.
		}
		if info, err := d.Info(); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				total += stat.Blocks * 512
			}
		}
		return nil
	})
	return total
}
