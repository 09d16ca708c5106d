package memgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrUnsupported is given where no group can be made, with the reason.
var ErrUnsupported = errors.New("memgroup: no control groups of memory here")

// A Group is a control group. Close removes it.
type Group struct {
	dir string
	v   version
}

// version is where the files of a version of control groups are.
type version struct {
	at     string // the directory that holds groups
	proof  string // a file there that tells that there is a memory controller
	limit  string
	noSwap [2]string // a file and what is written to it; what fails there does not matter
	events string    // has a line "oom_kill N"
}

var versions = []version{
	{
		at: "/sys/fs/cgroup", proof: "cgroup.subtree_control", limit: "memory.max",
		noSwap: [2]string{"memory.swap.max", "0"}, events: "memory.events",
	},
	{
		at: "/sys/fs/cgroup/memory", proof: "memory.limit_in_bytes", limit: "memory.limit_in_bytes",
		noSwap: [2]string{"memory.swappiness", "0"}, events: "memory.oom_control",
	},
}

// New makes a group that may use limit bytes.
func New(limit int64) (*Group, error) {
	for _, v := range versions {
		text, err := os.ReadFile(filepath.Join(v.at, v.proof))
		if err != nil || v.proof == "cgroup.subtree_control" && !strings.Contains(string(text), "memory") {
			continue
		}
		dir, err := os.MkdirTemp(v.at, "ebb-test-")
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		g := &Group{dir, v}
		if err := g.write(v.limit, strconv.FormatInt(limit, 10)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnsupported, errors.Join(err, g.Close()))
		}
		_ = g.write(v.noSwap[0], v.noSwap[1])
		return g, nil
	}
	return nil, fmt.Errorf("%w: none at %s nor %s", ErrUnsupported, versions[0].at, versions[1].at)
}

func (g *Group) write(name, text string) error {
	return os.WriteFile(filepath.Join(g.dir, name), []byte(text), 0o600)
}

// Wrap makes cmd enter the group before its program begins, so that all memory and all files that
// it uses count there. It is called before cmd is started.
func (g *Group) Wrap(cmd *exec.Cmd) {
	const enter = `echo $$ > "$0/cgroup.procs" && exec "$@"`
	cmd.Args = append([]string{"sh", "-c", enter, g.dir, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}

// Kills is how many processes the system has killed for want of memory in the group.
func (g *Group) Kills() int64 {
	text, err := os.ReadFile(filepath.Join(g.dir, g.v.events))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}

// Close removes the group. All of its processes have ended; the system may take a moment to notice.
func (g *Group) Close() (err error) {
	for range 100 {
		if err = os.Remove(g.dir); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}
