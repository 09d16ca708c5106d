package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ebbkv/ebb/kv"
)

// The shell runs the commands of the command line on a store that it holds open: each line is one
// call, without `ebb` and without the store. Commands find the store in app.held.

// inShell has the commands that a shell offers: those that need no more than a transaction of the
// store.
var inShell = map[string]bool{
	"get": true, "put": true, "del": true, "scan": true, "count": true, "incr": true, "cas": true,
	"ttl": true, "expire": true, "persist": true, "purge": true, "family": true,
	"append": true, "scan-time": true,
}

// held is a store that stays open over several commands, and the transaction that they share, if
// one was begun.
type held struct {
	db *kv.DB
	tx *kv.Tx
}

func (h *held) view(fn func(*kv.Tx) error) error {
	if h.tx == nil {
		return h.db.View(fn)
	}
	return fn(h.tx)
}

// update runs fn in a transaction of its own, or in the one that was begun: then an error undoes
// what fn did, and nothing else.
func (h *held) update(ctx context.Context, fn func(*kv.Tx) error) error {
	if h.tx == nil {
		return h.db.UpdateContext(ctx, fn)
	}
	start := h.tx.Savepoint()
	err := fn(h.tx)
	if err == nil {
		err = h.tx.Err()
	}
	if err != nil && h.tx.Writable() {
		err = errors.Join(err, h.tx.RollbackTo(start))
	}
	return err
}

// errInTransaction is what a command gets that commits by itself.
var errInTransaction = errors.New("a transaction is open: commit it or roll it back first")

// shell is one run of the command.
type shell struct {
	app    *app
	held   *held
	name   string // of the store, in the prompt
	family string
	stdout io.Writer
	page   func(io.Writer) io.Writer // pages the output of a command; nil: not
	over   bool                      // exit was called

	colours bool // the terminal shows them
	// interruptible gives the context of a line
	interruptible func(context.Context) (context.Context, context.CancelFunc)
}

func shellCommand(a *app) *cobra.Command {
	readOnly, noHistory := false, false
	cmd := &cobra.Command{
		Use:   "shell STORE",
		Short: "Run commands on a store that stays open, one a line",
		Long: `Shell opens a store and reads commands, one a line: those of the command line, without ebb and
without the store, and begin, commit, rollback, use and exit. It creates the store if it is absent.

Words are separated by blanks; 'single quotes' hold them as they are, "double quotes" as a Go string,
as listings print unprintable keys. A line that begins with # is skipped. ` + "`help`" + ` lists the commands,
` + "`help scan`" + ` describes one.

Without begin each command is one durable transaction. Between begin and commit commands share one:
it sees the store as of begin, at the time of begin, and no other transaction writes meanwhile. A
command that fails there undoes its own changes only. The prompt has a * then.

On a terminal it completes commands, flags, families and keys with Tab, recalls lines with the arrow
keys, and stops after each page. Ctrl-C ends a command, or clears the line; Ctrl-D ends the shell, and
an open transaction is rolled back.

Lines are kept for the next session, the last 1,000 of them, values included, in a file that only its
owner reads: $XDG_STATE_HOME/ebb/history, or ~/.local/state/ebb/history, or $EBB_HISTORY. A line that
begins with a blank is not kept; with --no-history, or if EBB_HISTORY is empty, none is.

If its input is no terminal it prints no prompt, ends at the first command that fails, and has the
exit code of that command. A transaction that is still open at the end is an error.`,
		Example: `  ebb shell my.ebb
  ebb shell my.ebb --read-only
  echo count | ebb shell my.ebb --family sessions`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := historyPath()
			if noHistory {
				path = ""
			}
			return a.shell(cmd.Context(), args[0], readOnly, path)
		},
	}
	cmd.Flags().BoolVar(&readOnly, "read-only", false,
		"open the store to read: other readers may have it open, too")
	cmd.Flags().BoolVar(&noHistory, "no-history", false, "neither read nor keep a history")
	a.addCreation(cmd)
	return cmd
}

