package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// fileSystem is a kind of file system under test, as its tools and its superblock know it.
type fileSystem struct {
	name     string
	variants []string // options to mount it with, taken in turn
	size     int64    // in bytes: mkfs of xfs refuses less than 300 MB, that of btrfs 109 MiB
	mkfs     []string
	again    string // options to mount a copy beside the original
	magicAt  int64
	magic    string
}

var fileSystems = []fileSystem{
	{
		name: "ext4", variants: diskOptions, size: diskSize, again: "noatime",
		mkfs:    []string{"mkfs.ext4", "-q", "-F", "-b", "4096", "-E", "nodiscard"},
		magicAt: 1024 + 0x38, magic: "\x53\xef",
	},
	{
		name: "xfs", variants: []string{""}, size: 320 << 20, again: "noatime,nouuid",
		mkfs:    []string{"mkfs.xfs", "-q", "-f", "-K"},
		magicAt: 0, magic: "XFSB",
	},
	{
		name: "btrfs", variants: []string{"", "nodatacow"}, size: 256 << 20, again: "noatime",
		mkfs:    []string{"mkfs.btrfs", "-q", "-f", "-K"},
		magicAt: 0x10040, magic: "_BHRfS_M",
	},
}

// fileSystemOf reads from the superblock what file system an image is.
func fileSystemOf(image string) (fs fileSystem, err error) {
	f, err := os.Open(image)
	if err != nil {
		return fs, err
	}
	defer f.Close()
	for _, fs := range fileSystems {
		b := make([]byte, len(fs.magic))
		if _, err := f.ReadAt(b, fs.magicAt); err == nil && string(b) == fs.magic {
			return fs, fs.mustReplay(f)
		}
	}
	return fs, fmt.Errorf("%s has the superblock of no known file system", image)
}

// Where the superblock of ext4 says that the journal has to be replayed: that the file system was
// not unmounted.
const (
	replayAt  = 1024 + 0x60
	replayBit = 4
)

// mustReplay fails for an image of an ext4 that was unmounted: it is none of a crash. (The other
// file systems do not say it in their superblock.)
func (fs fileSystem) mustReplay(f *os.File) error {
	if fs.name != "ext4" {
		return nil
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], replayAt); err != nil {
		return err
	}
	if b[0]&replayBit == 0 {
		return fmt.Errorf("%s is an image of a file system that was unmounted", f.Name())
	}
	return nil
}

// mountCopy mounts a copy of an image, whose journal is replayed by that, and calls look with the
// place.
func mountCopy(image string, look func(root string) error) (err error) {
	fs, err := fileSystemOf(image)
	if err != nil {
		return err
	}
	m, err := newMounts(filepath.Dir(image), "copy-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	file, at := filepath.Join(m.dir, "disk.img"), filepath.Join(m.dir, "root")
	if err := copyImage(file, image); err != nil {
		return err
	}
	if err := m.mount(fs.name, file, at, fs.again); err != nil {
		return err
	}
	return look(at)
}
