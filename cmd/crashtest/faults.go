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
)

func faults(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return faulty(ctx, "faults", args, stdout, stderr, nil)
}

func fsyncgate(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return faulty(ctx, "fsyncgate", args, stdout, stderr, []string{"gate"})
}

func faulty(ctx context.Context, name string, args []string, stdout, stderr io.Writer, kinds []string) error {
	f := flags(name + " [flags]")
	var o fuzz.Options
	f.Uint64Var(&o.Seed, "seed", 1, "of all random choices")
	f.DurationVar(&o.Budget, "budget", time.Minute, "time to spend; 0: until everything was tried")
	f.IntVar(&o.Most, "most", 0, "end after so many runs in which the fault happened; 0: no bound")
	f.IntVar(&o.Length, "len", 1, "operations of an enumerated sequence, at most")
	f.IntVar(&o.Workers, "workers", runtime.GOMAXPROCS(0), "goroutines")
	least := f.Int("min", 0, "fail with fewer runs in which the fault happened than this")
	asJSON := f.Bool("json", false, "print the report as JSON")
	chosen := ""
	if kinds == nil {
		f.StringVar(&chosen, "kinds", "", "some of "+strings.Join(fuzz.FaultKinds(), ",")+"; default all")
	}
	if err := parseFlags(f, args, stdout, 0, "len", "workers"); err != nil {
		return err
	}
	if err := checkLength(o.Length); err != nil {
		return err
	}
	if kinds == nil {
		var err error
		if kinds, err = choose("kinds", chosen, fuzz.FaultKinds()); err != nil {
			return err
		}
	}
	o.TickFaults = ticks(stderr, fuzz.FaultReport.String)
	r, err := fuzz.Faults(ctx, o, kinds...)
	if err != nil {
		return err
	}
	fmt.Fprintln(stderr, r)
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
	case r.Runs < *least:
		return fmt.Errorf("%d runs with a fault, want at least %d", r.Runs, *least)
	}
	return nil
}

func syncs(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flags("syncs [flags]")
	length := f.Int("len", 0, "operations of an enumerated sequence, at most, beside the special workloads")
	least := f.Int("min", 0, "fail with fewer sites than this")
	asJSON := f.Bool("json", false, "print the report as JSON")
	if err := parseFlags(f, args, stdout, 0); err != nil {
		return err
	}
	if err := checkLength(*length); err != nil {
		return err
	}
	r, err := fuzz.Syncs(ctx, *length, *least, func(line string) { fmt.Fprintln(stderr, line) })
	if err != nil {
		return err
	}
	if *asJSON {
		if err := json.NewEncoder(stdout).Encode(r); err != nil {
			return err
		}
	}
	switch {
	case len(r.Survived) > 0:
		return fmt.Errorf("no crash shows that these are wrong: %s", strings.Join(r.Survived, ", "))
	case ctx.Err() != nil:
		return errInterrupted
	}
	return nil
}
