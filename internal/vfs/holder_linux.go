package vfs

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lockedBy is ErrLocked that names the process which holds the lock.
type lockedBy struct {
	pid  int
	name string // of its program; "" if unknown
}

func (l lockedBy) Error() string { return ErrLocked.Error() + ": " + l.process() + " holds it" }

func (l lockedBy) process() string {
	switch {
	case l.pid == os.Getpid():
		return "this process"
	case l.name != "":
		return fmt.Sprintf("process %d (%s)", l.pid, l.name)
	}
	return fmt.Sprintf("process %d", l.pid)
}

func (l lockedBy) Is(target error) bool { return target == ErrLocked }

// locked is ErrLocked for f, with the process that holds the lock where /proc has it. It is asked
// for after a refusal only.
func locked(f *os.File) error {
	if info, err := f.Stat(); err == nil {
		if l, ok := holder(info); ok {
			return l
		}
	}
	return ErrLocked
}

// HolderOf describes the process that holds a lock on a file: "process 17 (name)"; "" if there is
// none, or the system does not tell. It takes no lock.
func HolderOf(name string) string {
	info, err := os.Stat(name)
	if err != nil {
		return ""
	}
	l, ok := holder(info)
	if !ok {
		return ""
	}
	return l.process()
}

func holder(info os.FileInfo) (l lockedBy, ok bool) {
	id, err := statID(info)
	if err != nil {
		return l, false
	}
	table, err := os.ReadFile("/proc/locks")
	if err != nil {
		return l, false
	}
	if l.pid, ok = holderOf(string(table), id); !ok {
		return l, false
	}
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", l.pid)) // a process that has ended has none
	l.name = strings.TrimSpace(string(name))
	return l, true
}

// holderOf finds the process that holds a lock of flock(2) on a file, in lines as
//
//	1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF
//
// Waiting ones have "->" behind the number. A process of another namespace has no number that would
// mean something here.
func holderOf(table string, id FileID) (pid int, ok bool) {
	place := fmt.Sprintf("%02x:%02x:%d", unix.Major(id.Dev), unix.Minor(id.Dev), id.Ino)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != place {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			return pid, true
		}
	}
	return 0, false
}
