package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/ebbkv/ebb/fuzz"
)

// interleave plays every order of two actors at a time.
func interleave(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flags("interleave [flags]", "interleave LINE")
	var o fuzz.InterleaveOptions
	f.Uint64Var(&o.Seed, "seed", 1, "of a sample")
	f.IntVar(&o.Sample, "sample", 0, "of each pair so many; 0: all")
	f.IntVar(&o.Workers, "workers", runtime.GOMAXPROCS(0), "goroutines, each with two actors")
	least := f.Int("min", 0, "fail with fewer interleavings than this")
	asJSON := f.Bool("json", false, "print the report as JSON")
	if err := parseFlags(f, args, stdout, aLine, "workers"); err != nil {
		return err
	}
	if f.NArg() > 0 {
		err := fuzz.ReplayInterleaving(strings.Join(f.Args(), " "))
		if err == nil {
			fmt.Fprintln(stdout, "survived")
		}
		return err
	}
	o.Tick = ticks(stderr, func(r fuzz.InterleaveReport) string {
		return fmt.Sprintf("%d played, %d failed", r.Played, len(r.Failures))
	})
	r := fuzz.Interleave(ctx, o)
	fmt.Fprintf(
		stderr,
		"%.1fs %d interleavings of %d pairs, %d failed\n",
		r.Seconds,
		r.Played,
		len(r.Pairs),
		len(r.Failures),
	)
	for _, line := range r.Failures {
		fmt.Fprintln(stderr, "FAILED", line)
	}
	if *asJSON {
		if err := json.NewEncoder(stdout).Encode(r); err != nil {
			return err
		}
	}
	switch {
	case len(r.Failures) > 0:
		return fmt.Errorf("%d failures", len(r.Failures))
	case ctx.Err() != nil:
		return errInterrupted
	case r.Played < *least:
		return fmt.Errorf("%d interleavings, want at least %d", r.Played, *least)
	}
	return nil
}