// shell runs the shell, with the history of that file.
func (a *app) shell(ctx context.Context, store string, readOnly bool, historyFile string) (err error) {
	var db *kv.DB
	if readOnly {
		db, err = a.openToRead(ctx, store)
	} else {
		db, err = a.openToWrite(ctx, store, false)
	}
	if err != nil {
		return fmt.Errorf("shell: %w", err)
	}
	s := &shell{
		app: a, held: &held{db: db}, name: filepath.Base(store), family: a.family, stdout: a.out,
		interruptible: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		},
	}
	defer func() {
		if s.held.tx != nil {
			_ = s.held.tx.Rollback() // It only ends it.
		}
		if readOnly {
			err = errors.Join(err, db.Close())
		} else {
			err = errors.Join(err, a.closeWritten(db, err != nil))
		}
	}()
	in, isFile := a.stdin.(*os.File)
	if isFile && term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(os.Stdout.Fd())) {
		h, err := openHistory(historyFile)
		if err != nil {
			fmt.Fprintf(a.stderr, "ebb: %s\n", printable(err.Error(), ""))
		}
		defer h.close()
		return s.onTerminal(ctx, in, h)
	}
	return s.script(ctx, a.stdin)
}

// errLine ends the command with the exit code of the line that failed, which has reported itself.
type errLine struct{ code int }

func (e errLine) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// script runs the lines of r up to the first that fails.
func (s *shell) script(ctx context.Context, r io.Reader) error {
	lines := bufio.NewReader(r)
	for !s.over {
		line, err := lines.ReadString('\n')
		if err != nil && err != io.EOF {
			return fmt.Errorf("shell: read commands: %w", err)
		}
		if code := s.line(ctx, strings.TrimRight(line, "\r\n")); code != exitOK {
			return errLine{code}
		}
		if err := s.app.out.Flush(); err != nil { // The writer of the lines may wait for it.
			return err
		}
		if err == io.EOF {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if s.held.tx != nil {
		return errors.New("shell: the transaction was not committed: it is rolled back")
	}
	return nil
}

// interactive runs lines that read gives, until it returns io.EOF. Each has a context of its own,
// which an interrupt ends: that of the process has ended with the first one.
func (s *shell) interactive(ctx context.Context, read func(prompt string) (string, error)) error {
	for !s.over {
		line, err := read(s.prompt())
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("shell: %w", err)
		}
		call, stop := s.interruptible(context.WithoutCancel(ctx))
		s.line(call, line)
		stop()
	}
	if s.held.tx != nil {
		fmt.Fprintln(s.app.stderr, "the transaction was not committed: it is rolled back")
	}
	return nil
}

// prompt names the store, the family unless it is the default, and shows an open transaction.
func (s *shell) prompt() string {
	text := s.name
	if s.family != defaultFamily {
		text += " " + s.family
	}
	text = printable(text, "")
	if s.held.tx != nil {
		text += painted(s.colours, yellow, "*")
	}
	return painted(s.colours, cyan, text) + "> "
}

// line runs one line and returns its exit code.
func (s *shell) line(ctx context.Context, line string) int {
	words, err := splitWords(line)
	if err == nil && len(words) == 0 {
		return exitOK
	}
	out := s.stdout
	if s.page != nil {
		out = s.page(out)
	}
	a := &app{
		stdin: noInput{}, out: newOutput(out), stderr: s.app.stderr, clock: s.app.clock, held: s.held,
	}
	a.out.colours = s.colours // also behind the pager
	if err != nil {
		return a.report(err)
	}
	root := s.commands(a)
	if cmd, _, err := root.Find(words[:1]); err != nil || cmd == root {
		more := near(root, words[0]) + " (help lists all)"
		return a.report(fmt.Errorf("there is no command %q%s", words[0], more))
	}
	return a.execute(ctx, root, s.call(words))
}

// call puts the store in its place in a call.
func (s *shell) call(words []string) []string {
	if !inShell[words[0]] {
		return words
	}
	return append([]string{words[0], s.name}, words[1:]...)
}

// noInput is the input of a command within a shell, whose own input the shell reads.
type noInput struct{}

func (noInput) Read([]byte) (int, error) {
	return 0, errors.New("a command within the shell has no input: give the value, or @FILE")
}

// commands are those that the shell has.
func (s *shell) commands(a *app) *cobra.Command {
	root := rootCommand(a)
	root.InitDefaultHelpCmd()
	a.family = s.family
	root.Use = ""
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, words []string) {
		if cmd != root {
			help(cmd, words)
			return
		}
		var rows []string
		for _, cmd := range root.Commands() {
			rows = append(rows, cmd.Name()+"\t"+cmd.Short)
		}
		_ = table(a.out, append(rows, "", "`help NAME` describes a command.")...) // Its flush reports errors.
	})
	for _, flag := range []string{"wait", "progress"} {
		root.PersistentFlags().Lookup(flag).Hidden = true
	}
	for _, cmd := range root.Commands() {
		if !inShell[cmd.Name()] && cmd.Name() != "help" {
			root.RemoveCommand(cmd)
			continue
		}
		cmd.Use = strings.Replace(cmd.Use, " STORE", "", 1)
		cmd.Example = exampleInShell(cmd)
		for _, flag := range []string{"page-size", "file-mode"} {
			if f := cmd.Flags().Lookup(flag); f != nil {
				f.Hidden = true
			}
		}
		if f := cmd.Flags().Lookup("expiry"); f != nil {
			f.DefValue = "true"
			_ = f.Value.Set("true") // a flag without a value
		}
	}
	root.CompletionOptions.DisableDefaultCmd = true
	s.addOwn(root)
	return root
}

