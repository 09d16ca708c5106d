package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A blockDisk is a file system on a disk with a write cache, which is ours:
//
//	writer -> ext4, xfs or btrfs on a loop device -> fuseFile -> cacheDisk
//
// A copy of it is what the disk holds after a power cut: everything until the last flush, and of
// the writes since then those that a random choice has kept, in whole or in part.
type blockDisk struct {
	mounts
	at    string // where the file system under test is mounted
	disk  *cacheDisk
	file  *fuseFile
	rnd   *rand.Rand
	ended <-chan struct{} // ends the wait for the moment of a cut
	loss  cutLoss         // of all cuts
}

// powercut lets a real process write to a store on a real file system, cuts the power of the disk
// below it at random moments, and holds the store on each image against what the process had been
// told by then.
func powercut(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	names := make([]string, len(fileSystems))
	for i, fs := range fileSystems {
		names[i] = fs.name
	}
	f := flags("powercut [flags]", "powercut LINE")
	o := imageFlags(f, 10, "images of each file system")
	list := f.String("fs", strings.Join(names, ","), "file systems")
	if err := parseFlags(f, args, stdout, aLine, "n"); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return judgeImage(strings.Join(f.Args(), " "), stdout)
	}
	chosen, err := choose("fs", *list, names)
	if err != nil {
		return err
	}
	var systems []diskSystem
	for i, fs := range fileSystems {
		if chosen == nil || slices.Contains(chosen, names[i]) {
			systems = append(systems, fs.system(ctx))
		}
	}
	return takeImages(ctx, "powercut", o, systems, stdout, stderr)
}

// system makes blockDisks with a file system.
func (fs fileSystem) system(ctx context.Context) diskSystem {
	return diskSystem{
		name: fs.name, variants: fs.variants, tools: []string{fs.mkfs[0], "mount", "umount"},
		make: func(dir, options string, seed uint64) (testDisk, error) {
			return newBlockDisk(ctx, dir, fs, options, seed)
		},
	}
}

// newBlockDisk makes a file system in memory and mounts it.
func newBlockDisk(ctx context.Context, dir string, fs fileSystem, options string, seed uint64) (
	d *blockDisk, err error,
) {
	m, err := newMounts(dir, "disk-")
	if err != nil {
		return nil, err
	}
	d = &blockDisk{mounts: m, at: filepath.Join(m.dir, "root"), ended: ctx.Done()}
	d.rnd = rand.New(rand.NewPCG(seed, 4))
	if err := d.make(fs, options); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *blockDisk) make(fs fileSystem, options string) error {
	made := filepath.Join(d.dir, "made.img")
	err := makeFile(made, fs.size, fs.mkfs...)
	if err != nil {
		return err
	}
	if d.disk, err = newCacheDisk(made); err != nil {
		return err
	}
	if err := os.Remove(made); err != nil {
		return err
	}
	file := filepath.Join(d.dir, "disk.img")
	if d.file, err = serveFile(file, d.disk); err != nil {
		return err
	}
	d.undo = append(d.undo, d.file.close)
	return d.mount(fs.name, file, d.at, options)
}

func (d *blockDisk) root() string { return d.at }

// Where a meta page of a store describes what it is. A checkpoint ends with one: that it is kept while
// other writes are lost is what the order of its syncs has to exclude.
const (
	metaMarkAt = 24
	metaMark   = "Ebb kv\r\n"
)

// copyTo cuts the power at a random moment. Right before a flush the disk has most to lose.
func (d *blockDisk) copyTo(name string, hear func() error) error {
	p := &powerCut{hear: hear, writes: 1 + d.rnd.IntN(100)}
	switch d.rnd.IntN(4) {
	case 0:
		p.flush = flushOfMuch(1 + d.rnd.IntN(1000))
	case 1, 2:
		p.flush = flushOf(metaMarkAt, metaMark, 400)
	}
	s, err := d.disk.cutAt(p, d.ended)
	if err != nil {
		return err
	}
	kept, loss := s.lose(cutWays[d.rnd.IntN(len(cutWays))], d.rnd)
	d.loss.add(loss)
	if err := s.image(name, kept); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}
