package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

func scanCommand(a *app) *cobra.Command {
	var prefix, from, to string
	var o kv.ScanOptions
	var before instant
	expiry := false
	cmd := &cobra.Command{
		Use:   "scan STORE",
		Short: "List keys and values in order",
		Long: `Scan lists the rows of a family in order of their keys: key, tab, value. Keys and values
that hold unprintable bytes are shown as Go strings in quotes. With --json each row is one object on
a line, with value_base64 for a value that is no UTF-8, or of 1 MiB and more.

Damage hides only the rows that it hit: what cannot be read is named on standard error, with --json
by an object with the one field "missing" in its place, and the exit code is 1.

With --expiring-before it lists the keys whose expiry is before that time, in order of expiry:
expiry, tab, key. Keys that are expired and not yet deleted come first.`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Limit < 0 {
				return usageError{cmd, errors.New("--limit is negative")}
			}
			if !before.IsZero() {
				for _, other := range []string{"prefix", "from", "to", "reverse", "keys-only"} {
					if err := exclusive(cmd, "expiring-before", other); err != nil {
						return err
					}
				}
				err := a.view(
					cmd.Context(),
					args[0],
					func(tx *kv.Tx) error { return a.printExpiring(cmd.Context(), tx, before.Time, o.Limit) },
				)
				if err != nil {
					return fmt.Errorf("scan: %w", err)
				}
				return nil
			}
			for _, bound := range []struct {
				flag string
				to   *[]byte
			}{{prefix, &o.Prefix}, {from, &o.Lower}, {to, &o.Upper}} {
				b, err := a.key(bound.flag)
				if err != nil {
					return err
				}
				*bound.to = b
			}
			err := a.view(
				cmd.Context(),
				args[0],
				func(tx *kv.Tx) error { return a.printRows(cmd.Context(), tx, a.family, o, expiry) },
			)
			if err != nil {
				return fmt.Errorf("scan: %w", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&prefix, "prefix", "", "only keys that begin with this")
	f.StringVar(&from, "from", "", "only keys >= this")
	f.StringVar(&to, "to", "", "only keys < this")
	f.BoolVar(&o.Reverse, "reverse", false, "last key first")
	f.IntVar(&o.Limit, "limit", 0, "end after this many rows; 0: no limit")
	f.BoolVar(&o.KeysOnly, "keys-only", false, "no values")
	f.BoolVar(&expiry, "expiry", false, "print the expiry of a row that has one, too, behind another tab")
	f.Var(&before, "expiring-before", "only keys with an expiry before this, in order of expiry")
	return cmd
}

// printRows prints the rows of the family, with their expiry if that is asked for.
func (a *app) printRows(ctx context.Context, tx *kv.Tx, family string, o kv.ScanOptions, expiry bool) error {
	m := missing{app: a}
	m.watch(tx, nil)
	for key, value := range tx.CF(family).Scan(o) {
		if err := ctx.Err(); err != nil {
			return err
		}
		row := row{key: key, value: value, keysOnly: o.KeysOnly, lost: value == nil && !o.KeysOnly}
		if expiry {
			at, err := tx.CF(family).Expiry(key)
			if err != nil {
				return err
			}
			row.at = at
		}
		if err := a.printRow(row); err != nil {
			return err
		}
	}
	return errors.Join(tx.Err(), m.err())
}

// printExpiring prints the keys with an expiry before that instant, the earliest first. limit 0 is
// no limit.
func (a *app) printExpiring(ctx context.Context, tx *kv.Tx, before time.Time, limit int) error {
	now, n, m := tx.Now(), 0, missing{app: a}
	m.watch(tx, nil)
	for key, at := range tx.CF(a.family).Expiring(before) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if a.json {
			object := map[string]any{}
			a.setBytes(object, "key", key)
			life{at: at, left: max(at.Sub(now), 0)}.set(object)
			if err := a.printJSON(object); err != nil {
				return err
			}
		} else {
			shown := a.out.paint(cyan, a.show(key))
			if _, err := fmt.Fprintf(a.out, "%s\t%s\n", paintExpiry(a, at, now), shown); err != nil {
				return err
			}
		}
		if n++; n == limit {
			break
		}
	}
	return errors.Join(tx.Err(), m.err())
}

// paintExpiry is the instant in yellow, or in red if it has passed.
func paintExpiry(a *app, at, now time.Time) string {
	if at.After(now) {
		return a.out.paint(yellow, showInstant(at))
	}
	return a.out.paint(red, showInstant(at))
}

// row is one line of a listing.
type row struct {
	family     string // "": not named
	key, value []byte
	keysOnly   bool
	lost       bool      // the value cannot be read
	at         time.Time // expiry; zero: none, or not asked for
	ts         time.Time // timestamp in a time-partitioned family
}

func (a *app) printRow(r row) error {
	if a.json {
		object := map[string]any{}
		if r.family != "" {
			object["family"] = r.family
		}
		a.setBytes(object, "key", r.key)
		if !r.ts.IsZero() {
			object["time"] = showInstant(r.ts)
		}
		if !r.at.IsZero() {
			object["expiry"] = showInstant(r.at)
		}
		if r.lost {
			object["value_missing"] = true
		}
		if r.keysOnly || r.lost {
			return a.printJSON(object)
		}
		return a.printRowJSON(object, r.value)
	}
	if !r.ts.IsZero() {
		a.out.WriteString(showInstant(r.ts))
		a.out.WriteByte('\t')
	}
	if _, err := a.out.WriteString(a.out.paint(cyan, a.show(r.key))); err != nil {
		return err
	}
	if !r.keysOnly && !r.lost {
		a.out.WriteByte('\t')
		if err := a.showTo(a.out, r.value); err != nil {
			return err
		}
	}
	if !r.at.IsZero() {
		a.out.WriteByte('\t')
		a.out.WriteString(a.out.paint(yellow, showInstant(r.at)))
	}
	return a.out.WriteByte('\n')
}
