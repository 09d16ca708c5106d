package workload

import (
	"bytes"
	"os"
	"strconv"
)

// peakRSS is the most memory in bytes that this process had at once, mapped files included. It is read here and not
// taken from the rusage that the parent gets, because a process inherits the peak of the one that started it.
func peakRSS() int64 { return procNumber("/proc/self/status", "VmHWM:") << 10 }

// writtenBytes is what this process has caused to be written to the disk.
func writtenBytes() int64 { return procNumber("/proc/self/io", "\nwrite_bytes:") }

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
