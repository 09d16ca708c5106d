package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

func putCommand(a *app) *cobra.Command {
	var o putFlags
	cmd := &cobra.Command{
		Use:   "put STORE KEY VALUE|-|@FILE",
		Short: "Store a key; creates the store and the family if they are absent",
		Long: `Put stores a key in one durable transaction. It creates the store and the family if they
are absent.

The value is the argument itself, standard input for -, or the content of FILE for @FILE. A value
that begins with @ is written with @@; one that begins with a dash goes behind --.

Without a flag the key becomes permanent, also if it had an expiry before, or gets the default ttl
of its family. --if-absent and --if-present write only if the key is not there, or is; if not,
nothing changes and the exit code is 3 for a key that is there, 2 for one that is not. An expired
key is not there.`,
		Example: `  ebb put my.ebb greeting hello
  date | ebb put my.ebb now -
  ebb put my.ebb --family photos cat.jpg @cat.jpg
  ebb put my.ebb session:17 '{"user":"ada"}' --ttl 30m
  ebb put my.ebb lease me --ttl 10s --if-absent`,
		Args: args(3, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			with, err := o.options(cmd)
			if err != nil {
				return err
			}
			return a.put(cmd, args[0], args[1], args[2], with)
		},
	}
	o.add(cmd)
	a.addCreation(cmd)
	return cmd
}

// put stores the key and value that the arguments stand for, and prints what it has stored with
// --json.
func (a *app) put(cmd *cobra.Command, store, keyArg, valueArg string, o kv.PutOptions) error {
	key, err := a.key(keyArg)
	if err != nil {
		return err
	}
	value, err := a.value(cmd.Context(), valueArg)
	if err != nil {
		return err
	}
	var l life
	err = a.update(cmd, store, false, func(tx *kv.Tx) error {
		if err := a.ensureFamily(tx); err != nil {
			return err
		}
		written, err := tx.CF(a.family).PutWith(key, value, o)
		switch {
		case err != nil:
			return err
		case !written && o.IfAbsent:
			return errExists
		case !written:
			return kv.ErrNotFound
		}
		l, err = lifeOf(tx.CF(a.family), key)
		return err
	})
	if err != nil {
		return fmt.Errorf("put: %w", err)
	}
	if !a.json {
		return nil
	}
	row := map[string]any{"family": a.family, "size": len(value)}
	a.setBytes(row, "key", key)
	if l.ends() {
		l.set(row)
	}
	return a.printJSON(row)
}

// putFlags are the flags of put that say how long the key lives, and on what condition it is
// written.
type putFlags struct {
	o  kv.PutOptions
	at instant
}

func (p *putFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	durationVar(f, &p.o.TTL, "ttl", 0, "the key lives this long from now on, as 90s, 36h or 7d")
	f.Var(&p.at, "expire-at", "the key is gone at this time")
	f.BoolVar(&p.o.KeepTTL, "keep-ttl", false, "keep the expiry of a key that is there")
	f.BoolVar(&p.o.NoExpiry, "no-expiry", false, "the key is permanent, whatever the family's default ttl")
	f.BoolVar(&p.o.IfAbsent, "if-absent", false, "only if the key is not there")
	f.BoolVar(&p.o.IfPresent, "if-present", false, "only if the key is there")
}

// options refuses what contradicts itself before a store is opened, or created.
func (p *putFlags) options(cmd *cobra.Command) (kv.PutOptions, error) {
	for _, flags := range [][]string{
		{"ttl", "expire-at", "keep-ttl", "no-expiry"}, {"if-absent", "if-present"}, {"if-absent", "keep-ttl"},
	} {
		if err := exclusive(cmd, flags...); err != nil {
			return kv.PutOptions{}, err
		}
	}
	if cmd.Flags().Changed("ttl") && p.o.TTL <= 0 { // To the library 0 means no ttl.
		return kv.PutOptions{}, fmt.Errorf("put: --ttl %v: %w", p.o.TTL, kv.ErrInvalidTTL)
	}
	o := p.o
	o.ExpireAt = p.at.Time
	return o, nil
}

// ensureFamily creates the family that --family names if it is absent.
func (a *app) ensureFamily(tx *kv.Tx) error {
	if a.family == defaultFamily {
		return nil
	}
	return tx.EnsureCF(a.family, kv.CFOptions{})
}

// value gives the bytes that a value argument stands for. It reads no more than one byte past the
// largest value that a store takes, which the store then refuses.
func (a *app) value(ctx context.Context, arg string) ([]byte, error) {
	switch {
	case arg == "-":
		return unlessEnded(ctx, func() ([]byte, error) { return readValue(a.stdin, 0) })
	case strings.HasPrefix(arg, "@@"):
		return []byte(arg[1:]), nil
	case strings.HasPrefix(arg, "@"):
		return unlessEnded(ctx, func() ([]byte, error) {
			f, err := os.Open(arg[1:])
			if err != nil {
				return nil, fmt.Errorf("value: %v", err) // not wrapped: a hint about the store would mislead
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				return nil, fmt.Errorf("value: %v", err)
			}
			return readValue(f, info.Size())
		})
	}
	return []byte(arg), nil
}

// unlessEnded gives what read gives, or the error of ctx if that ends before. A read of a
// terminal or a pipe blocks until there is input, and only the end of the process ends it: read
// then goes on in its goroutine.
func unlessEnded(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	var value []byte
	done := make(chan error, 1)
	go func() {
		var err error
		value, err = read()
		done <- err
	}()
	select {
	case err := <-done:
		return value, err
	case <-ctx.Done():
		return nil, fmt.Errorf("read the value: %w", ctx.Err())
	}
}

// readValue reads all of r. expected is how much that is, if it is known: a slice that grows takes
// more than twice as much.
func readValue(r io.Reader, expected int64) ([]byte, error) {
	value := bytes.NewBuffer(make([]byte, 0, min(max(expected, 0), kv.MaxValueSize)+bytes.MinRead))
	if _, err := value.ReadFrom(io.LimitReader(r, kv.MaxValueSize+1)); err != nil {
		return nil, fmt.Errorf("read the value: %w", err)
	}
	return value.Bytes(), nil
}
