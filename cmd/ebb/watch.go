package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

func watchCommand(a *app) *cobra.Command {
	every, changes := time.Second, 0
	cmd := &cobra.Command{
		Use:   "watch STORE KEY",
		Short: "Print a row when it begins, and each time it changes",
		Long: `Watch opens the store now and then, reads one key, and prints its row as scan does when it has
changed: key, tab, value, and the expiry behind another tab. A key that is not there, or is not any
longer, is printed without a value. Changes between two looks are seen as one. Between the looks the
store is free for other processes; while one of them has it open to write, watch waits.

It ends with an interrupt, or after --changes changes.`,
		Example: `  ebb watch my.ebb lease
  ebb watch my.ebb visits --every 10s --changes 1`,
		Args: args(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case every <= 0:
				return usageError{cmd, errors.New("--every is not positive")}
			case changes < 0:
				return usageError{cmd, errors.New("--changes is negative")}
			}
			key, err := a.key(args[1])
			if err != nil {
				return err
			}
			if err := a.watch(cmd.Context(), args[0], key, every, changes); err != nil {
				return fmt.Errorf("watch: %w", err)
			}
			return nil
		},
	}
	durationVar(cmd.Flags(), &every, "every", every, "look this often")
	cmd.Flags().IntVar(&changes, "changes", 0, "end after this many changes; 0: no limit")
	return cmd
}

// watch prints the row of key, and again when it has changed. changes 0 is no limit.
func (a *app) watch(ctx context.Context, store string, key []byte, every time.Duration, changes int) error {
	turn := time.NewTicker(every)
	defer turn.Stop()
	var last row
	for seen := -1; ; {
		now, err := a.look(ctx, store, key)
		switch {
		case errors.Is(err, kv.ErrLocked): // The next look may find it free.
		case err != nil:
			return err
		case seen < 0 || !last.same(now):
			seen, last = seen+1, now
			if err := errors.Join(a.printRow(now), a.out.Flush()); err != nil {
				return err
			}
		}
		if changes > 0 && seen >= changes {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-turn.C:
		}
	}
}

// look reads the row of a key; without a value if it is not there.
func (a *app) look(ctx context.Context, store string, key []byte) (row, error) {
	r := row{key: key, keysOnly: true}
	err := a.view(ctx, store, func(tx *kv.Tx) error {
		value, err := tx.CF(a.family).Get(key)
		if errors.Is(err, kv.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		r.value, r.keysOnly = bytes.Clone(value), false
		l, err := lifeOf(tx.CF(a.family), key)
		r.at = l.at
		return err
	})
	return r, err
}

// same says whether two rows of one key print alike.
func (r row) same(other row) bool {
	return r.keysOnly == other.keysOnly && bytes.Equal(r.value, other.value) && r.at.Equal(other.at)
}
