package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ebbkv/ebb/fuzz"
)

// hangs is how long a single damaged store may take before it counts as a hang. It is no measure of
// speed.
const hangs = 60 * time.Second

// damages are the kinds of damage that bitflip does.
var damages = []string{"flip", "cut", "grow", "page", "old", "back", "mix", "zero"}

// bitflip damages small stores, one damage at a time, and wants the right answer or an error with a
// place.
func bitflip(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flags("bitflip [flags]", "bitflip LINE")
	var o fuzz.RotOptions
	f.IntVar(&o.Bits, "bits", 8, "of each byte so many bits are turned, one at a time")
	f.Int64Var(&o.Every, "every", 1, "of bytes and lengths take only every so-many-th")
	f.Int64Var(&o.Deep, "deep", 8, "one flip in so many is followed by a commit, a close and another open")
	f.IntVar(&o.Workers, "workers", runtime.GOMAXPROCS(0), "goroutines")
	shapes := f.String("shapes", "", "some of "+strings.Join(fuzz.Shapes(), ",")+"; default all")
	hows := f.String("damage", "", "some of "+strings.Join(damages, ",")+"; default all")
	least := f.Int("min", 0, "fail with fewer cases than this")
	asJSON := f.Bool("json", false, "print the report as JSON")
	if err := parseFlags(f, args, stdout, aLine, "bits", "every", "deep", "workers"); err != nil {
		return err
	}
	if f.NArg() > 0 {
		said, err := fuzz.ReplayRot(strings.Join(f.Args(), " "))
		if err == nil {
			fmt.Fprintln(stdout, said)
		}
		return err
	}
	if o.Bits > 8 {
		return usagef("-bits is %d, want at most 8", o.Bits)
	}
	var err error
	if o.Shapes, err = choose("shapes", *shapes, fuzz.Shapes()); err != nil {
		return err
	}
	if o.Hows, err = choose("damage", *hows, damages); err != nil {
		return err
	}
	o.Tick = ticks(
		stderr,
		func(r fuzz.RotReport) string { return fmt.Sprintf("%d damaged, %d failed", r.Cases, r.Failed) },
	)
	o.LateAfter = hangs
	o.Late = func(line string) {
		fmt.Fprintf(stderr, "HANGS %s\n", line)
		os.Exit(1) // The goroutine cannot be ended.
	}
	r, err := fuzz.Rots(ctx, o)
	if err != nil {
		return err
	}
	tellRot(stderr, r)
	if *asJSON {
		if err := json.NewEncoder(stdout).Encode(r); err != nil {
			return err
		}
	}
	switch {
	case r.Failed > 0:
		return fmt.Errorf("%d failures", r.Failed)
	case ctx.Err() != nil:
		return errInterrupted
	case r.Cases < *least:
		return fmt.Errorf("%d cases, want at least %d", r.Cases, *least)
	}
	return nil
}

// tellRot prints a report for people.
func tellRot(w io.Writer, r fuzz.RotReport) {
	for _, name := range fuzz.Shapes() {
		s := r.Shapes[name]
		if s == nil {
			continue
		}
		fmt.Fprintf(w, "%s: main file of %d bytes, log of %d\n", name, s.MainBytes, s.LogBytes)
		for _, how := range slices.Sorted(maps.Keys(s.Damages)) {
			fmt.Fprintf(w, "  %-6s %v\n", how, s.Damages[how])
		}
		fmt.Fprintf(
			w,
			"  blind spot: %d bytes of the log, %d more of relaxed commits, %d of these not told of by "+
				"RecoveryInfo; %d lengths and %d pages of log files\n",
			s.BlindBytes,
			s.RelaxedBytes,
			s.Untold,
			s.BlindCuts,
			s.BlindPages,
		)
		if s.Versions > 0 {
			fmt.Fprintf(
				w,
				"  earlier versions of segments: %d of %d (%.0f %%) lose durable commits without an error, "+
					"%d at most\n",
				s.BlindVersions,
				s.Versions,
				100*float64(s.BlindVersions)/float64(s.Versions),
				s.MostBack,
			)
		}
	}
	fmt.Fprintf(
		w,
		"%.1fs %d damaged, %d of them gone on with, %d failed\n",
		r.Seconds,
		r.Cases,
		r.Deep,
		r.Failed,
	)
	for _, line := range r.Failures {
		fmt.Fprintln(w, "FAILED", line)
	}
}
