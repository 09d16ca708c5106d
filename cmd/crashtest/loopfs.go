package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// loopReport is what a run of the mode loopfs has done.
type loopReport struct {
	Seed     uint64         `json:"seed"`
	Skipped  bool           `json:"skipped"`
	Reason   string         `json:"reason,omitempty"` // why it was skipped
	Images   int            `json:"images"`
	Mounts   map[string]int `json:"images_per_mount_option"`
	Disks    int            `json:"disks"`
	Commits  uint64         `json:"commits"`         // acknowledged, on all disks
	Durable  uint64         `json:"durable"`         // of these with Sync
	Replayed int            `json:"replayed"`        // commits that recovery found in logs
	Beyond   int            `json:"beyond_acked"`    // images with commits that no power cut had to leave
	InFlight int            `json:"in_flight"`       // images taken while a commit was under way
	Found    int            `json:"found_in_flight"` // of these, with the last commit that had begun
	Expired  int            `json:"expired"`         // keys that were gone for having expired, summed over all looks
	Failures []string       `json:"failures"`
	Seconds  float64        `json:"seconds"`
}

// imagesPerDisk images are taken of one disk before a new one is made.
const imagesPerDisk = 10

// loopStore is the name of the store on a disk.
const loopStore = "store.ebb"

// loopfs lets a real process write to a store on a real ext4, copies the disk below it at random instants, and holds the
// store on each copy against what the process had been told by then. What the page cache owed the disk is lost: only
// durable commits, and all before them, must be there.
func loopfs(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	f := flags("loopfs [flags]", "loopfs LINE")
	n := f.Int("n", 50, "images")
	seed := f.Uint64("seed", uint64(time.Now().UnixNano()), "of all random choices but the scheduler's")
	dir := f.String("dir", "", "directory for the disks and images; default: a temporary one")
	least := f.Uint64("min", 1, "fail with fewer acknowledged durable commits than this")
	asJSON := f.Bool("json", false, "print the report as JSON")
	if err := parseFlags(f, args, stdout, aLine, "n"); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return judgeImage(strings.Join(f.Args(), " "), stdout)
	}
	root, err := os.MkdirTemp(*dir, "ebb-loopfs-")
	if err != nil {
		return err
	}
	r := &loopReport{Seed: *seed, Mounts: map[string]int{}, Failures: []string{}}
	began := time.Now()
	if r.Reason, err = tryLoops(root); r.Reason != "" {
		r.Skipped = true
		fmt.Fprintln(stderr, "SKIPPED:", r.Reason)
	} else {
		l := &looper{root: root, rnd: rand.New(rand.NewPCG(*seed, 2)), report: r, most: *n, log: stderr}
		for r.Images < *n && err == nil && len(r.Failures) == 0 {
			err = l.disk(ctx)
		}
	}
	r.Seconds = time.Since(began).Seconds()
	if len(r.Failures) == 0 {
		err = errors.Join(err, os.RemoveAll(root))
	}
	if *asJSON {
		err = errors.Join(err, json.NewEncoder(stdout).Encode(r))
	}
	switch {
	case len(r.Failures) > 0:
		return errors.Join(err, errors.New(strings.Join(r.Failures, "; ")))
	case err == nil && !r.Skipped && r.Images < *n:
		return fmt.Errorf("%d images, want %d", r.Images, *n)
	case err == nil && !r.Skipped && r.Durable < *least:
		return fmt.Errorf("%d durable commits acknowledged, want at least %d", r.Durable, *least)
	}
	return err
}

type looper struct {
	root   string
	rnd    *rand.Rand
	report *loopReport
	most   int // images in all
	log    io.Writer
}

// disk makes a disk with a store, and takes images of it.
func (l *looper) disk(ctx context.Context) (err error) {
	r := l.report
	options := diskOptions[r.Disks%len(diskOptions)]
	seed := r.Seed + uint64(r.Disks)
	r.Disks++
	d, err := newLoopDisk(l.root, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	w, err := startWriter(filepath.Join(d.root, loopStore), seed)
	if err != nil {
		return err
	}
	defer w.stop()
	m := newKillModel(seed)
	var p progress
	for i := 0; i < imagesPerDisk && r.Images < l.most && len(r.Failures) == 0; i++ {
		select {
		case <-time.After(time.Duration(l.rnd.Int64N(int64(250 * time.Millisecond)))):
		case <-ctx.Done():
			return errInterrupted // What is mounted is unmounted.
		}
		c := loopCase{image: filepath.Join(l.root, fmt.Sprintf("image-%d.img", r.Images)), seed: seed}
		if p, err = c.take(d, w); err != nil {
			return err
		}
		f, err := c.judge(m)
		if err != nil {
			r.Failures = append(r.Failures, fmt.Sprintf("%s: crashtest loopfs '%s': %v", options, c, err))
		} else if err := os.Remove(c.image); err != nil {
			return err
		}
		r.Images++
		r.Mounts[options]++
		r.note(c, m.seq, f)
		fmt.Fprintf(l.log, "%4d of %d images, at commit %d, durable %d\n", r.Images, l.most, m.seq, c.acked)
	}
	r.Commits += p.commits
	r.Durable += p.durables
	return nil
}

func (r *loopReport) note(c loopCase, seq uint64, f found) {
	r.Replayed += f.replayed
	r.Expired += f.expired
	if seq > c.acked {
		r.Beyond++
	}
	if f.inFlight {
		r.InFlight++
	}
	if f.there {
		r.Found++
	}
}
