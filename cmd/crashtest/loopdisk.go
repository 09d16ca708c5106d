package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// A loopDisk is an ext4 file system on a disk of which copies can be taken while the file system is at work. The disk is
// a file, connected by a loop device, and that file lies on a second file system, the shelf, in a file of its own:
//
//	writer -> ext4 on a loop device -> disk.img on the shelf, ext4 on a loop device -> shelf.img in a directory
//
// What must be copied is what a disk holds whose power is cut: what ext4 has given to it, in the order in which it gave
// it, and nothing of what the page cache above still owes. That is the content of disk.img at one instant. Read while
// the loop device writes, a file is no instant: its end would be newer than its beginning, a state that no disk was ever
// in. To stop the writer does not help, for the kernel writes back on its own. To freeze the file system under test
// would, but it writes everything back first, and a clean file system is no power cut. So the shelf is frozen: whatever
// ext4 gives to its disk then waits, requests that were under way come to their end first, and ext4 knows nothing of it.
// (Freezing writes the shelf back to shelf.img, which changes no byte of disk.img.)
//
// Such a disk keeps every request that it has completed: it is one without a cache, or a lucky one. What a disk may lose
// or reorder until it is told to flush is tried by the mode enumerate.
type loopDisk struct {
	dir   string         // holds all files and mount points
	undo  []func() error // what close does, last first
	image string         // the file that is the disk
	root  string         // where the file system under test is mounted
}

// Sizes in bytes. A store of kill-child stays below 24 MiB with its log. Files are sparse.
const (
	diskSize  = 96 << 20
	shelfSize = 160 << 20
)

// diskOptions are ways to mount the file system under test, which differ in what a crash may leave in files.
var diskOptions = []string{"data=ordered", "data=writeback", "data=journal"}

// noLoops tells why a system cannot have a loopDisk, or nothing.
func noLoops(system string, uid int) string {
	switch {
	case system != "linux":
		return "ext4 on a loop device needs Linux, this is " + system
	case uid != 0:
		return "only root may mount a file system"
	}
	for _, name := range []string{"mkfs.ext4", "mount", "umount", "fsfreeze"} {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed"
		}
	}
	return ""
}

// tryLoops makes a loopDisk, and tells why that is not possible here, or nothing. Whatever else goes wrong is no
// reason, but an error.
func tryLoops(dir string) (reason string, err error) {
	if reason := noLoops(runtime.GOOS, os.Geteuid()); reason != "" {
		return reason, nil
	}
	d, err := newLoopDisk(dir, diskOptions[0])
	if errors.Is(err, errNoMounts) {
		return err.Error(), nil
	}
	if err == nil {
		err = d.close()
	}
	return "", err
}

// errNoMounts is a system that mounts no file system for us, though we are root: a container, or a kernel without the
// drivers.
var errNoMounts = errors.New("no file system can be mounted here")

// noMounts are the words of mount for that.
var noMounts = []string{"loop device", "permission denied", "not permitted", "must be superuser", "unknown filesystem type"}

// mountError tells errors of mount apart.
func mountError(err error) error {
	for _, words := range noMounts {
		if err != nil && strings.Contains(strings.ToLower(err.Error()), words) {
			return fmt.Errorf("%w: %w", errNoMounts, err)
		}
	}
	return err
}

