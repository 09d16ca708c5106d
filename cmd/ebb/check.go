package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

func checkCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "check STORE",
		Short: "Prove that the whole store is sound, or name each place that is not",
		Long: `Check reads the whole store: checksums, structure, page accounting, and that the expiry
indexes of each family agree with its keys. Expired keys are no problem. It changes nothing. It
prints each problem with file, page and offset; the exit code is 1 if there is one, also if the
store is too damaged to be opened.`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var problems []kv.Problem
			var cut error
			files := &readCount{FS: vfs.OS, path: vfs.Follow(args[0])}
			db, err := a.open(cmd.Context(), files, args[0], kv.Options{ReadOnly: true, MustExist: true})
			switch {
			case err != nil:
				if problems = problemsOf(err, nil); len(problems) == 0 {
					return err
				}
			default:
				stats := db.Stats()
				used := stats.FileBytes - stats.FreeBytes
				files.count(a.newProgress("check", used, true), stats.FileBytes, used)
				problems, cut = findProblems(cmd.Context(), db)
				files.end(cut == nil)
				if err := db.Close(); err != nil {
					return err
				}
			}
			if cut == nil {
				return printProblems(a, args[0], problems)
			}
			if len(problems) > 0 { // Without one nothing is known of the store, not that it is sound.
				if err := printProblems(a, args[0], problems); !errors.Is(err, errSaid) {
					return err
				}
			}
			return fmt.Errorf("check: %w", cut)
		},
	}
}

// findProblems gives what is wrong with the store, and the error of ctx if that ended the search.
// That it did is the last thing that Check says, and no problem of the store.
func findProblems(ctx context.Context, db *kv.DB) (problems []kv.Problem, cut error) {
	for p := range db.Check(ctx) {
		problems = append(problems, p)
	}
	if last := len(problems) - 1; ctx.Err() != nil && last >= 0 && problems[last].Kind == "incomplete" {
		return problems[:last], ctx.Err()
	}
	return problems, nil
}

// problemsOf adds the damage that Open found to problems: it may be in several places.
func problemsOf(err error, problems []kv.Problem) []kv.Problem {
	switch e := err.(type) {
	case *kv.CorruptError:
		p := kv.Problem{Kind: "open", File: e.File, Page: e.Pgid, Offset: e.Off, Detail: e.Detail}
		problems = append(problems, p)
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			problems = problemsOf(part, problems)
		}
	case interface{ Unwrap() error }:
		problems = problemsOf(e.Unwrap(), problems)
	}
	return problems
}

func printProblems(a *app, store string, problems []kv.Problem) error {
	if a.json {
		err := a.printJSON(map[string]any{
			"store":    store,
			"ok":       len(problems) == 0,
			"problems": append([]kv.Problem{}, problems...),
		})
		if err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			fmt.Fprintln(a.out, p)
		}
		if len(problems) == 0 {
			fmt.Fprintf(a.out, "%s: %s\n", store, a.out.paint(green, "no problems"))
		} else {
			fmt.Fprintf(a.out, "%s: %s\n", store, a.out.paint(red, plural(len(problems), "problem")))
			fmt.Fprintf(a.stderr, "%s %s\n", painted(showsColour(a.stderr), cyan, "hint:"), damageHint)
		}
	}
	if len(problems) > 0 {
		return errSaid
	}
	return nil
}
