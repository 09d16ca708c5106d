package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// mounts is a directory with the file systems that are mounted in it.
type mounts struct {
	dir  string         // holds all files and mount points
	undo []func() error // what close does, last first
}

func newMounts(dir, pattern string) (m mounts, err error) {
	if m.dir, err = os.MkdirTemp(dir, pattern); err != nil {
		return m, err
	}
	m.undo = []func() error{func() error { return os.RemoveAll(m.dir) }}
	return m, nil
}

// mount mounts the file system in a file on a new directory.
func (m *mounts) mount(kind, file, at, options string) error {
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	options = strings.Trim("loop,"+options, ",")
	if err := mountError(tool("mount", "-t", kind, "-o", options, file, at)); err != nil {
		return err
	}
	m.undo = append(m.undo, func() error { return tool("umount", at) })
	return nil
}

// close unmounts and removes everything.
func (m *mounts) close() error {
	for i, undo := range slices.Backward(m.undo) {
		if err := undo(); err != nil {
			return err // What is below is in use.
		}
		m.undo = m.undo[:i]
	}
	return nil
}

// cannotMount reports why a system cannot mount file systems with these tools, or nothing.
func cannotMount(system string, uid int, tools ...string) string {
	switch {
	case system != "linux":
		return "a file system on a loop device needs Linux, this is " + system
	case uid != 0:
		return "only root may mount a file system"
	}
	for _, name := range tools {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed"
		}
	}
	return ""
}

// errNoMounts is a system that mounts no file system for us, though we are root: a container, or a
// kernel without the drivers.
var errNoMounts = errors.New("no file system can be mounted here")

// noMounts are the words of mount for that.
var noMounts = []string{"loop device", "permission denied", "not permitted", "must be superuser",
	"unknown filesystem type"}

// mountError distinguishes errors of mount.
func mountError(err error) error {
	for _, words := range noMounts {
		if err != nil && strings.Contains(strings.ToLower(err.Error()), words) {
			return fmt.Errorf("%w: %w", errNoMounts, err)
		}
	}
	return err
}

// makeFile makes a sparse file and runs a tool on it, mkfs with its arguments.
func makeFile(file string, size int64, mkfs ...string) error {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(file, size); err != nil {
		return err
	}
	return tool(mkfs[0], append(slices.Clone(mkfs[1:]), file)...)
}

func tool(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // mountError compares words of messages.
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
