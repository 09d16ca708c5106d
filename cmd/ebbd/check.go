package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/ebbkv/ebb/cmd/ebbd/server"
	"github.com/ebbkv/ebb/kv"
)

const checkUsage = `ebbd check verifies a store while no server has it open. It changes nothing.

It reads every page and compares the rows of each key with each other. The exit code is 1 if
something is wrong, 2 if the store cannot be opened.

Usage:
  ebbd check [options]

Options:
`

func runCheck(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	set := pflag.NewFlagSet("ebbd check", pflag.ContinueOnError)
	dir := set.String("dir", "data", "`directory` of the store")
	databases := set.Int("databases", 16, "number of databases")
	set.Usage = func() {}
	err := set.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, checkUsage+set.FlagUsages())
		return 0
	case err == nil && set.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(stderr, "ebbd: %v\nebbd check --help lists the options\n", err)
		return 2
	}
	report, err := server.Check(ctx, *dir, *databases)
	if err != nil {
		fmt.Fprintln(stderr, "ebbd:", err)
		if errors.Is(err, kv.ErrLocked) {
			fmt.Fprintln(stderr, "stop the server first, or make a backup and check that: "+
				"ebbd backup DIR/ebbd.ebb, ebbd check --dir DIR")
		}
		return 2
	}
	for _, db := range report.Databases {
		fmt.Fprintf(stdout, "database %d: %d keys, %d rows of collections\n", db.Number, db.Keys, db.Rows)
	}
	for _, problem := range report.Problems {
		fmt.Fprintln(stdout, problem)
	}
	if report.Orphans > 0 {
		fmt.Fprintf(stdout, "%d collections have no key: the next start of the server deletes them\n",
			report.Orphans)
	}
	if len(report.Problems) > 0 {
		return 1
	}
	fmt.Fprintln(stdout, "the store is sound")
	return 0
}
