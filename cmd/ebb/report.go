package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ebbkv/ebb/kv"
)

// Exit codes. Scripts rely on them.
const (
	exitOK       = 0
	exitError    = 1
	exitNotFound = 2
	exitExists   = 3
)

// usageError is a call that makes no sense: the answer shows how the command is called.
type usageError struct {
	cmd *cobra.Command
	err error
}

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// errSaid ends a command with code 1 after it has printed what is wrong itself.
var errSaid = errors.New("problems were found")

// errExists is what a put that must not overwrite says of a key that is there.
var errExists = errors.New("the key is there already")

// What advice distinguishes that the library has one name for.
var (
	errNoMeta      = errors.New("both meta pages are damaged, and no page size was given")
	errUnopened    = errors.New("the store cannot be opened")
	errNoDirectory = errors.New("the directory is missing")
	errPageSize    = errors.New("the store has another page size")
	errBadBackup   = errors.New("the backup is damaged")
	errNoBackup    = errors.New("the backup is missing")
	errNoTree      = errors.New("is not a directory")
)

// marked is err, and for errors.Is one of ours too. It reads like err.
type marked struct{ err, as error }

func (m marked) Error() string   { return m.err.Error() }
func (m marked) Unwrap() []error { return []error{m.err, m.as} }

// advice is a kind of error and what to do about it.
type advice struct {
	kind string
	is   error
	hint string
}

// damageHint is the way on from damage.
const damageHint = "keep a copy of the files; go back to a backup with `ebb restore`, or make a new " +
	"store of all rows that can be read with `ebb salvage STORE OUT --log`"

// The first line that fits is used: kv.ErrNotFound is fs.ErrNotExist too, and a store that fails
// does so for a cause that may have a line of its own.
var advices = []advice{
	{"not_found", kv.ErrNotFound, ""},
	{"family_not_found", kv.ErrCFNotFound, "`ebb family STORE` lists the families"},
	{"exists", errRowExists.as, "--skip leaves rows that are there as they are, --replace overwrites them"},
	{"exists", errExists, ""},
	{"differs", errDiffers, ""},
	{"no_row", errNoRow, `a row is a line as {"key":"k","value":"v"}; with --csv the first record is as ` +
		"key,value; `ebb load --help` tells more, with an example for jq"},
	{"not_counter", kv.ErrNotCounter, "a counter is a value of 8 bytes, as `ebb incr` creates it"},
	{"partitioned", kv.ErrPartitioned, "`ebb append` and `ebb scan-time` write and read such a family"},
	{"not_partitioned", kv.ErrNotPartitioned,
		"`ebb family STORE NAME --create --retention 30d` creates one that is"},
	{"family_exists", kv.ErrCFExists, "without --create the flags change a family that is there; " +
		"`ebb family STORE` lists all"},
	{"locked", kv.ErrLocked, "end the process that has the store open, or wait for it with --wait 10s; " +
		"`ebb stats STORE --live` and `ebb ui STORE` need no lock; other commands can read a copy that " +
		"the process makes: `ebbd backup` of that server, Backup of package kv and `ebb restore`"},
	{"not_a_store", errIsBackup,
		"the file is a backup: `ebb restore STORE FILE` makes a store of it"},
	{"not_a_store", errIsBolt,
		"the file is a store of bbolt: `ebb import STORE --from bolt FILE` takes its rows along"},
	{"not_a_backup", errIsStore,
		"the file is a store: `ebb backup STORE FILE` makes a backup of it, and the file alone is a " +
			"copy if the store is closed"},
	{"not_a_directory", errNoTree, "import takes a directory, or with --from the store of another " +
		"program; `ebb load` takes rows as JSON or CSV, `ebb put STORE KEY @FILE` one file"},
	{"not_a_store", kv.ErrNotDatabase, "the file is something else and was not touched: check the path"},
	{"backup_base", kv.ErrBackupBase,
		"a full backup comes first, then each increment on the one before it; " +
			"`ebb backup STORE FILE` makes a full one"},
	{"version", kv.ErrVersion,
		"another version of Ebb wrote this store: use the ebb command of that version"},
	{
		"corrupt",
		errNoMeta,
		"keep a copy of the files; `ebb salvage STORE OUT` makes a new store of their rows; `ebb " +
			"pages STORE --page-size 4096` lists the pages, if 4096 is what the store was created with",
	},
	{
		"corrupt",
		errUnopened,
		"the store cannot be opened: keep a copy of its files, and go back to a backup with `ebb " +
			"restore`; without one, `ebb salvage STORE OUT --log` makes a new store of the rows that " +
			"are left; `ebb check STORE` and `ebb wal STORE` name the damage",
	},
	{
		"corrupt",
		errBadBackup,
		"restore as far as an earlier backup is whole, and make a full one now: `ebb backup STORE FILE`",
	},
	{
		"corrupt",
		kv.ErrCorrupt,
		"see the whole damage with `ebb check STORE`; " + damageHint,
	},
	{
		"commit_unknown",
		kv.ErrCommitUnknown,
		"the disk failed during the commit: read the key to see whether it arrived",
	},
	{
		"failed",
		kv.ErrFailed,
		"the disk refused a write: see to its health and space, then run the command again",
	},
	{
		"no_space",
		kv.ErrNoSpace,
		"free some space on the disk, or delete keys; nothing that was stored before is lost",
	},
	{
		"key_too_large",
		kv.ErrKeyTooLarge,
		"keys have at most a quarter of the page size; `ebb put`, `ebb import` and `ebb family " +
			"--create` create a store of larger pages with --page-size",
	},
	{"value_too_large", kv.ErrValueTooLarge, "values end at 1 GiB - 1: store it in pieces"},
	{"transaction_too_large", kv.ErrTxnTooLarge, "use smaller transactions: `ebb import --batch-bytes`"},
	{"key_empty", kv.ErrKeyEmpty, "a key has at least one byte"},
	{
		"invalid_ttl",
		kv.ErrInvalidTTL,
		"a ttl is positive, as 90s, 15m, 36h or 7d; an expiry is in the future, as " +
			"2030-01-31T12:00:00Z or in milliseconds since 1970",
	},
	{"clock_jump", kv.ErrClockJump, "see that the clock is right, then use --force"},
	{
		"reserved",
		kv.ErrCFReserved,
		"family names that begin with __ belong to Ebb, and the family default is always there " +
			"under this name",
	},
	{"family_name", kv.ErrCFName, "a family name is 1 to 200 bytes of UTF-8 without NUL"},
	{"path", kv.ErrInvalidPath, "a store is a regular file"},
	{
		"replaced",
		kv.ErrFileReplaced,
		"the file was moved or replaced while it was open: find out why before you go on",
	},
	{"usage", errNotHex, "--hex wants two digits for each byte of a key, as 6b6579 for key"},
	{"usage", errNotBase64, "--base64 wants the standard alphabet, padded or not, as a2V5 for key"},
	{"interrupted", context.Canceled, "everything committed before is durable"},
	{"page_size", errPageSize, "a store keeps the page size that it was created with"},
	{
		"missing",
		errNoBackup,
		"check the path; the new store is named first: `ebb restore STORE FULL INCREMENT...`",
	},
	{"missing", errNoDirectory, "a store is created in a directory that is there: make it first"},
	{
		"missing",
		fs.ErrNotExist,
		"check the path; `ebb put`, `ebb import` and `ebb family --create` create a store, " +
			"other commands do not",
	},
	{"file_exists", fs.ErrExist,
		"no file is replaced: the new one takes another name, or the old one goes first"},
	{
		"permission",
		fs.ErrPermission,
		"check the permissions of the file and, if there is a log beside it, of its directory",
	},
}

