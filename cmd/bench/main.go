package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/ebbkv/ebb/cmd/bench/engine"
	"github.com/ebbkv/ebb/cmd/bench/report"
	"github.com/ebbkv/ebb/cmd/bench/workload"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == childCommand {
		os.Exit(child(os.Args[2], os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(status(run(ctx, os.Args[1:], os.Stdout, os.Stderr), os.Stderr))
}

// usageError is a call that makes no sense: status 2, as in the other tools.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// status is the exit code of a run. A request for help that is granted is no error.
func status(err error, stderr io.Writer) int {
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintln(stderr, "bench:", err)
	if errors.As(err, new(usageError)) {
		fmt.Fprintln(stderr, "See bench -h.")
		return 2
	}
	return 1
}

// options are the flags.
type options struct {
	bench
	engines, workloads string
	rows               string
	json, html         string
	list               bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := options{bench: bench{log: stderr}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // An error is printed once, by status, and help goes to stdout.
	flags.StringVar(&o.engines, "engines", "", "engines, with commas between; empty: all")
	flags.StringVar(
		&o.workloads,
		"workloads",
		"",
		"workloads, with commas between, NAME* for all that begin so; "+
			"empty: all but the big ones; all: those too",
	)
	flags.StringVar(
		&o.rows,
		"n",
		"1000000",
		"rows of the main set; with commas between: each of these, and a table with a column for each",
	)
	flags.IntVar(&o.rounds, "rounds", 3, "measurements of each figure; the median counts")
	flags.StringVar(
		&o.dir,
		"dir",
		"",
		"directory for the stores, on the disk that is to be measured; empty: the one for temporary files",
	)
	flags.StringVar(&o.json, "json", "", "write all results to this file")
	flags.StringVar(&o.html, "html", "", "write a page with plots to this file")
	flags.StringVar(
		&o.profile,
		"cpuprofile",
		"",
		"write a CPU profile of the timed part to this file, "+
			"with engine, workload and round added to its name",
	)
	flags.BoolVar(&o.list, "list", false, "list engines and workloads")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(stdout)
		flags.Usage()
		return err
	case err != nil:
		return usageError{err}
	case flags.NArg() > 0:
		return usageError{fmt.Errorf("what is %q? Everything is a flag", flags.Arg(0))}
	}
	if o.list {
		list(stdout)
		return nil
	}
	sizes, err := parseSizes(o.rows)
	if err != nil || o.rounds < 1 {
		return usageError{errors.New("-n must be at least 1000 and -rounds at least 1")}
	}
	return o.measure(ctx, sizes, stdout)
}

const leastRows = 1000

// parseSizes reads numbers of rows with commas between.
func parseSizes(list string) (sizes []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < leastRows {
			return nil, fmt.Errorf("%q is no number of rows", text)
		}
		if !slices.Contains(sizes, n) {
			sizes = append(sizes, n)
		}
	}
	return sizes, nil
}

func (o *options) measure(ctx context.Context, sizes []int, stdout io.Writer) (err error) {
	if o.chosen, err = workload.Select(o.workloads); err != nil {
		return usageError{fmt.Errorf("%w; see -list", err)}
	}
	if o.bench.engines, err = engine.Select(o.engines); err != nil {
		return usageError{err}
	}
	profile := o.profile
	if profile != "" {
		// The names of all profiles begin so, and lie in the same directory.
		profile += "." + o.bench.engines[0].Name
	}
	for _, name := range []string{o.json, o.html, profile} {
		if err := writable(name); err != nil {
			return err
		}
	}
	rep := report.New(o.rounds)
	for _, o.n = range sizes {
		var results []workload.Result
		results, err = o.all(ctx)
		if len(results) > 0 {
			rep.Sizes = append(rep.Sizes, report.NewSize(o.n, o.chosen, results))
		}
		if err != nil {
			break
		}
	}
	if len(rep.Sizes) == 0 {
		return err
	}
	return errors.Join(err, o.write(rep, stdout)) // An interrupt does not take away what has been measured.
}

// write writes what was asked for; a failure among the results is its error.
func (o *options) write(rep *report.Report, stdout io.Writer) error {
	if err := rep.Table(stdout); err != nil {
		return err
	}
	for _, out := range []struct {
		file  string
		write func(io.Writer) error
	}{{o.json, rep.JSON}, {o.html, rep.HTML}} {
		if err := writeFile(out.file, out.write); err != nil {
			return err
		}
	}
	for _, size := range rep.Sizes {
		for _, r := range size.Results {
			if r.Failure != "" {
				return fmt.Errorf("%s on %s, %d rows: %s", r.Workload, r.Engine, size.N, r.Failure)
			}
		}
	}
	return nil
}

func writeFile(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func list(w io.Writer) {
	fmt.Fprintf(w, "engines:\n  %s\n\nworkloads:\n", strings.Join(engine.Names(), " "))
	for _, l := range workload.All() {
		fmt.Fprintf(w, "  %-18s %s\n", l.Name, l.About)
	}
}
