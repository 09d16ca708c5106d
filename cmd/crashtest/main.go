package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
)

const usage = `usage: crashtest MODE [flags]

  enumerate   crash workloads on a simulated disk at every moment and in every way; recoveries too
  replay      judge one case again: crashtest replay 'LINE', as the other modes print it
  fsyncgate   fail every sync once, so that what it should have kept is lost but still readable;
              open the store again in the same boot; then crash at every moment. Nothing that was
              shown may be lost
  faults      fail every call of the disk in every way, once and for good, in recoveries too
  syncs       take every sync away: some crash must show that it is gone
  bitflip     flip every bit of small stores, cut and lengthen their files, put every page in every
              wrong place, mix files of two stores: the answer is right, or an error names the
              place; prints the blind spot. Judges a LINE again
  interleave  two of checkpoint, commit, segment switch, purge, drop and reader at a time, stopped
              before each of their first six changes of the disk: every order. A deadlock is a
              failure. Plays a LINE again
  history     many clients on one store, over crashes too: the answers to each must be those of a
              store that runs one call after the other. Judges a history in a FILE again
  kill        write to a real store in real processes, kill them with SIGKILL, verify the files;
              with -memory let them run out of memory instead
  loopfs      write to a store on a real ext4, copy the disk below it at random instants, mount each
              copy, verify the files. Judges a LINE again. Needs Linux and root; says that it is
              skipped elsewhere
  powercut    write to a store on ext4, xfs and btrfs, on a disk of its own that forgets, reorders
              and tears writes that were not flushed, cut its power at random moments, mount each
              image, verify the files. Judges a LINE again. Needs Linux, root and FUSE; says what is
              skipped elsewhere

Each mode prints one JSON object to standard output with -json, and ends with status 1 if anything
failed, 2 if it was called wrongly. Interrupted, it reports what it has done so far, and that is
status 1 too. MODE -h lists its flags.

A line is a workload, what was wrong with the disk (or nothing), and crashes: each but the first is
one in the recovery from the one before.
`

type mode struct {
	name string
	run  func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

var modes = []mode{
	{"enumerate", enumerate},
	{"replay", replay},
	{"fsyncgate", fsyncgate},
	{"faults", faults},
	{"syncs", syncs},
	{"bitflip", bitflip},
	{"interleave", interleave},
	{"history", history},
	{"kill", kill},
	{"kill-child", killChild}, // started by kill, loopfs and powercut only
	{"loopfs", loopfs},
	{"powercut", powercut},
}

func main() {
	isolateMounts(os.Args[1:])
	// Images are garbage soon. The limit holds where the collector has no turn on a busy machine: all
	// that is allocated while it marks survives.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(2 << 30)
	// The first interrupt, or what timeout sends, lets a mode end with its report and unmount what
	// it has mounted; stop gives the second one its usual force.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// errInterrupted ends a mode that was interrupted. It has reported what it did, but that is less
// than it was asked for.
var errInterrupted = errors.New("interrupted")

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	if slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		fmt.Fprint(stdout, usage)
		return 0
	}
	for _, m := range modes {
		if m.name == args[0] {
			err := m.run(ctx, args[1:], stdout, stderr)
			if err == nil || errors.Is(err, flag.ErrHelp) {
				return 0
			}
			fmt.Fprintf(stderr, "crashtest %s: %v\n", m.name, err)
			if errors.As(err, new(usageError)) {
				fmt.Fprintf(stderr, "See crashtest %s -h.\n", m.name)
				return 2
			}
			return 1
		}
	}
	fmt.Fprintf(stderr, "crashtest: unknown mode %q\n\n%s", args[0], usage)
	return 2
}
