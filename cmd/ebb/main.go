package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	// The first interrupt lets a command end its transaction and remove what it has half made; so
	// does what timeout, a container or systemd sends to end a process. stop gives the second one
	// its usual force.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole command but for the process around it; it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, out: newOutput(stdout), stderr: stderr}
	return a.run(ctx, args)
}

// run parses the flags, does what they ask for, and reports what came of it.
func (a *app) run(ctx context.Context, args []string) int {
	return a.execute(ctx, rootCommand(a), args)
}

// execute is run for the commands that root has.
func (a *app) execute(ctx context.Context, root *cobra.Command, args []string) int {
	// The flags may turn out to be wrong before --json is reached; the error shall be JSON all the
	// same.
	flags := args
	if end := slices.Index(args, "--"); end >= 0 {
		flags = args[:end]
	}
	a.json = slices.Contains(flags, "--json")
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.out)
	root.SetErr(a.stderr)
	strictCobra(root)
	err := root.ExecuteContext(interruptible{ctx})
	// Output that could not be written makes the command fail, unless something worse did.
	if flushErr := a.out.Flush(); err == nil {
		err = flushErr
	}
	return a.report(err)
}

// interruptible is a context whose end reads "interrupted" in every error.
type interruptible struct{ context.Context }

func (c interruptible) Err() error {
	if err := c.Context.Err(); err != context.Canceled {
		return err
	}
	return interrupted{}
}

type interrupted struct{}

func (interrupted) Error() string        { return "interrupted" }
func (interrupted) Is(target error) bool { return target == context.Canceled }
