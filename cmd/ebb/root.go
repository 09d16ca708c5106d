package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// rootCommand is the command with all its subcommands, and the flags that they share.
func rootCommand(a *app) *cobra.Command {
	showVersion := false
	root := &cobra.Command{
		Use:   "ebb",
		Short: "Work on an Ebb store",
		Long: `Ebb works on a store of the embedded key-value store Ebb: one file, and a log beside it
while it is in use.

Exit codes: 0 all right, 1 an error or a damaged store, 2 the key or family is not there, 3 a key
that must not be there is (put --if-absent), or such a family (family --create), or a key has another
value (cas). An expired key is not there, whether it is deleted already or not.

Times to come are given as RFC 3339 (2030-01-31T12:00:00Z) or in milliseconds since 1970, durations
as 90s, 15m, 36h, 7d, 2w or 1d12h; a day has 24 hours.

On a terminal keys, expiries and problems have colours, unless NO_COLOR is set.

Commands that only read take a shared lock: any number may run at once, but not beside a process
that writes.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usageError{cmd, fmt.Errorf("there is no command %q%s", args[0], near(cmd, args[0]))}
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.checkFlags(cmd) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				return printVersion(a)
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&showVersion, "version", false, "print the version of the command")
	f := root.PersistentFlags()
	f.StringVar(&a.family, "family", defaultFamily, "`name` of the column family")
	f.BoolVar(&a.json, "json", false, "print JSON; rows as one object a line")
	f.BoolVar(&a.hex, "hex", false, "keys are hex, in arguments and output; listed values too")
	f.BoolVar(&a.base64, "base64", false, "keys are base64, in arguments and output; listed values too")
	f.StringVar(
		&a.progress,
		"progress",
		progressAuto,
		"`how` far long work is: auto (a bar on a terminal), bar, lines or none, behind =",
	)
	f.Lookup("progress").NoOptDefVal = progressBar
	durationVar(f, &a.wait, "wait", 0, "wait this long for a store that another process has open")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{cmd, err} })

	root.AddCommand(
		getCommand(a), putCommand(a), delCommand(a), scanCommand(a),
		incrCommand(a), casCommand(a), countCommand(a), watchCommand(a),
		appendCommand(a), scanTimeCommand(a),
		ttlCommand(a), expireCommand(a), persistCommand(a), purgeCommand(a),
		importCommand(a), exportCommand(a), loadCommand(a), familyCommand(a),
		backupCommand(a), restoreCommand(a), salvageCommand(a), compactCommand(a),
		shellCommand(a), uiCommand(a),
		statsCommand(a), checkCommand(a), dumpCommand(a),
		pagesCommand(a), walCommand(a),
		benchCommand(a), demoCommand(a), versionCommand(a),
	)
	addExamples(root)
	group(root)
	a.addCompletion(root)
	return root
}

// near asks whether one of the commands of root was meant.
func near(root *cobra.Command, word string) string {
	root.SuggestionsMinimumDistance = 2
	if names := root.SuggestionsFor(word); len(names) > 0 {
		return ": is it " + strings.Join(names, " or ") + "?"
	}
	return ""
}

// checkFlags refuses what makes no sense in the flags that all commands have.
func (a *app) checkFlags(cmd *cobra.Command) error {
	switch {
	case a.hex && a.base64:
		return usageError{cmd, errors.New("--hex and --base64 exclude each other")}
	case a.wait < 0:
		return usageError{cmd, errors.New("--wait is negative")}
	case cmd.Flags().Changed("family") && wholeStore[cmd.Name()]:
		return usageError{cmd, fmt.Errorf("--family: %s does not work on one family", cmd.Name())}
	case !slices.Contains([]string{progressAuto, progressBar, progressLines, progressNone}, a.progress):
		return usageError{cmd, fmt.Errorf("--progress is %q, want auto, bar, lines or none", a.progress)}
	}
	return checkPageSize(cmd, a.pageSize)
}

// strictCobra makes errors of what cobra's own commands take for a call for help: a shell or a
// topic that is not there. A shell that evaluates `ebb completion zhs` would otherwise be given
// prose. The output of root is set before: cobra keeps it.
func strictCobra(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, topic []string) error {
				if _, rest, err := root.Find(topic); err != nil || len(rest) > 0 {
					return usageError{root, fmt.Errorf("no help on %q", strings.Join(topic, " "))}
				}
				return nil
			}
		case "completion":
			cmd.Use, cmd.DisableFlagsInUseLine = "completion bash|zsh|fish|powershell", true
			cmd.Short = "Print the script with which a shell completes commands, flags, families and keys"
			cmd.Example = completionExample
			// cobra looks at words only if something runs
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, c := range append(cmd.Commands(), cmd) {
				c.Args = func(cmd *cobra.Command, words []string) error {
					if len(words) > 0 {
						return usageError{cmd, fmt.Errorf("what is %q?", words[0])}
					}
					return nil
				}
			}
		}
	}
}

// wholeStore has the commands that have no use for --family: ignored, it would let an answer about
// everything pass for one about that family. Purge and dump work on all families unless it is
// given.
var wholeStore = map[string]bool{
	"family": true, "stats": true, "check": true, "pages": true, "wal": true, "bench-quick": true,
	"version": true, "backup": true, "verify": true, "restore": true, "salvage": true, "ui": true,
}

// args checks the number of arguments, with an error that shows how the command is called. most < 0
// is no limit.
func args(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) >= least && (most < 0 || len(given) <= most) {
			return nil
		}
		few := "many"
		if len(given) < least {
			few = "few"
		}
		n := len(given)
		if cmd.Root().Use == "" && inShell[cmd.Name()] {
			n-- // The shell has added the store.
		}
		return usageError{cmd, fmt.Errorf("too %s arguments: %d", few, n)}
	}
}

// exclusive refuses a call with more than one of these flags.
func exclusive(cmd *cobra.Command, flags ...string) error {
	first := ""
	for _, flag := range flags {
		switch {
		case !cmd.Flags().Changed(flag):
		case first == "":
			first = flag
		default:
			return usageError{cmd, fmt.Errorf("--%s and --%s exclude each other", first, flag)}
		}
	}
	return nil
}
