package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/internal/live"
	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

func statsCommand(a *app) *cobra.Command {
	now := false
	cmd := &cobra.Command{
		Use:   "stats STORE",
		Short: "Print sizes, counts and families, and what opening the store found",
		Long: `Stats opens the store and prints its numbers: sizes, counts, families, and what opening it
found.

With --live it looks at a store that another process has open, without a lock and without its help:
the last checkpoint, the commit that it ends with, the space in use and free, the log since, and
which process has the store open. There are no counts of rows then.`,
		Example: `  ebb stats my.ebb --json
  ebb stats my.ebb --live`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if now {
				return a.liveStats(args[0])
			}
			db, err := a.openToRead(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			stats, recovery := db.Stats(), db.RecoveryInfo()
			names := slices.Sorted(maps.Keys(stats.Families))
			next, unread := nextExpiries(db, names)
			settings := settingsOf(db, names)
			if err := db.Close(); err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(
					map[string]any{"stats": stats, "recovery": recovery, "next_expiry": next,
						"settings": settings},
				)
			} else {
				err = a.printStats(stats, recovery, next, settings)
			}
			return errors.Join(err, unread)
		},
	}
	cmd.Flags().BoolVar(&now, "live", false, "look at a store that another process has open, without a lock")
	return cmd
}

// liveStats prints what can be told of a store without opening it.
func (a *app) liveStats(path string) error {
	s, err := live.Look(vfs.OS, vfs.Follow(path))
	if err != nil {
		return unopened(openfs.OpenError(path, err), true)
	}
	if a.json {
		return a.printJSON(s)
	}
	return a.printNumbers("", *s)
}

func (a *app) printStats(
	stats kv.Stats,
	recovery kv.RecoveryInfo,
	next map[string]string,
	settings map[string]familyOptions,
) error {
	if err := a.printNumbers("", stats); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	if err := a.printNumbers("recovery ", recovery); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	if err := a.printFamilies(a.out, reflect.ValueOf(stats.Families), next, settings); err != nil {
		return err
	}
	return a.printPartitions(stats, slices.Sorted(maps.Keys(stats.Partitions)))
}

// printNumbers prints the fields of a struct of plain numbers under their JSON names, in their
// order, so that a number that the library gains shows up here by itself. Maps are left out.
func (a *app) printNumbers(title string, numbers any) error {
	v := reflect.ValueOf(numbers)
	var rows []string
	for i, field := range reflect.VisibleFields(v.Type()) {
		if field.Type.Kind() == reflect.Map {
			continue
		}
		rows = append(rows, fmt.Sprintf("%s%s\t%s", title, jsonName(field), number(field.Name, v.Field(i))))
	}
	return table(a.out, rows...)
}

// unreadable is printed where an instant belongs that could not be read.
const unreadable = "unreadable"

// nextExpiries gives the earliest expiry of each family that has one. What cannot be read is told
// by the error, and marked.
func nextExpiries(db *kv.DB, families []string) (next map[string]string, unread error) {
	next = map[string]string{}
	for _, family := range families {
		at, ok, err := db.CF(family).NextExpiry()
		switch {
		case err != nil:
			next[family] = unreadable
			unread = errors.Join(unread, fmt.Errorf("next expiry of family %q: %w", family, err))
		case ok:
			next[family] = showInstant(at)
		}
	}
	return next, unread
}

// settingsOf gives the options of each family. One that cannot be read is missing.
func settingsOf(db *kv.DB, families []string) map[string]familyOptions {
	settings := map[string]familyOptions{}
	for _, family := range families {
		if o, err := db.CFOptions(family); err == nil {
			settings[family] = familyOptions(o)
		}
	}
	return settings
}

// printFamilies prints one row for each family, one column for each number that is known of it, its
// next expiry, and its default ttl.
func (a *app) printFamilies(
	w io.Writer,
	families reflect.Value,
	next map[string]string,
	settings map[string]familyOptions,
) error {
	byName := map[string]reflect.Value{}
	for iter := families.MapRange(); iter.Next(); {
		byName[iter.Key().String()] = iter.Value()
	}
	fields := reflect.VisibleFields(families.Type().Elem())
	head := []string{"family"}
	for _, field := range fields {
		head = append(head, jsonName(field))
	}
	head = append(head, "next_expiry", "default_ttl")
	rows := []string{strings.Join(head, "\t")}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		row := []string{a.show([]byte(name))}
		for i, field := range fields {
			row = append(row, number(field.Name, byName[name].Field(i)))
		}
		at := next[name]
		if at == "" {
			at = "none"
		}
		row = append(row, at, settings[name].defaultTTL())
		rows = append(rows, strings.Join(row, "\t"))
	}
	return table(w, rows...)
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" {
		return f.Name
	}
	return strings.TrimSuffix(name, "_ns") // text shows a duration with its unit
}

// number formats the field of a struct; numbers of bytes are given in a larger unit too.
func number(field string, v reflect.Value) string {
	if d, ok := v.Interface().(time.Duration); ok {
		return d.String()
	}
	var n int64
	switch {
	case v.CanInt():
		n = v.Int()
	case v.CanUint():
		n = int64(v.Uint())
	default:
		return fmt.Sprint(v.Interface())
	}
	if (strings.HasSuffix(field, "Bytes") || strings.HasPrefix(field, "Bytes")) && n >= 1024 {
		return fmt.Sprintf("%d (%s)", n, size(n))
	}
	return fmt.Sprint(v.Interface())
}
