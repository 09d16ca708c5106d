package memlimit

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

// Bytes is the least of what bounds the memory of this process, in bytes: the limits of its control
// group and of those above it, GOMEMLIMIT (or debug.SetMemoryLimit), and the memory of the machine.
// 0: none of them is known. What the system reports is read once: a limit that is changed later is
// not seen.
func Bytes() int64 {
	limit := system()
	if own := debug.SetMemoryLimit(-1); own < math.MaxInt64 {
		limit = least(limit, own)
	}
	return limit
}

var system = sync.OnceValue(func() int64 { return least(machine(), cgroups(os.DirFS("/"))) })

// least is the lower of two limits; 0: none.
func least(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// cgroups is the least limit of the control groups that this process is in, which root tells of as
// Linux does; 0 where there are none. Version 2 has one hierarchy, whose line in /proc/self/cgroup
// begins with "0::"; version 1 has one for each controller, or several.
func cgroups(root fs.FS) (limit int64) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) < 3 {
			continue
		}
		v2 := fields[0] == "0" && fields[1] == ""
		if !v2 && !contains(fields[1], "memory") {
			continue
		}
		for _, m := range mounts(root, v2) {
			limit = least(limit, m.limit(root, fields[2]))
		}
	}
	return limit
}

// contains reports whether word is in a list with commas.
func contains(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// A mount is a directory at which a hierarchy of control groups is seen, from one of its groups
// down.
type mount struct {
	group string // that it begins with
	at    string // the directory, without the slash that it begins with
	files []string
}

// mounts lists where the hierarchy of version 2, or that of the memory controller of version 1, is
// mounted: a line of mountinfo is "id parent device root point options ... - type source options".
func mounts(root fs.FS, v2 bool) (found []mount) {
	text, err := fs.ReadFile(root, "proc/self/mountinfo")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(kind) < 3 {
			continue
		}
		m := mount{group: fields[3], at: strings.TrimPrefix(fields[4], "/")}
		switch {
		case v2 && kind[0] == "cgroup2":
			m.files = []string{"memory.max", "memory.high"}
		case !v2 && kind[0] == "cgroup" && contains(kind[2], "memory"):
			m.files = []string{"memory.limit_in_bytes"}
		default:
			continue
		}
		found = append(found, m)
	}
	return found
}

// limit is the least limit of a group and of those above it that are seen at the mount. A group
// that is not below the one mounted, as in some containers, is taken for that one.
func (m mount) limit(root fs.FS, group string) (limit int64) {
	below, ok := strings.CutPrefix(path.Clean(group), strings.TrimSuffix(m.group, "/"))
	if !ok || below != "" && below[0] != '/' || strings.Contains(below, "..") {
		below = ""
	}
	for dir := path.Join(m.at, below); fs.ValidPath(dir); dir = path.Dir(dir) {
		for _, name := range m.files {
			limit = least(limit, number(root, path.Join(dir, name)))
		}
		if len(dir) <= len(m.at) {
			break
		}
	}
	return limit
}

// number reads a limit; 0 for "max", what cannot be read, and what is no limit.
func number(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n <= 0 || n >= unlimited {
		return 0
	}
	return n
}

// unlimited is less than what version 1 shows of a group without a limit: the largest multiple of
// the page size.
const unlimited = math.MaxInt64 - 1<<20

// total reads the memory of the machine from text as in /proc/meminfo; 0: it is not there.
func total(text string) int64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			number := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB"))
			kb, err := strconv.ParseInt(number, 10, 53)
			if err != nil || kb < 0 {
				return 0
			}
			return kb << 10
		}
	}
	return 0
}
