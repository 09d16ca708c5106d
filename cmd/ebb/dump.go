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
		Long: `Dump prints all families and all their rows, or those of the one that --cf names. With --json each row is one object
on a line that names its family. A row with an expiry ends with it. Rows that are expired and not yet deleted are
counted, not printed.

A damaged family ends where the damage is; the other families are still printed, and the exit code is 1. Where only the
count of expired rows is lost, all rows are printed.`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := a.openToRead(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			families := []string{a.cf}
			if !cmd.Flags().Changed("cf") {
				if families, err = db.ListCFs(); err != nil {
					return errors.Join(fmt.Errorf("list families: %w", err), db.Close())
				}
			}
			return errors.Join(a.dump(cmd.Context(), db, families), db.Close())
		},
	}
}

// dump reads each family by itself, so that one that is damaged does not keep the others from being printed.
func (a *app) dump(ctx context.Context, db *kv.DB, families []string) error {
	var errs []error
	for _, family := range families {
		if err := a.dumpFamily(ctx, db, family); err != nil {
			errs = append(errs, fmt.Errorf("dump family %q: %w", family, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// dumpFamily counts the rows and prints them in transactions of their own: damage ends a transaction, and an expiry index
// that cannot be read shall not keep us from printing rows. The store is open read-only, so all of them see one state.
func (a *app) dumpFamily(ctx context.Context, db *kv.DB, family string) error {
	var lost error
	if !a.json {
		stored, err := db.CF(family).Count()
		if err != nil {
			return err
		}
		live, err := db.CF(family).CountLive()
		if err != nil {
			lost = fmt.Errorf("count expired rows: %w", err)
		}
		if err := a.dumpHead(family, stored, live, lost == nil); err != nil {
			return err
		}
	}
	return errors.Join(lost, db.View(func(tx *kv.Tx) error { return a.dumpRows(ctx, tx, family) }))
}

// dumpHead prints how many rows the family has, and how many of those that are stored are expired, if that is known.
func (a *app) dumpHead(family string, stored, live int64, known bool) error {
	rows, note := live, ""
	switch {
	case !known:
		rows, note = stored, ", expired ones included"
	case live < stored:
		note = fmt.Sprintf(", %d expired and not yet deleted", stored-live)
	}
	_, err := fmt.Fprintf(a.out, "family %s: %s%s\n", a.show([]byte(family)), plural(rows, "row"), note)
	return err
}

// dumpRows prints the rows of the family with their expiries.
func (a *app) dumpRows(ctx context.Context, tx *kv.Tx, family string) error {
	cf := tx.CF(family)
	for key, value := range cf.All() {
		if err := ctx.Err(); err != nil {
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
