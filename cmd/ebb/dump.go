package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

func (a *app) dumpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "dump STORE",
		Short: "Print every family with all its rows, as far as they can be read",
		Long: `Dump prints all families and all their rows. With --json each row is one object on a line that names its family.
A row with an expiry ends with it. Rows that are expired and not yet deleted are counted, not printed.

A damaged family ends where the damage is; the other families are still printed, and the exit code is 1.`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := a.openToRead(args[0])
			if err != nil {
				return err
			}
			return errors.Join(a.dump(cmd.Context(), db), db.Close())
		},
	}
}

// dump reads each family in a transaction of its own: an error ends a transaction, and the other families shall be
// printed all the same. The store is open read-only, so all of them see one state.
func (a *app) dump(ctx context.Context, db *kv.DB) error {
	families, err := db.ListCFs()
	if err != nil {
		return fmt.Errorf("list families: %w", err)
	}
	var errs []error
	for _, family := range families {
		head := func(tx *kv.Tx) error { return a.dumpHead(tx, family) }
		rows := func(tx *kv.Tx) error { return a.dumpRows(ctx, tx, family) }
		var err error
		if !a.json {
			err = db.View(head)
		}
		if err == nil {
			err = db.View(rows)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("dump family %q: %w", family, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// dumpHead prints how many rows the family has.
func (a *app) dumpHead(tx *kv.Tx, family string) error {
	stored, err := tx.CF(family).Count()
	if err != nil {
		return err
	}
	expired := int64(0)
	// An index that cannot be read keeps us from telling which rows are expired, not from printing others.
	if live, err := tx.CF(family).CountLive(); err == nil {
		expired = stored - live
	}
	fmt.Fprintf(a.out, "family %s: %s", a.show([]byte(family)), plural(stored-expired, "row"))
	if expired > 0 {
		fmt.Fprintf(a.out, ", %d expired and not yet deleted", expired)
	}
	return a.out.WriteByte('\n')
}

// dumpRows prints the rows of the family with their expiries.
func (a *app) dumpRows(ctx context.Context, tx *kv.Tx, family string) error {
	cf := tx.CF(family)
	for key, value := range cf.All() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		at, err := cf.Expiry(key)
		if err != nil {
			return err
		}
		if err := a.printRow(row{family: family, key: key, value: value, at: at}); err != nil {
			return err
		}
	}
	return tx.Err()
}
