package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/txn"
)

// app is what the commands of one invocation share. Flags are set before a command's body runs,
// then read-only.
type app struct {
	stdin  io.Reader
	out    *output
	stderr io.Writer

	family   string
	json     bool
	hex      bool
	base64   bool
	progress string
	wait     time.Duration
	pageSize int      // of a store that is created; 0: the default
	fileMode fileMode // of files that are created; 0: the default

	held   *held    // within a shell: its store; else nil
	writes bool     // a store was opened that the command is to change
	fresh  *freshFS // its files

	clock func() time.Time // nil: the system's; set by tests before a command runs
}

// output is buffered standard output. It is flushed when the command ends, so that a scan is not
// one write per row.
type output struct {
	*bufio.Writer
	terminal bool
	colours  bool // the terminal shows them
}

func newOutput(w io.Writer) *output {
	return &output{bufio.NewWriterSize(w, 64<<10), isTerminal(w), showsColour(w)}
}

// paint is text in a colour, on a terminal.
func (o *output) paint(colour int, text string) string { return painted(o.colours, colour, text) }

// addCreation gives a command that may create a store the flags for how it is made.
func (a *app) addCreation(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(&a.fileMode, "file-mode",
		"permissions of files that are created, in octal as 0640, less the umask; 0: 0600")
	f.IntVar(&a.pageSize, "page-size", 0,
		"page size of a store that is created, a power of two from 4096 to 65536; 0: 4096")
}

// checkPageSize refuses a page size that no store has. 0 was not given.
func checkPageSize(cmd *cobra.Command, size int) error {
	if size != 0 && (size < pager.MinPageSize || size > pager.MaxPageSize || size&(size-1) != 0) {
		return usageError{
			cmd,
			fmt.Errorf("--page-size %d is no power of two from %d to %d", size, pager.MinPageSize,
				pager.MaxPageSize),
		}
	}
	return nil
}

// fileMode is a flag whose value is the permission bits of a file, in octal.
type fileMode fs.FileMode

// Set takes what chmod takes as a number.
func (m *fileMode) Set(s string) error {
	bits, err := strconv.ParseUint(s, 8, 32)
	switch {
	case err != nil:
		return errors.New("not a number in octal, as 0640")
	case bits > uint64(fs.ModePerm):
		return errors.New("has more than permission bits, which end at 0777")
	case bits != 0 && bits&0o600 != 0o600:
		return errors.New("lacks 0600: its owner reads and writes a store")
	}
	*m = fileMode(bits)
	return nil
}

// String is empty for the default, so that the help of a flag names none.
func (m *fileMode) String() string {
	if *m == 0 {
		return ""
	}
	return fmt.Sprintf("%#o", uint32(*m))
}

// Type is how the help names the value.
func (m *fileMode) Type() string { return "mode" }

const defaultFamily = "default"

// openToRead opens an existing store with a shared lock; not a byte of it changes.
func (a *app) openToRead(ctx context.Context, path string) (*kv.DB, error) {
	return a.open(ctx, vfs.OS, path, kv.Options{ReadOnly: true, MustExist: true})
}

// openToWrite opens a store for this process alone. closeWritten closes it.
func (a *app) openToWrite(ctx context.Context, path string, mustExist bool) (*kv.DB, error) {
	if a.held != nil {
		if a.held.tx != nil {
			return nil, errInTransaction
		}
		return a.held.db, nil
	}
	a.writes = true
	a.fresh = newFreshFS(path)
	return a.open(
		ctx,
		a.fresh,
		path,
		kv.Options{MustExist: mustExist, PageSize: a.pageSize, FileMode: fs.FileMode(a.fileMode)},
	)
}

// lockTurn is how long one call waits for a lock: an interrupt is heard between two of them.
const lockTurn = 100 * time.Millisecond

// open opens a store, and waits for another holder of it as long as --wait says.
func (a *app) open(ctx context.Context, files vfs.FS, path string, o kv.Options) (*kv.DB, error) {
	o.Clock = a.clock
	path = vfs.Follow(path)
	for left := a.wait; ; left -= lockTurn {
		o.LockTimeout = min(left, lockTurn)
		db, err := openfs.Open(files, path, &o, txn.Options{})
		if !errors.Is(err, kv.ErrLocked) || left <= lockTurn {
			return db, notAStore(unopened(err, o.MustExist), path)
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
	}
}

// unopened marks an error of opening a store where the advice is another one than for a store that
// is open, or that is absent.
func unopened(err error, mustExist bool) error {
	switch {
	case errors.Is(err, kv.ErrCorrupt):
		return marked{err, errUnopened}
	case errors.Is(err, fs.ErrNotExist) && !mustExist:
		return marked{err, errNoDirectory}
	case errors.Is(err, kv.ErrInvalidOptions):
		return marked{err, errPageSize} // the one option that a store may contradict
	}
	return err
}

// view runs fn on one snapshot of a store opened read-only.
func (a *app) view(ctx context.Context, path string, fn func(*kv.Tx) error) error {
	if a.held != nil {
		return a.held.view(fn)
	}
	db, err := a.openToRead(ctx, path)
	if err != nil {
		return err
	}
	return errors.Join(db.View(fn), db.Close())
}

// update runs fn in one durable transaction.
func (a *app) update(cmd *cobra.Command, path string, mustExist bool, fn func(*kv.Tx) error) error {
	if a.held != nil {
		return a.held.update(cmd.Context(), fn)
	}
	db, err := a.openToWrite(cmd.Context(), path, mustExist)
	if err != nil {
		return err
	}
	err = db.UpdateContext(cmd.Context(), fn)
	return errors.Join(err, a.closeWritten(db, err != nil))
}
