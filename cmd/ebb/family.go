package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/ttl"
)

func (a *app) familyCommand() *cobra.Command {
	var c familyChange
	cmd := &cobra.Command{
		Use:   "family STORE [NAME]",
		Short: "List the families of a store, or create, change, rename or drop one",
		Long: `Family lists the names of the families of a store. With a NAME it does to that one what the flags say, in one
transaction.

A family with a default ttl gives it to every key that is put without an expiry of its own, from then on:
--default-ttl 0 ends that. Keys that are there keep what they have. Dropping a family drops its rows. The family
"default" is always there, and can be given a default ttl, but neither be renamed nor dropped.`,
		Example: `  ebb family my.ebb sessions --create --default-ttl 30m
  ebb family my.ebb sessions --rename old-sessions`,
		Args: args(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.check(cmd, len(args) == 2); err != nil {
				return err
			}
			if len(args) == 1 {
				return a.listFamilies(cmd.Context(), args[0])
			}
			name := args[1]
			if err := a.update(cmd, args[0], !c.create, func(tx *kv.Tx) error { return c.apply(tx, name) }); err != nil {
				return fmt.Errorf("family: %q: %w", name, err)
			}
			if !a.json {
				return nil
			}
			return a.printJSON(c.summary(name))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&c.create, "create", false, "create it; the store too, if that is absent")
	f.DurationVar(&c.o.DefaultTTL, "default-ttl", 0, "what a key lives for that is put without an expiry, as 36h; 0: for ever")
	f.StringVar(&c.newName, "rename", "", "give it this name")
	f.BoolVar(&c.drop, "drop", false, "drop it with all its rows")
	a.addPageSize(cmd)
	return cmd
}

// familyChange is what the flags ask for. A default ttl of 0, and a new name that is empty, may be asked for too.
type familyChange struct {
	create, drop, rename, alter bool

	newName string
	o       kv.CFOptions
}

// check finds out what was asked for, and refuses what contradicts itself before a store is opened, or created.
func (c *familyChange) check(cmd *cobra.Command, named bool) error {
	c.alter, c.rename = cmd.Flags().Changed("default-ttl"), cmd.Flags().Changed("rename")
	asked := c.create || c.drop || c.rename || c.alter
	switch {
	case cmd.Flags().Changed("page-size") && !c.create:
		return usageError{cmd, errors.New("--page-size needs --create")}
	case asked && !named:
		return usageError{cmd, errors.New("the flags need the NAME of a family")}
	case named && !asked:
		return usageError{cmd, errors.New("nothing to do: give --create, --default-ttl, --rename or --drop")}
	}
	if err := exclusive(cmd, "create", "drop", "rename"); err != nil {
		return err
	}
	return exclusive(cmd, "default-ttl", "drop")
}

func (c *familyChange) apply(tx *kv.Tx, name string) error {
	switch {
	case c.create:
		return tx.CreateCF(name, c.o)
	case c.drop:
		return tx.DropCF(name)
	}
	if c.alter {
		if err := tx.AlterCF(name, c.o); err != nil {
			return err
		}
	}
	if c.rename {
		return tx.RenameCF(name, c.newName)
	}
	return nil
}

// summary is the JSON object that tells what was done.
func (c *familyChange) summary(name string) map[string]any {
	object := map[string]any{"family": name}
	if c.rename {
		object["family"] = c.newName
	}
	if c.create || c.alter {
		object["default_ttl_ms"] = ttl.Milliseconds(c.o.DefaultTTL)
	}
	if c.drop {
		object["dropped"] = true
	}
	return object
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
