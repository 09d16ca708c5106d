package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// usageError is a call that makes no sense. It ends the command with status 2, as an unknown mode
// does.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// flags makes the flag set of a mode. calls are the ways to call it, as its help shows them.
func flags(calls ...string) *flag.FlagSet {
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.Usage = func() {
		for _, call := range calls {
			fmt.Fprintf(f.Output(), "usage: crashtest %s\n", call)
		}
		f.PrintDefaults()
	}
	return f
}

// aLine is how many words may follow where a LINE is judged again: it may come without quotes.
const aLine = math.MaxInt

// parseFlags reads the flags of a mode, or prints its help. It refuses what the mode would ignore
// or take for something else: more than so many words behind the flags, flags beside words, numbers
// below 0, and below 1 those that are named.
func parseFlags(f *flag.FlagSet, args []string, stdout io.Writer, words int, positive ...string) error {
	f.SetOutput(io.Discard) // An error is printed once, by run, and without all flags.
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		f.SetOutput(stdout)
		f.Usage()
		return err
	case err != nil:
		return usageError{err}
	case f.NArg() > words:
		return usagef("what is %q?", f.Arg(words))
	case f.NArg() > 0 && f.NFlag() > 0:
		return usagef("%q is judged without flags", f.Arg(0))
	}
	f.VisitAll(func(g *flag.Flag) {
		least := int64(0)
		if slices.Contains(positive, g.Name) {
			least = 1
		}
		if err == nil && number(g) < least {
			err = usagef("-%s is %s, want at least %d", g.Name, g.Value, least)
		}
	})
	return err
}

// longest is what -len may be at most. Sequences are listed before the first one is tried, no
// budget bounds that, and with each operation more there are 25 times as many: 2.4 million of four.
const longest = 4

// checkLength refuses a length whose sequences do not fit into memory.
func checkLength(length int) error {
	if length > longest {
		return usagef("-len is %d, want at most %d", length, longest)
	}
	return nil
}

// number is the value of a flag, or a large one where it cannot be too small.
func number(g *flag.Flag) int64 {
	switch n := g.Value.(flag.Getter).Get().(type) {
	case int:
		return int64(n)
	case int64:
		return n
	case time.Duration:
		return int64(n)
	}
	return math.MaxInt64
}

// choose splits the list in a flag, whose names must be among those that there are. An empty list
// gives nil, which stands for all.
func choose(name, list string, all []string) (chosen []string, err error) {
	if list == "" {
		return nil, nil
	}
	for word := range strings.SplitSeq(list, ",") {
		word = strings.TrimSpace(word)
		if !slices.Contains(all, word) {
			return nil, usagef("-%s: %q is not known, these are: %s", name, word, strings.Join(all, ", "))
		}
		if !slices.Contains(chosen, word) {
			chosen = append(chosen, word)
		}
	}
	return chosen, nil
}
