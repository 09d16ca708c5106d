package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

func loadCommand(a *app) *cobra.Command {
	l, asCSV := loader{app: a}, false
	cmd := &cobra.Command{
		Use:   "load STORE [FILE]",
		Short: "Store rows from JSON or CSV: those of a dump, or your own",
		Long: `Load reads what ebb dump --json printed, or with --csv what ebb dump --csv printed, from FILE
or standard input, and stores it: families with their settings and sequences, keys, values and
expiries. It creates the store and the families if they are absent; a family that is there keeps its
settings, and the higher of both sequences.

Rows of another origin are objects of JSON, one a line, with key and value, and family, expiry or
time if need be. With --csv the first record names the columns, in any order: key and value, and
those of family, expiry and time that there are. A row that names no family goes to --family. Expiry
and time, that of a row of a time-partitioned family, are as 2030-01-31T12:00:00Z or in milliseconds
since 1970. A row without an expiry is permanent. Bytes that are no text: key_base64, value_base64 or
key_hex, value_hex in JSON, base64: or hex: in front of them in CSV.

A key that is there ends the load, unless --replace or --skip says what to do with it. Rows whose
expiry has passed are left out and counted. Load works in durable transactions of some thousand
rows: those before an error stay stored, and --replace or --skip goes on from there.

A dump of a damaged store says what is missing in it: load stores the rest, and its exit code is 1.`,
		Example: `  ebb load copy.ebb my.jsonl
  ebb load copy.ebb my.jsonl --replace
  printf 'key,value\n17,ann\n' | ebb load my.ebb --csv --family users
  jq -c '{key: (.id|tostring), value: tojson}' users.jsonl | ebb load my.ebb --family users`,
		Args: args(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := exclusive(cmd, "replace", "skip"); err != nil {
				return err
			}
			lines := jsonLines
			if asCSV {
				lines = csvLines
			}
			in := a.stdin
			if len(args) == 2 && args[1] != "-" {
				f, err := os.Open(args[1])
				if err != nil {
					return fmt.Errorf("load: %v", err) // not wrapped: a hint about the store would mislead
				}
				defer f.Close()
				in = f
			}
			db, err := a.openToWrite(cmd.Context(), args[0], false)
			if err != nil {
				return err
			}
			err = l.run(cmd.Context(), db, lines(bufio.NewReaderSize(in, 1<<16)))
			if err := errors.Join(err, a.closeWritten(db, err != nil)); err != nil {
				return fmt.Errorf("load: %w", err)
			}
			return l.print()
		},
	}
	f := cmd.Flags()
	f.BoolVar(&l.replace, "replace", false, "overwrite keys that are there")
	f.BoolVar(&asCSV, "csv", false, "read CSV, as ebb dump --csv prints it")
	f.BoolVar(&l.skip, "skip", false, "leave keys that are there as they are")
	a.addCreation(cmd)
	return cmd
}

// dumpLine is one line of a dump: the settings of a family, a row, or a place where rows are missing.
type dumpLine struct {
	Family      string  `json:"family"`
	Key         *string `json:"key"`
	KeyHex      *string `json:"key_hex"`
	KeyBase64   *string `json:"key_base64"`
	Value       *string `json:"value"`
	ValueHex    *string `json:"value_hex"`
	ValueBase64 *string `json:"value_base64"`
	Expiry      string  `json:"expiry"`
	Time        string  `json:"time"`

	DefaultTTL *int64 `json:"default_ttl_ms"`
	Retention  *int64 `json:"retention_ms"`
	Partition  *int64 `json:"partition_ms"`
	Sequence   uint64 `json:"sequence"`

	at int64 // where a record of CSV begins, counted in lines from 1

	Missing      json.RawMessage `json:"missing"`
	ValueMissing bool            `json:"value_missing"`
}

// bytesOf decodes the one field of three that is there; ok is false if none is.
func bytesOf(text, hexed, based *string) (b []byte, ok bool, err error) {
	switch {
	case text != nil:
		return []byte(*text), true, nil
	case hexed != nil:
		b, err = hex.DecodeString(*hexed)
		return b, true, err
	case based != nil:
		b, err = base64.StdEncoding.DecodeString(*based)
		return b, true, err
	}
	return nil, false, nil
}

// Bounds of one transaction of a load.
const (
	loadRows  = 4096
	loadBytes = 8 << 20
)

// errNoRow is what load says of input that is not what it reads.
var errNoRow = errors.New("neither a row nor the settings of a family")

// errRowExists is errExists of a load.
var errRowExists = marked{errExists, errors.New("a row of a load is there already")}

// loader stores a dump.
type loader struct {
	app           *app
	replace, skip bool
	into          string // family of all lines, whatever they name; "": theirs

	line             int64
	rows, bytes      int   // of the open transaction
	partial          int64 // rows that the open transaction stores
	loaded, skipped  int64
	expired, missing int64
}

// jsonLines reads a dump in JSON. A field that no dump has is an error: "expires" for "expiry" would
// make a row that stays for ever.
func jsonLines(in io.Reader) func() (dumpLine, error) {
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	return func() (line dumpLine, err error) {
		err = d.Decode(&line)
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) && kind.Field == "" {
			return line, fmt.Errorf("the line is of JSON's kind %s, and not an object", kind.Value)
		} else if errors.As(err, &kind) {
			return line, fmt.Errorf("%s is of JSON's kind %s, and not %s", kind.Field, kind.Value, kind.Type)
		}
		return line, err
	}
}

