package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
	"github.com/ebbkv/ebb/ttl"
)

func familyCommand(a *app) *cobra.Command {
	var c familyChange
	cmd := &cobra.Command{
		Use:   "family STORE [NAME]",
		Short: "List the families of a store and their settings, or create, change, rename or drop one",
		Long: `Family lists the names of the families of a store; behind a tab stands the default ttl
of one that has it. With a NAME it does to that one what the flags say, in one transaction; without
a flag it prints its settings.

A family with a default ttl gives it to every key that is put without an expiry of its own, from
then on: --default-ttl 0 ends that. Keys that are there keep what they have. Dropping a family drops
its rows. The family "default" is always there, and can be given a default ttl, but neither be
renamed nor dropped.

A family that is created with --retention is time-partitioned: see ebb append. Its rows live that
long from their timestamps on, and are dropped a --partition at a time, by default a thirtieth of
the retention. Both may be changed later.`,
		Example: `  ebb family my.ebb sessions --create --default-ttl 30m
  ebb family my.ebb cpu --create --retention 30d --partition 1d
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
			if !c.asked() {
				return a.showFamily(cmd.Context(), args[0], name)
			}
			err := a.update(cmd, args[0], !c.create, func(tx *kv.Tx) error { return c.apply(tx, name) })
			if err != nil {
				return fmt.Errorf("family: %w", err)
			}
			if !a.json {
				return nil
			}
			return a.printJSON(c.summary(name))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&c.create, "create", false, "create it; the store too, if that is absent")
	durationVar(
		f,
		&c.o.DefaultTTL,
		"default-ttl",
		0,
		"what a key lives for that is put without an expiry, as 36h or 7d; 0: for ever",
	)
	durationVar(f, &c.o.Retention, "retention", 0, "lifetime of a row by time, as 30d")
	durationVar(f, &c.o.Partition, "partition", 0,
		"time that is dropped in one step, as 1d; 0: a thirtieth of the retention")
	f.StringVar(&c.newName, "rename", "", "give it this name")
	f.BoolVar(&c.drop, "drop", false, "drop it with all its rows")
	a.addCreation(cmd)
	return cmd
}

// familyChange is what the flags ask for. A default ttl of 0, and a new name that is empty, may be
// asked for too.
type familyChange struct {
	create, drop, rename, alter bool

	newName string
	o       kv.CFOptions
	set     map[string]bool // options that flags name
}

// check finds out what was asked for, and refuses what contradicts itself before a store is opened,
// or created.
func (c *familyChange) check(cmd *cobra.Command, named bool) error {
	c.rename, c.set = cmd.Flags().Changed("rename"), map[string]bool{}
	for _, option := range []string{"default-ttl", "retention", "partition"} {
		c.set[option] = cmd.Flags().Changed(option)
		c.alter = c.alter || c.set[option]
	}
	switch {
	case cmd.Flags().Changed("page-size") && !c.create:
		return usageError{cmd, errors.New("--page-size needs --create")}
	case cmd.Flags().Changed("file-mode") && !c.create:
		return usageError{cmd, errors.New("--file-mode needs --create")}
	case c.asked() && !named:
		return usageError{cmd, errors.New("the flags need the NAME of a family")}
	}
	if err := exclusive(cmd, "create", "drop", "rename"); err != nil {
		return err
	}
	for option := range c.set {
		if err := exclusive(cmd, option, "drop"); err != nil {
			return err
		}
	}
	return nil
}

// asked says whether the flags ask for a change.
func (c *familyChange) asked() bool { return c.create || c.drop || c.rename || c.alter }

func (c *familyChange) apply(tx *kv.Tx, name string) error {
	switch {
	case c.create:
		return tx.CreateCF(name, c.o)
	case c.drop:
		return tx.DropCF(name)
	}
	if c.alter {
		o, err := tx.CFOptions(name)
		if err != nil {
			return err
		}
		c.o = c.over(o)
		if err := tx.AlterCF(name, c.o); err != nil {
			return err
		}
	}
	if c.rename {
		return tx.RenameCF(name, c.newName)
	}
	return nil
}

// over returns the present options with those that flags name.
func (c *familyChange) over(o kv.CFOptions) kv.CFOptions {
	if c.set["default-ttl"] {
		o.DefaultTTL = c.o.DefaultTTL
	}
	if c.set["retention"] {
		o.Retention = c.o.Retention
	}
	if c.set["partition"] {
		o.Partition = c.o.Partition
	}
	return o
}

// summary is the JSON object that describes what was done.
func (c *familyChange) summary(name string) map[string]any {
	object := map[string]any{"family": name}
	if c.rename {
		object["family"] = c.newName
	}
	if c.create || c.alter {
		maps.Copy(object, familyOptions(c.o).fields())
	}
	if c.drop {
		object["dropped"] = true
	}
	return object
}

// listFamilies prints the names of all families, and what is set of each.
func (a *app) listFamilies(ctx context.Context, path string) error {
	return a.view(ctx, path, func(tx *kv.Tx) error {
		names, err := tx.ListCFs()
		if err != nil {
			return fmt.Errorf("family: %w", err)
		}
		settings := map[string]familyOptions{}
		for _, name := range names {
			o, err := tx.CFOptions(name)
			if err != nil {
				return fmt.Errorf("family: %q: %w", name, err)
			}
			settings[name] = familyOptions(o)
			if a.json {
				continue
			}
			line := a.show([]byte(name))
			if o.DefaultTTL != 0 {
				line += "\tdefault ttl " + settings[name].defaultTTL()
			}
			if o.Retention != 0 {
				line += fmt.Sprintf("\tretention %s in partitions of %s", showDuration(o.Retention),
					showDuration(o.Partition))
			}
			if _, err := fmt.Fprintln(a.out, line); err != nil {
				return err
			}
		}
		if a.json {
			return a.printJSON(map[string]any{"families": names, "settings": settings})
		}
		return nil
	})
}

// showFamily prints the settings of one family.
func (a *app) showFamily(ctx context.Context, path, name string) error {
	return a.view(ctx, path, func(tx *kv.Tx) error {
		o, err := tx.CFOptions(name)
		if err != nil {
			return fmt.Errorf("family: %w", err)
		}
		if a.json {
			object := familyOptions(o).fields()
			object["family"] = name
			return a.printJSON(object)
		}
		if o.Retention > 0 {
			_, err = fmt.Fprintf(a.out, "retention: %s\npartition: %s\n", showDuration(o.Retention),
				showDuration(o.Partition))
			return err
		}
		_, err = fmt.Fprintf(a.out, "default ttl: %s\n", familyOptions(o).defaultTTL())
		return err
	})
}

// familyOptions are the settings of a family as the commands print them.
type familyOptions kv.CFOptions

// fields are those of a JSON object. A default ttl of 0 is none.
func (o familyOptions) fields() map[string]any {
	if o.Retention > 0 {
		return map[string]any{
			"retention_ms": ttl.Milliseconds(o.Retention), "partition_ms": ttl.Milliseconds(o.Partition),
		}
	}
	return map[string]any{"default_ttl_ms": ttl.Milliseconds(o.DefaultTTL)}
}

// MarshalJSON gives the object that fields describes.
func (o familyOptions) MarshalJSON() ([]byte, error) { return json.Marshal(o.fields()) }

// defaultTTL is none where a plain put makes a key permanent.
func (o familyOptions) defaultTTL() string {
	if o.DefaultTTL == 0 {
		return "none"
	}
	return showDuration(o.DefaultTTL)
}