// hintBreak is where a hint goes on below its beginning.
const hintBreak = "\n      "

// packageName is the name of the library's package in an error. A program reads from it whose error
// that is; here it has no meaning.
var packageName = regexp.MustCompile(`(?m)(^|: )kv: `)

// report prints err, if it is one, and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errSaid) {
		return exitError
	}
	var line errLine
	if errors.As(err, &line) {
		return line.code
	}
	if errors.Is(err, errEnough) {
		return exitOK
	}
	if errors.Is(err, syscall.EPIPE) {
		return exitError // the reader of our output has gone, and with it everyone to tell
	}
	kind, hint, code := "error", "", exitError
	for _, ad := range advices {
		if errors.Is(err, ad.is) {
			kind, hint = ad.kind, ad.hint
			break
		}
	}
	switch kind {
	case "not_found", "family_not_found":
		code = exitNotFound
	case "exists", "family_exists", "differs":
		code = exitExists
	case "interrupted":
		if !a.writes {
			hint = "" // A reader has changed nothing.
		}
	}
	var usage usageError
	if errors.As(err, &usage) {
		kind = "usage"
		hint = fmt.Sprintf(
			"call it as: %s%s`%s --help` tells more",
			strings.TrimSpace(usage.cmd.UseLine()), // Within a shell the root has no name.
			hintBreak,
			strings.TrimSpace(usage.cmd.CommandPath()),
		)
		var unknown *pflag.NotExistError
		switch {
		case !usage.cmd.HasParent():
			hint = "`ebb --help` lists the commands"
		case errors.As(err, &unknown): // most likely a key or a value
			hint += "; words that begin with a dash and are no flags go behind --"
		}
	}
	text := packageName.ReplaceAllString(err.Error(), "$1")
	if a.json {
		_ = encodeJSON(a.stderr, struct { // stderr is the last resort
			Error string `json:"error"`
			Kind  string `json:"kind"`
			Hint  string `json:"hint,omitempty"`
		}{text, kind, strings.ReplaceAll(hint, hintBreak, "; ")})
		return code
	}
	// Several errors are joined with newlines, and the advice on a command that is unknown has
	// tabs.
	colours := showsColour(a.stderr)
	fmt.Fprintf(a.stderr, "%s %s\n", painted(colours, red, "ebb:"), printable(text, "\n\t"))
	if hint != "" {
		fmt.Fprintf(a.stderr, "%s %s\n", painted(colours, cyan, "hint:"), hint)
	}
	return code
}