// run reads lines until the end, a transaction at a time.
func (l *loader) run(ctx context.Context, db *kv.DB, next func() (dumpLine, error)) error {
	p := l.app.newProgress("load", unknownTotal, false)
	defer p.end()
	for more := true; more; {
		l.rows, l.bytes, l.partial = 0, 0, 0
		err := db.UpdateContext(ctx, func(tx *kv.Tx) (err error) {
			more, err = l.batch(ctx, tx, next)
			return err
		})
		if err != nil {
			err = fmt.Errorf("line %d: %w; %s stored", l.line, err, plural(l.loaded, "row"))
			if errors.Is(err, context.Canceled) && !l.replace && !l.skip {
				err = fmt.Errorf("%w; go on with --skip", err)
			}
			return err
		}
		l.loaded += l.partial
		p.add(l.partial)
	}
	return nil
}

func (l *loader) batch(
	ctx context.Context, tx *kv.Tx, next func() (dumpLine, error),
) (more bool, err error) {
	for l.rows < loadRows && l.bytes < loadBytes {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		line, err := next()
		if l.line++; line.at > 0 {
			l.line = line.at
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		} else if err != nil {
			return false, fmt.Errorf("%w: %v", errNoRow, err)
		}
		if l.into != "" {
			line.Family = l.into
		}
		if err := l.apply(tx, &line); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (l *loader) apply(tx *kv.Tx, line *dumpLine) error {
	key, isRow, err := bytesOf(line.Key, line.KeyHex, line.KeyBase64)
	switch {
	case err != nil:
		return err
	case line.Missing != nil || isRow && line.ValueMissing:
		l.missing++
		return nil
	case line.Family == "" && !isRow:
		return fmt.Errorf("%w: it has no key", errNoRow)
	case !isRow:
		return l.family(tx, line)
	case line.Family == "":
		line.Family = l.app.family
	}
	if err := tx.EnsureCF(line.Family, kv.CFOptions{}); err != nil {
		return err
	}
	value, ok, err := bytesOf(line.Value, line.ValueHex, line.ValueBase64)
	if err == nil && !ok {
		err = fmt.Errorf("%w: it has no value", errNoRow)
	}
	if err != nil {
		return err
	}
	l.rows, l.bytes = l.rows+1, l.bytes+len(key)+len(value)
	stored, err := l.row(tx.CF(line.Family), line, key, value)
	switch {
	case errors.Is(err, kv.ErrInvalidTTL): // It has expired since.
		l.expired++
		return nil
	case err != nil:
		return err
	case stored:
		l.partial++
	case l.skip:
		l.skipped++
	default:
		return fmt.Errorf("family %q, key %s: %w", line.Family, l.app.show(key), errRowExists)
	}
	return nil
}

// family creates a family with its settings, and raises its sequence.
func (l *loader) family(tx *kv.Tx, line *dumpLine) error {
	var o kv.CFOptions
	for _, f := range []struct {
		to *time.Duration
		ms *int64
	}{{&o.DefaultTTL, line.DefaultTTL}, {&o.Retention, line.Retention}, {&o.Partition, line.Partition}} {
		if f.ms != nil {
			*f.to = time.Duration(*f.ms) * time.Millisecond
		}
	}
	if line.Family == defaultFamily && o.DefaultTTL != 0 {
		if now, err := tx.CFOptions(defaultFamily); err == nil && now == (kv.CFOptions{}) {
			if err := tx.AlterCF(defaultFamily, o); err != nil {
				return err
			}
		}
	}
	if err := tx.EnsureCF(line.Family, o); err != nil {
		return err
	}
	last, err := tx.CF(line.Family).Sequence()
	if err != nil || last >= line.Sequence {
		return err
	}
	return tx.CF(line.Family).SetSequence(line.Sequence)
}

// row stores a row, and says whether it did: not if the key is there and must stay.
func (l *loader) row(c *kv.CF, line *dumpLine, key, value []byte) (stored bool, err error) {
	if line.Time != "" {
		at, err := parseTime(line.Time)
		if err != nil {
			return false, err
		}
		if !l.replace {
			if _, err := c.GetAt(at, key); !errors.Is(err, kv.ErrNotFound) {
				return false, err
			}
		}
		err = c.Append(at, key, value)
		return err == nil, err
	}
	o := kv.PutOptions{NoExpiry: line.Expiry == "", IfAbsent: !l.replace}
	if line.Expiry != "" {
		if o.ExpireAt, err = parseTime(line.Expiry); err != nil {
			return false, err
		}
	}
	return c.PutWith(key, value, o)
}

// parseTime is the inverse of showInstant, also before 1970.
func parseTime(s string) (time.Time, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.UnixMilli(ms), nil
	}
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %q is no time as 2030-01-31T12:00:00Z", errNoRow, s)
	}
	return at, nil
}

// print prints the result; rows that were missing in the dump are an error.
func (l *loader) print() error {
	if l.app.json {
		err := l.app.printJSON(map[string]any{
			"rows": l.loaded, "skipped": l.skipped, "expired": l.expired, "missing": l.missing,
		})
		if err != nil {
			return err
		}
	} else {
		fmt.Fprintf(l.app.out, "%s loaded", plural(l.loaded, "row"))
		for _, n := range []struct {
			n    int64
			what string
		}{{l.skipped, "skipped"}, {l.expired, "expired"}} {
			if n.n > 0 {
				fmt.Fprintf(l.app.out, ", %d %s", n.n, n.what)
			}
		}
		fmt.Fprintln(l.app.out)
	}
	if l.missing > 0 {
		return fmt.Errorf("load: the dump says that rows are missing in it, at %s",
			plural(l.missing, "place"))
	}
	return nil
}
