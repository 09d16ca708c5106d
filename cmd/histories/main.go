package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ebbkv/ebb/fuzz"
)

// report is what a run has done.
type report struct {
	Seed         uint64   `json:"seed"`
	Histories    int      `json:"histories"`
	Transactions int      `json:"transactions"`
	Crashes      int      `json:"crashes"`
	GaveUp       int      `json:"gave_up"` // the checker needed too long: neither right nor wrong
	Failures     []string `json:"failures"`
	Seconds      float64  `json:"seconds"`
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("histories", flag.ContinueOnError)
	f.SetOutput(io.Discard) // An error is printed once, and help goes to stdout.
	n := f.Int("n", 100, "histories")
	seed := f.Uint64("seed", 1, "of what the clients do")
	clients := f.Int("clients", 4, "of each history")
	ops := f.Int("ops", 120, "of each history")
	limit := f.Duration(
		"limit",
		20*time.Second,
		"time for the checker to look for an order of one history; 0: as long as it takes",
	)
	asJSON := f.Bool("json", false, "print the report as JSON")
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		f.SetOutput(stdout)
		f.Usage()
		return 0
	case err != nil:
	case f.NArg() > 0:
		err = fmt.Errorf("what is %q? Everything is a flag", f.Arg(0))
	case *n < 1 || *clients < 1 || *ops < 1:
		err = errors.New("-n, -clients and -ops must be at least 1") // A run of nothing would pass.
	case *limit < 0:
		err = errors.New("-limit must not be negative")
	}
	if err != nil {
		fmt.Fprintf(stderr, "histories: %v\nSee histories -h.\n", err)
		return 2
	}
	r := report{Seed: *seed, Failures: []string{}}
	began := time.Now()
	for i := range *n {
		// A multiple of four: where there is a crash, it is the process that dies, and relaxed
		// commits stay.
		r.judge(
			(*seed<<20+uint64(i))*4,
			fuzz.HistoryOptions{Clients: *clients, Ops: *ops, Keys: keys, Crash: i%2 == 1},
			*limit,
		)
	}
	r.Seconds = time.Since(began).Seconds()
	fmt.Fprintf(stderr, "%.1fs %d histories of %d transactions, %d crashes, %d too hard, %d failed\n",
		r.Seconds, r.Histories, r.Transactions, r.Crashes, r.GaveUp, len(r.Failures))
	for _, line := range r.Failures {
		fmt.Fprintln(stderr, "FAILED", line)
	}
	if *asJSON {
		if err := json.NewEncoder(stdout).Encode(r); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
	}
	// A checker that gives up on most has shown nothing.
	if len(r.Failures) > 0 || r.GaveUp*10 > r.Histories {
		return 1
	}
	return 0
}

// judge records the history of a seed, and notes what the checker says of it.
func (r *report) judge(seed uint64, o fuzz.HistoryOptions, limit time.Duration) {
	h, err := fuzz.Record(seed, o)
	if err != nil {
		r.Failures = append(r.Failures, fmt.Sprintf("seed %d: %v", seed, err))
		return
	}
	r.Histories++
	r.Transactions += len(h.Events)
	if h.Crash > 0 {
		r.Crashes++
	}
	switch check(h, limit) {
	case porcupine.Illegal:
		r.Failures = append(
			r.Failures,
			fmt.Sprintf("seed %d: no order of its transactions explains what they saw", seed),
		)
	case porcupine.Unknown:
		r.GaveUp++
	}
}
