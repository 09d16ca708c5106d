package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

// errDiffers is what cas says of a key whose value is another one.
var errDiffers = errors.New("the key has another value")

func incrCommand(a *app) *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "incr STORE KEY [DELTA]",
		Short: "Add to a counter and print the sum; creates the counter if it is absent",
		Long: `Incr adds DELTA, 1 if it is not given, to a counter, and prints the sum. A counter is a value
of 8 bytes, big-endian, as DB.Increment of the library keeps it. One that is absent counts as 0: it
is created, with the family and the store, and lives for --ttl, or as put would have it. One that is
there keeps its expiry. A negative DELTA goes behind --.`,
		Example: `  ebb incr my.ebb visits
  ebb incr my.ebb calls:ada --ttl 1m
  ebb incr my.ebb stock -- -3`,
		Args: args(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := a.key(args[1])
			if err != nil {
				return err
			}
			delta := int64(1)
			if len(args) == 3 {
				if delta, err = strconv.ParseInt(args[2], 10, 64); err != nil {
					return usageError{cmd, fmt.Errorf("%q is no whole number of 64 bits", args[2])}
				}
			}
			if cmd.Flags().Changed("ttl") && ttl <= 0 { // To the library 0 means no ttl.
				return fmt.Errorf("incr: --ttl %v: %w", ttl, kv.ErrInvalidTTL)
			}
			var sum int64
			var l life
			err = a.update(cmd, args[0], false, func(tx *kv.Tx) error {
				if err := a.ensureFamily(tx); err != nil {
					return err
				}
				if sum, err = tx.CF(a.family).Increment(key, delta, ttl); err != nil {
					return err
				}
				l, err = lifeOf(tx.CF(a.family), key)
				return err
			})
			if err != nil {
				return fmt.Errorf("incr: %w", err)
			}
			if !a.json {
				_, err = fmt.Fprintln(a.out, sum)
				return err
			}
			object := map[string]any{"family": a.family, "sum": sum}
			a.setBytes(object, "key", key)
			if l.ends() {
				l.set(object)
			}
			return a.printJSON(object)
		},
	}
	durationVar(cmd.Flags(), &ttl, "ttl", 0, "a new counter lives this long, as 90s, 36h or 7d")
	a.addCreation(cmd)
	return cmd
}

func casCommand(a *app) *cobra.Command {
	var o kv.PutOptions
	cmd := &cobra.Command{
		Use:   "cas STORE KEY OLD NEW",
		Short: "Store a new value if the key has the old one; code 3 if it has another",
		Long: `Cas, compare and swap, stores NEW if the value of the key is OLD. If it is another one nothing
changes and the exit code is 3; if the key is not there, 2. OLD and NEW are given as put takes a
value: @FILE is the content of a file, and one of the two may be - for standard input.

Without a flag the key becomes permanent or gets the default ttl of its family. To store a key that
must be absent, use put --if-absent.`,
		Example: `  ebb cas my.ebb lease me you --ttl 10s
  ebb cas my.ebb config @old.json @new.json --keep-ttl`,
		Args: args(4, 4),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := exclusive(cmd, "ttl", "keep-ttl"); err != nil {
				return err
			}
			if cmd.Flags().Changed("ttl") && o.TTL <= 0 {
				return fmt.Errorf("cas: --ttl %v: %w", o.TTL, kv.ErrInvalidTTL)
			}
			if args[2] == "-" && args[3] == "-" {
				return usageError{cmd, errors.New("OLD and NEW are both standard input")}
			}
			key, err := a.key(args[1])
			if err != nil {
				return err
			}
			var values [2][]byte
			for i := range values {
				if values[i], err = a.value(cmd.Context(), args[2+i]); err != nil {
					return err
				}
			}
			return a.swap(cmd, args[0], key, values[0], values[1], o)
		},
	}
	durationVar(cmd.Flags(), &o.TTL, "ttl", 0, "the key lives this long from now on, as 90s, 36h or 7d")
	cmd.Flags().BoolVar(&o.KeepTTL, "keep-ttl", false, "keep the expiry of the key")
	return cmd
}

func (a *app) swap(cmd *cobra.Command, store string, key, old, new []byte, o kv.PutOptions) error {
	var l life
	err := a.update(cmd, store, true, func(tx *kv.Tx) error {
		f := tx.CF(a.family)
		if old == nil {
			old = []byte{} // nil is an absent key
		}
		swapped, err := f.CompareAndSwap(key, old, new, o)
		if err != nil {
			return err
		}
		if !swapped {
			if there, err := f.Has(key); err != nil || !there {
				return errors.Join(err, kv.ErrNotFound)
			}
			return errDiffers
		}
		l, err = lifeOf(f, key)
		return err
	})
	if err != nil {
		return fmt.Errorf("cas: %w", err)
	}
	if !a.json {
		return nil
	}
	object := map[string]any{"family": a.family, "size": len(new)}
	a.setBytes(object, "key", key)
	if l.ends() {
		l.set(object)
	}
	return a.printJSON(object)
}
