package workload

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// peakRSS is the most memory in bytes that this process had at once, mapped files included. It is
// read here and not taken from the rusage that the parent gets, because a process inherits the peak
// of the one that started it.
func peakRSS() int64 { return procNumber("/proc/self/status", "VmHWM:") << 10 }

// writtenBytes is what the disk that dir is on was given to write so far, by anyone: a benchmark
// has it for itself. What is still on its way is sent there first. The count that the kernel keeps
// for a process (write_bytes) takes a huge page of the page cache for written when one byte of it
// was; it stands in where no single disk is known, as in memory.
func writtenBytes(dir string) int64 {
	sectors, ok := writtenSectors(dir)
	if !ok {
		return procNumber("/proc/self/io", "\nwrite_bytes:")
	}
	return sectors * 512
}

// writtenSectors syncs the file system of dir and reads the seventh number that Linux keeps of its
// disk (Documentation/block/stat.rst), in units of 512 bytes whatever the disk's are.
func writtenSectors(dir string) (n int64, ok bool) {
	d, err := os.Open(dir)
	if err != nil {
		return 0, false
	}
	defer d.Close()
	var st unix.Stat_t
	if unix.Fstat(int(d.Fd()), &st) != nil || unix.Syncfs(int(d.Fd())) != nil {
		return 0, false
	}
	text, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev)))
	fields := bytes.Fields(text)
	if err != nil || len(fields) < 7 {
		return 0, false
	}
	n, err = strconv.ParseInt(string(fields[6]), 10, 64)
	return n, err == nil
}

// procNumber is the first number after a label; 0 if there is none.
func procNumber(file, label string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte(label))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(string(fields[0]), 10, 64)
	return n
}
