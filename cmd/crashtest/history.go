package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/ebbkv/ebb/fuzz"
)

// history records what many clients do to one store at a time, and judges it by commit numbers.
func history(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	f := flags("history [flags]", "history FILE")
	var o fuzz.HistoriesOptions
	f.Uint64Var(&o.Seed, "seed", 1, "of what the clients do")
	f.IntVar(&o.Count, "n", 300, "histories")
	f.IntVar(&o.Clients, "clients", 6, "of each history")
	f.IntVar(&o.Ops, "ops", 1000, "of each history")
	f.IntVar(&o.Workers, "workers", runtime.GOMAXPROCS(0), "histories at a time")
	f.StringVar(&o.Keep, "keep", "", "directory for histories that fail")
	asJSON := f.Bool("json", false, "print the report as JSON")
	if err := parseFlags(f, args, stdout, 1, "n", "clients", "ops", "workers"); err != nil {
		return err
	}
	if f.NArg() == 1 {
		return judgeFile(f.Arg(0), stdout)
	}
	o.Tick = ticks(stderr, func(r fuzz.HistoriesReport) string {
		return fmt.Sprintf("%d histories, %d failed", r.Histories, len(r.Failures))
	})
	r := fuzz.Histories(ctx, o)
	fmt.Fprintf(
		stderr,
		"%.1fs %d histories of %d transactions, %d beside others; %d commits, %d crashes, %d failed\n",
		r.Seconds,
		r.Histories,
		r.Events,
		r.Beside,
		r.Commits,
		r.Crashes,
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
	case r.Histories < o.Count:
		return fmt.Errorf("%d histories, want %d", r.Histories, o.Count)
	}
	return nil
}

// judgeFile judges a history that was kept.
func judgeFile(name string, stdout io.Writer) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var h fuzz.History
	if err := json.Unmarshal(b, &h); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := h.Judge(); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d transactions, as of a serial store\n", len(h.Events))
	return nil
}
