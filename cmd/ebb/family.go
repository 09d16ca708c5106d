package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/ttl"
)

func (a *app) familyCommand() *cobra.Command {
	var (
		create, drop bool
		rename       string
		defaultTTL   time.Duration
	)
	cmd := &cobra.Command{
		Use:   "family STORE [NAME]",
		Short: "List the families of a store, or create, change, rename or drop one",
		Long: `Family lists the names of the families of a store. With a NAME it does to that one what the flags say, in one transaction.

A family with a default ttl gives it to every key that is put without an expiry of its own, from then on: --default-ttl 0 ends that.
Keys that are there keep what they have. Dropping a family drops its rows. The family "default" is always there, and can be given a default
ttl, but neither be renamed nor dropped.`,
		Example: `  ebb family my.ebb sessions --create --default-ttl 30m
  ebb family my.ebb sessions --rename old-sessions`,
		Args: args(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("page-size") && !create {
				return usageError{cmd, errors.New("--page-size needs --create")}
			}
			altered, renamed := cmd.Flags().Changed("default-ttl"), cmd.Flags().Changed("rename")
			asked := create || drop || renamed || altered
			if len(args) == 1 {
				if asked {
					return usageError{cmd, errors.New("the flags need the NAME of a family")}
				}
				return a.listFamilies(cmd.Context(), args[0])
			}
			if err := exclusive(cmd, "create", "drop", "rename"); err != nil {
				return err
			}
			if err := exclusive(cmd, "default-ttl", "drop"); err != nil {
				return err
			}
			if !asked {
				return usageError{cmd, errors.New("nothing to do: give --create, --default-ttl, --rename or --drop")}
			}
			name, o := args[1], kv.CFOptions{DefaultTTL: defaultTTL}
			err := a.update(cmd, args[0], !create, func(tx *kv.Tx) error {
				switch {
				case create:
					return tx.CreateCF(name, o)
				case drop:
					return tx.DropCF(name)
				}
				if altered {
					if err := tx.AlterCF(name, o); err != nil {
						return err
					}
				}
				if renamed {
					return tx.RenameCF(name, rename)
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("family: %q: %w", name, err)
			}
			if !a.json {
				return nil
			}
			object := map[string]any{"family": name}
			if renamed {
				object["family"] = rename
			}
			if create || altered {
				object["default_ttl_ms"] = ttl.Milliseconds(defaultTTL)
			}
			if drop {
				object["dropped"] = true
			}
			return a.printJSON(object)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&create, "create", false, "create it; the store too, if that is absent")
	f.DurationVar(&defaultTTL, "default-ttl", 0, "what a key lives for that is put without an expiry; 0: for ever")
	f.StringVar(&rename, "rename", "", "give it this name")
	f.BoolVar(&drop, "drop", false, "drop it with all its rows")
	a.addPageSize(cmd)
	return cmd
}

func (a *app) listFamilies(ctx context.Context, path string) error {
	return a.view(ctx, path, func(tx *kv.Tx) error {
		names, err := tx.ListCFs()
		if err != nil {
			return fmt.Errorf("family: %w", err)
		}
		if a.json {
			return a.printJSON(map[string]any{"families": names})
		}
		for _, name := range names {
			if _, err := fmt.Fprintln(a.out, a.show([]byte(name))); err != nil {
				return err
			}
		}
		return nil
	})
}
