package main

import (
	"errors"
	"path/filepath"
)

// A loopDisk is an ext4 file system on a disk of which copies can be taken while the file system is
// at work. The disk is a file, connected by a loop device, and that file is on a second file
// system, the shelf, in a file of its own:
//
//	writer -> ext4 on a loop device -> disk.img on the shelf
//	the shelf: ext4 on a loop device -> shelf.img in a directory
//
// What must be copied is what a disk holds whose power is cut: what ext4 has given to it, in the
// order in which it gave it, and nothing of what the page cache above still owes. That is the
// content of disk.img at one instant. Read while the loop device writes, a file is no instant: its
// end would be newer than its beginning, a state that no disk was ever in. To stop the writer does
// not help, for the kernel writes back on its own. To freeze the file system under test would, but
// it writes everything back first, and a clean file system is no power cut. So the shelf is frozen:
// whatever ext4 gives to its disk then waits, requests that were under way end first,
// and ext4 knows nothing of it. (Freezing writes the shelf back to shelf.img, which changes no byte
// of disk.img.)
//
// Such a disk keeps every request that it has completed: it is one without a cache, or a lucky one.
// What a disk may lose or reorder until it is told to flush is tried by powercut.
type loopDisk struct {
	mounts
	image string // the file that is the disk
	at    string // where the file system under test is mounted
}

// Sizes in bytes. A store of kill-child stays below 24 MiB with its log. Files are sparse.
const (
	diskSize  = 96 << 20
	shelfSize = 160 << 20
)

// diskOptions are ways to mount ext4, which differ in what a crash may leave in files.
var diskOptions = []string{"data=ordered", "data=writeback", "data=journal"}

// loopSystem makes loopDisks.
var loopSystem = diskSystem{
	name: "ext4", variants: diskOptions, tools: []string{"mkfs.ext4", "mount", "umount", "fsfreeze"},
	make: func(dir, options string, _ uint64) (testDisk, error) { return newLoopDisk(dir, options) },
}

// newLoopDisk makes and mounts both file systems.
func newLoopDisk(dir, options string) (*loopDisk, error) {
	m, err := newMounts(dir, "disk-")
	if err != nil {
		return nil, err
	}
	d := &loopDisk{mounts: m, at: filepath.Join(m.dir, "root")}
	d.image = filepath.Join(d.shelf(), "disk.img")
	file := d.shelf() + ".img"
	err = makeFile(file, shelfSize, "mkfs.ext4", "-O", "^has_journal", "-q", "-F")
	if err == nil {
		err = d.mount("ext4", file, d.shelf(), "noatime")
	}
	if err == nil {
		err = makeFile(d.image, diskSize, "mkfs.ext4", "-q", "-F")
	}
	if err == nil {
		err = d.mount("ext4", d.image, d.at, options)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *loopDisk) shelf() string { return filepath.Join(d.dir, "shelf") }

func (d *loopDisk) root() string { return d.at }

// copyTo freezes the shelf and copies the disk.
func (d *loopDisk) copyTo(name string, hear func() error) (err error) {
	if err := hear(); err != nil {
		return err
	}
	if err := d.copyFrozen(name); err != nil {
		return err
	}
	return hear()
}

func (d *loopDisk) copyFrozen(name string) (err error) {
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
