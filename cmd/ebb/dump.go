package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

func dumpCommand(a *app) *cobra.Command {
	asCSV := false
	cmd := &cobra.Command{
		Use:   "dump STORE",
		Short: "Print every family with all its rows, as far as they can be read",
		Long: `Dump prints all families and all their rows, or those of the one that --family names.
With --json each row is one object on a line that names its family, behind a line with the settings
of a family that has some; ebb load stores all that again. A row with an expiry ends with it. Rows
that are expired and not yet deleted are counted, not printed.

With --csv the rows are records of family, key, value, expiry and time, which ebb load --csv stores
again without a loss. Bytes that CSV cannot hold are base64: and their encoding; a record without
key and time has the settings of a family.

Damage hides only the rows that it hit: what cannot be read is named on standard error, with --json
by an object with the one field "missing" in its place, and the exit code is 1. Of a value that is
lost the key is printed. Where only the count of expired rows is lost, all rows are printed.`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := exclusive(cmd, "csv", "json"); err != nil {
				return err
			}
			db, err := a.openToRead(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			d := dumper{app: a, db: db, missing: missing{app: a}}
			if asCSV {
				d.csv = csv.NewWriter(a.out)
				_ = d.csv.Write(csvColumns) // an output that fails says so with the next record
				defer d.csv.Flush()
			}
			families := []string{a.family}
			if !cmd.Flags().Changed("family") {
				if families, err = d.families(); err != nil {
					return errors.Join(fmt.Errorf("list families: %w", err), db.Close())
				}
			}
			return errors.Join(d.dump(cmd.Context(), families), db.Close())
		},
	}
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print CSV, for ebb load --csv")
	return cmd
}

// dumper prints the rows of a store.
type dumper struct {
	app     *app
	db      *kv.DB
	missing missing
	csv     *csv.Writer // nil: not asked for
}

// families lists the families whose names can be read.
func (d *dumper) families() (names []string, err error) {
	err = d.db.View(func(tx *kv.Tx) error {
		d.missing.watch(tx, nil)
		names, err = tx.ListCFs()
		return err
	})
	return names, err
}

// dump reads each family by itself, so that what ends one does not keep the others from being
// printed.
func (d *dumper) dump(ctx context.Context, families []string) error {
	var errs []error
	for _, family := range families {
		if err := d.family(ctx, family); err != nil {
			errs = append(errs, fmt.Errorf("dump family %q: %w", family, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if err := d.missing.err(); err != nil {
		errs = append(errs, fmt.Errorf("dump: %w", err))
	}
	return errors.Join(errs...)
}

// family counts the rows and prints them in transactions of their own: damage ends a transaction,
// and an expiry index that cannot be read shall not keep us from printing rows. The store is open
// read-only, so all of them see one state.
func (d *dumper) family(ctx context.Context, family string) error {
	var lost error
	if !d.app.json && d.csv == nil {
		stored, err := d.db.CF(family).Count()
		if err != nil {
			return err
		}
		live, err := d.db.CF(family).CountLive()
		if err != nil {
			lost = fmt.Errorf("count expired rows: %w", err)
		}
		if err := d.head(family, stored, live, lost == nil); err != nil {
			return err
		}
	}
	if d.app.json || d.csv != nil {
		lost = d.db.View(func(tx *kv.Tx) error { return d.settings(tx, family) })
		if errors.Is(lost, kv.ErrCFNotFound) {
			return lost
		}
	}
	return errors.Join(lost, d.db.View(func(tx *kv.Tx) error { return d.rows(ctx, tx, family) }))
}

// settings prints a line for a family that rows alone do not describe: one with settings or a
// sequence, or without rows.
func (d *dumper) settings(tx *kv.Tx, family string) error {
	o, err := tx.CFOptions(family)
	if err != nil {
		return err
	}
	last, err := tx.CF(family).Sequence()
	if err != nil {
		return err
	}
	rows, err := tx.CF(family).Count()
	if err != nil || o == (kv.CFOptions{}) && last == 0 && (rows > 0 || family == defaultFamily) {
		return err
	}
	object := familyOptions(o).fields()
	object["family"] = family
	if last > 0 {
		object["sequence"] = last
	}
	if d.csv != nil {
		return d.csvSettings(family, object)
	}
	return d.app.printJSON(object)
}

// head prints how many rows the family has, and how many of those that are stored are expired, if
// that is known.
func (d *dumper) head(family string, stored, live int64, known bool) error {
	rows, note := live, ""
	switch {
	case !known:
		rows, note = stored, ", expired ones included"
	case live < stored:
		note = fmt.Sprintf(", %d expired and not yet deleted", stored-live)
	}
	_, err := fmt.Fprintf(d.app.out, "family %s: %s%s\n", d.app.show([]byte(family)),
		plural(rows, "row"), note)
	return err
}

func (d *dumper) row(r row) error {
	if d.csv != nil {
		return d.csvRow(r)
	}
	return d.app.printRow(r)
}

// rows prints the rows of the family with their expiries.
func (d *dumper) rows(ctx context.Context, tx *kv.Tx, family string) error {
	d.missing.watch(tx, nil)
	if o, err := tx.CFOptions(family); err == nil && o.Retention > 0 {
		for k, v := range tx.CF(family).ScanTime(time.Time{}, time.Time{}, false) {
			if err := ctx.Err(); err != nil {
				return err
			}
			r := row{family: family, ts: k.Time, key: k.Key, value: v, lost: v == nil}
			if err := d.row(r); err != nil {
				return err
			}
		}
		return tx.Err()
	}
	c := tx.CF(family).Cursor()
	for c.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		value := c.Value()
		if c.Err() != nil {
			break
		}
		at, _ := c.Expiry()
		r := row{family: family, key: c.Key(), value: value, lost: value == nil, at: at}
		if err := d.row(r); err != nil {
			return err
		}
	}
	return c.Err()
}
