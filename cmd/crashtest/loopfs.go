package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// loopReport is what a run of the mode loopfs or powercut has done.
type loopReport struct {
	Seed     uint64         `json:"seed"`
	Skipped  bool           `json:"skipped"`
	Reason   string         `json:"reason,omitempty"` // of all that was skipped
	Systems  []string       `json:"file_systems"`     // that were tried
	Images   int            `json:"images"`
	Mounts   map[string]int `json:"images_per_mount_option"`
	Disks    int            `json:"disks"`
	Commits  uint64         `json:"commits"`                    // acknowledged, on all disks
	Durable  uint64         `json:"durable"`                    // of these with Sync
	Replayed int            `json:"replayed"`                   // commits that recovery found in logs
	Beyond   int            `json:"beyond_acked"`               // images with more than was durable
	InFlight int            `json:"in_flight"`                  // images while a commit ran
	Found    int            `json:"found_in_flight"`            // of these, with that commit
	Expired  int            `json:"expired"`                    // keys that had expired, all looks
	Losses   *cutLoss       `json:"unflushed_blocks,omitempty"` // what powercut did to them
	Failures []string       `json:"failures"`
	Seconds  float64        `json:"seconds"`
}

// imagesPerDisk images are taken of one disk before a new one is made.
const imagesPerDisk = 10

// loopStore is the name of the store on a disk.
const loopStore = "store.ebb"

// testDisk is a mounted file system of which copies can be taken while a process writes to it.
type testDisk interface {
	// root is where it is mounted.
	root() string
	// copyTo leaves in a file what a power cut at some instant leaves on the disk. It calls hear
	// before that instant and after it, or once while the disk stands still.
	copyTo(name string, hear func() error) error
	close() error
}

// diskSystem makes disks with one file system.
type diskSystem struct {
	name     string
	variants []string // options to mount it with, taken in turn
	tools    []string // programs that it needs
	make     func(dir, options string, seed uint64) (testDisk, error)
}

// try makes a disk, and reports why that is not possible here, or nothing. Whatever else goes wrong
// is no reason, but an error.
func (s diskSystem) try(dir string) (reason string, err error) {
	if reason := cannotMount(runtime.GOOS, os.Geteuid(), s.tools...); reason != "" {
		return reason, nil
	}
	d, err := s.make(dir, s.variants[0], 0)
	if errors.Is(err, errNoMounts) {
		return err.Error(), nil
	}
	if err == nil {
		err = d.close()
	}
	return "", err
}

// imageOptions are the flags of loopfs and powercut.
type imageOptions struct {
	n      *int
	seed   *uint64
	dir    *string
	least  *uint64
	asJSON *bool
}

func imageFlags(f *flag.FlagSet, n int, of string) imageOptions {
	return imageOptions{
		n: f.Int("n", n, of),
		seed: f.Uint64("seed", uint64(time.Now().UnixNano()),
			"of all random choices but the scheduler's"),
		dir: f.String("dir", "", "directory for the disks and images; default: a temporary one"),
		least: f.Uint64("min", 1,
			"fail with fewer acknowledged durable commits than this"),
		asJSON: f.Bool("json", false, "print the report as JSON"),
	}
}

// loopfs lets a real process write to a store on a real ext4, copies the disk below it at random
// instants, and holds the store on each copy against what the process had been told by then. What
// the page cache owed the disk is lost: only durable commits, and all before them, must be there.
func loopfs(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flags("loopfs [flags]", "loopfs LINE")
	o := imageFlags(f, 50, "images")
	if err := parseFlags(f, args, stdout, aLine, "n"); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return judgeImage(strings.Join(f.Args(), " "), stdout)
	}
	return takeImages(ctx, "loopfs", o, []diskSystem{loopSystem}, stdout, stderr)
}