// newLoopDisk makes and mounts both file systems.
func newLoopDisk(dir, options string) (d *loopDisk, err error) {
	d = &loopDisk{}
	if d.dir, err = os.MkdirTemp(dir, "disk-"); err != nil {
		return nil, err
	}
	d.image, d.root = filepath.Join(d.shelf(), "disk.img"), filepath.Join(d.dir, "root")
	d.undo = append(d.undo, func() error { return os.RemoveAll(d.dir) })
	err = d.add(d.shelf()+".img", shelfSize, d.shelf(), "noatime", "-O", "^has_journal")
	if err == nil {
		err = d.add(d.image, diskSize, d.root, options)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *loopDisk) shelf() string { return filepath.Join(d.dir, "shelf") }

// add makes a file system in a file and mounts it.
func (d *loopDisk) add(file string, size int64, at, options string, how ...string) error {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(file, size); err != nil {
		return err
	}
	if err := tool("mkfs.ext4", append(slices.Clone(how), "-q", "-F", file)...); err != nil {
		return err
	}
	return d.mount(file, at, options)
}

func (d *loopDisk) mount(file, at, options string) error {
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	if err := mountError(tool("mount", "-t", "ext4", "-o", "loop,"+options, file, at)); err != nil {
		return err
	}
	d.undo = append(d.undo, func() error { return tool("umount", at) })
	return nil
}

// close unmounts and removes everything.
func (d *loopDisk) close() error {
	for i, undo := range slices.Backward(d.undo) {
		if err := undo(); err != nil {
			return err // What lies below is in use.
		}
		d.undo = d.undo[:i]
	}
	return nil
}

// copyTo leaves in a file what the disk holds at an instant within the call.
func (d *loopDisk) copyTo(name string) (err error) {
	if err := tool("fsfreeze", "--freeze", d.shelf()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tool("fsfreeze", "--unfreeze", d.shelf())) }()
	if err := copyImage(name, d.image); err != nil {
		return err
	}
	// What the copy is worth depends on it: read again, the disk is the same.
	same, err := sameImages(name, d.image)
	if err == nil && !same {
		return errors.New("the disk has changed while its shelf was frozen")
	}
	return err
}

// mountCopy mounts a copy of an image, whose journal is replayed by that, and calls look with the place.
func mountCopy(image string, look func(root string) error) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(image), "copy-")
	if err != nil {
		return err
	}
	d := &loopDisk{dir: dir, undo: []func() error{func() error { return os.RemoveAll(dir) }}}
	defer func() { err = errors.Join(err, d.close()) }()
	file, at := filepath.Join(dir, "disk.img"), filepath.Join(dir, "root")
	if err := copyImage(file, image); err != nil {
		return err
	}
	if err := mustReplay(file); err != nil {
		return err
	}
	if err := d.mount(file, at, "noatime"); err != nil {
		return err
	}
	return look(at)
}

// Where the superblock of ext4 says that the journal has to be replayed: that the file system was not unmounted.
const (
	replayAt  = 1024 + 0x60
	replayBit = 4
)

// mustReplay fails for an image of a file system that was unmounted: it is none of a crash.
func mustReplay(image string) error {
	f, err := os.Open(image)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], replayAt); err != nil {
		return err
	}
	if b[0]&replayBit == 0 {
		return fmt.Errorf("%s is an image of a file system that was unmounted", image)
	}
	return nil
}

// copyImage copies a file and leaves holes where there are only zeros.
func copyImage(to, from string) (err error) {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	size, err := eachPart(from, func(part []byte, off int64) error {
		if bytes.Count(part, []byte{0}) == len(part) {
			return nil
		}
		_, err := out.WriteAt(part, off)
		return err
	})
	if err != nil {
		return err
	}
	return out.Truncate(size)
}

func sameImages(a, b string) (bool, error) {
	digest := func(name string) (uint64, error) {
		d := xxhash.New()
		_, err := eachPart(name, func(part []byte, _ int64) error { _, err := d.Write(part); return err })
		return d.Sum64(), err
	}
	x, err1 := digest(a)
	y, err2 := digest(b)
	return x == y, errors.Join(err1, err2)
}

// eachPart reads a file from its begin to its end, and gives its size.
func eachPart(name string, do func(part []byte, off int64) error) (size int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(f, b)
		if n > 0 {
			if err := do(b[:n], size); err != nil {
				return size, err
			}
		}
		size += int64(n)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return size, nil
		case err != nil:
			return size, err
		}
	}
}

func tool(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // Somebody reads what they say.
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