// exampleInShell is the example of a command without those that need pipes or files.
func exampleInShell(cmd *cobra.Command) string {
	calls := strings.Split(cmd.Example, "\n")
	calls = slices.DeleteFunc(calls, func(call string) bool {
		return strings.Contains(call, " | ") || strings.Contains(call, " > ")
	})
	return strings.ReplaceAll(strings.Join(calls, "\n"), "ebb "+cmd.Name()+" my.ebb", cmd.Name())
}

// addOwn adds the commands that only a shell has.
func (s *shell) addOwn(root *cobra.Command) {
	own := func(use, short string, most int,
		run func(ctx context.Context, words []string) error) *cobra.Command {
		cmd := &cobra.Command{
			Use: use, Short: short, Args: args(0, most), DisableFlagsInUseLine: true,
			RunE: func(cmd *cobra.Command, words []string) error { return run(cmd.Context(), words) },
		}
		root.AddCommand(cmd)
		return cmd
	}
	own("begin", "Begin a transaction", 0, func(ctx context.Context, _ []string) (err error) {
		if s.held.tx != nil {
			return errors.New("begin: " + errInTransaction.Error())
		}
		s.held.tx, err = s.held.db.Begin(ctx, s.app.writes)
		return err
	})
	end := func(how func(*kv.Tx) error) func(context.Context, []string) error {
		return func(context.Context, []string) error {
			if s.held.tx == nil {
				return errors.New("no transaction is open: begin one")
			}
			tx := s.held.tx
			s.held.tx = nil
			return how(tx)
		}
	}
	own("commit", "Commit the transaction", 0, end((*kv.Tx).Commit))
	own("rollback", "Undo the transaction", 0, end((*kv.Tx).Rollback))
	own("exit", "End the shell", 0, func(context.Context, []string) error {
		s.over = true
		return nil
	})
	choose := func(_ context.Context, words []string) error {
		s.family = defaultFamily
		if len(words) > 0 {
			s.family = words[0]
		}
		return nil
	}
	use := own("use [FAMILY]", "Make a family the default of --family", 1, choose)
	use.ValidArgsFunction = func(_ *cobra.Command, _ []string, begin string) (
		list []string, _ cobra.ShellCompDirective,
	) {
		_ = s.held.view(func(tx *kv.Tx) error { // Without a list there is nothing to offer.
			list = s.app.offerFamilies(tx, begin)
			return nil
		})
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}