// takeImages takes and judges images of each file system that can be mounted here, and reports.
func takeImages(ctx context.Context, mode string, o imageOptions, systems []diskSystem,
	stdout, stderr io.Writer,
) error {
	root, err := os.MkdirTemp(*o.dir, "ebb-"+mode+"-")
	if err != nil {
		return err
	}
	r := &loopReport{Seed: *o.seed, Mounts: map[string]int{}, Failures: []string{}}
	began := time.Now()
	l := &looper{mode: mode, root: root, report: r, log: stderr}
	l.rnd = rand.New(rand.NewPCG(*o.seed, 2))
	err = l.choose(systems)
	l.most = *o.n * len(l.systems)
	for i := 0; i < *o.n && err == nil; i += imagesPerDisk {
		for _, s := range l.systems {
			if err == nil && len(r.Failures) == 0 {
				err = l.disk(ctx, s, s.variants[i/imagesPerDisk%len(s.variants)], min(imagesPerDisk, *o.n-i))
			}
		}
	}
	r.Seconds = time.Since(began).Seconds()
	if len(r.Failures) == 0 {
		err = errors.Join(err, os.RemoveAll(root))
	}
	if *o.asJSON {
		err = errors.Join(err, json.NewEncoder(stdout).Encode(r))
	}
	switch {
	case len(r.Failures) > 0:
		return errors.Join(err, errors.New(strings.Join(r.Failures, "; ")))
	case err == nil && r.Images < l.most:
		return fmt.Errorf("%d images, want %d", r.Images, l.most)
	case err == nil && !r.Skipped && r.Durable < *o.least:
		return fmt.Errorf("%d durable commits acknowledged, want at least %d", r.Durable, *o.least)
	}
	return err
}

type looper struct {
	mode    string
	root    string
	systems []diskSystem
	rnd     *rand.Rand
	report  *loopReport
	most    int // images in all
	log     io.Writer
}

// choose keeps the file systems that can be mounted here, and says why the others are skipped.
func (l *looper) choose(systems []diskSystem) error {
	var reasons []string
	for _, s := range systems {
		reason, err := s.try(l.root)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if reason == "" {
			l.systems = append(l.systems, s)
			l.report.Systems = append(l.report.Systems, s.name)
			continue
		}
		reasons = append(reasons, s.name+": "+reason)
		fmt.Fprintf(l.log, "SKIPPED: %s: %s\n", s.name, reason)
	}
	l.report.Reason = strings.Join(reasons, "; ")
	l.report.Skipped = len(l.systems) == 0
	return nil
}

// disk makes a disk with a store, and takes n images of it.
func (l *looper) disk(ctx context.Context, s diskSystem, options string, n int) (err error) {
	r := l.report
	seed := r.Seed + uint64(r.Disks)
	r.Disks++
	d, err := s.make(l.root, options, seed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if b, ok := d.(*blockDisk); ok {
		defer func() { r.lose(b.loss) }()
	}
	w, err := startWriter(filepath.Join(d.root(), loopStore), seed)
	if err != nil {
		return err
	}
	defer w.stop()
	m := newKillModel(seed)
	var p progress
	for i := 0; i < n && len(r.Failures) == 0; i++ {
		select {
		case <-time.After(time.Duration(l.rnd.Int64N(int64(250 * time.Millisecond)))):
		case <-ctx.Done():
			return errInterrupted // What is mounted is unmounted.
		}
		image := filepath.Join(l.root, fmt.Sprintf("image-%d.img", r.Images))
		c := loopCase{image: image, seed: seed}
		if p, err = c.take(d, w); err != nil {
			return err
		}
		f, err := c.judge(m)
		name := strings.TrimSpace(s.name + " " + options)
		if err != nil {
			r.Failures = append(r.Failures, fmt.Sprintf("%s: crashtest %s '%s': %v", name, l.mode, c, err))
		} else if err := os.Remove(c.image); err != nil {
			return err
		}
		r.Images++
		r.Mounts[name]++
		r.note(c, m.seq, f)
		fmt.Fprintf(l.log, "%4d of %d images, %s, at commit %d, durable %d\n",
			r.Images, l.most, name, m.seq, c.acked)
	}
	r.Commits += p.commits
	r.Durable += p.durables
	return nil
}

// lose adds up what cuts have lost.
func (r *loopReport) lose(loss cutLoss) {
	if r.Losses == nil {
		r.Losses = &cutLoss{}
	}
	r.Losses.add(loss)
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
