package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/ebbkv/ebb/fuzz"
	"github.com/ebbkv/ebb/internal/crashfs"
)

func enumerate(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flags("enumerate [flags]")
	var o fuzz.Options
	f.Uint64Var(&o.Seed, "seed", 1, "of all random choices")
	f.DurationVar(&o.Budget, "budget", time.Minute, "time to spend; 0: until everything was tried")
	f.IntVar(&o.Depth, "depth", 2, "crashes in a row: 1, 2, or 3 (sampled)")
	f.IntVar(&o.Length, "len", 2, "operations of an enumerated sequence, at most")
	f.IntVar(
		&o.Skip,
		"skip",
		0,
		"workloads that an earlier run with this seed and -len has done: go on where it ended",
	)
	f.IntVar(&o.Workers, "workers", runtime.GOMAXPROCS(0), "goroutines")
	f.IntVar(&o.Most, "most", 0, "stop after so many distinct images; 0: no bound")
	least := f.Int("min", 0, "fail with fewer distinct images than this")
	leastInner := f.Int("min-recoveries", 0, "fail with fewer crashes within recoveries than this")
	asJSON := f.Bool("json", false, "print the report as JSON")
	profiles := f.String(
		"profiles",
		"",
		"some of kill,none,prefix,reorder,torn512,torn4k,shorn,dirs,size,stale; default all",
	)
	if err := parseFlags(f, args, stdout, 0, "depth", "len", "workers"); err != nil {
		return err
	}
	if err := checkLength(o.Length); err != nil {
		return err
	}
	if o.Depth > 3 {
		return usagef("-depth is %d, want at most 3", o.Depth)
	}
	for name := range strings.SplitSeq(*profiles, ",") {
		p, ok := crashfs.ParseProfile(strings.TrimSpace(name))
		if !ok && name != "" {
			return usagef("-profiles: %q is not known", name)
		}
		o.Profiles |= p
	}
	o.Tick = ticks(stderr, fuzz.Report.String)
	report := fuzz.Campaign(ctx, o)
	fmt.Fprintln(stderr, report)
	for _, line := range report.Failures {
		fmt.Fprintln(stderr, "FAILED", line)
	}
	if *asJSON {
		if err := json.NewEncoder(stdout).Encode(report); err != nil {
			return err
		}
	}
	switch {
	case len(report.Failures) > 0:
		return fmt.Errorf("%d failures", len(report.Failures))
	case ctx.Err() != nil:
		return fmt.Errorf("%w; -skip %d goes on from there", errInterrupted, report.Skipped+report.Workloads)
	case report.Distinct < *least:
		return fmt.Errorf("%d distinct images, want at least %d", report.Distinct, *least)
	case report.Crashed < *leastInner:
		return fmt.Errorf("%d crashes within recoveries, want at least %d", report.Crashed, *leastInner)
	}
	return nil
}

func replay(_ context.Context, args []string, stdout, _ io.Writer) error {
	f := flags("replay 'LINE'")
	if err := parseFlags(f, args, stdout, 1); err != nil {
		return err
	}
	if f.NArg() == 0 {
		return usagef("want one line, in quotes")
	}
	c, err := fuzz.ParseCase(f.Arg(0))
	if err != nil {
		return err
	}
	if err := fuzz.Explain(c); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "survived")
	return nil
}
