package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

func delCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "del STORE KEY...",
		Short: "Delete keys in one transaction; code 2 if one of them was not there",
		Long: `Del deletes keys in one durable transaction. Keys that are not there, or have expired, are no
obstacle: the others are deleted all the same, and the exit code is 2. A key that begins with a dash
goes behind --.`,
		Args: args(2, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var keys [][]byte // each once: after its first turn it would be absent
			seen := map[string]bool{}
			for _, arg := range args[1:] {
				key, err := a.key(arg)
				if err != nil {
					return err
				}
				if !seen[string(key)] {
					seen[string(key)] = true
					keys = append(keys, key)
				}
			}
			deleted := 0
			err := a.update(cmd, args[0], true, func(tx *kv.Tx) error {
				cf := tx.CF(a.family)
				for _, key := range keys {
					there, err := cf.Has(key)
					if err != nil {
						return err
					}
					if there {
						deleted++
					}
					// What is not there may be expired and still stored; then it goes now.
					if err := cf.Delete(key); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("del: %w", err)
			}
			if a.json {
				o := map[string]any{"family": a.family, "deleted": deleted, "absent": len(keys) - deleted}
				if err := a.printJSON(o); err != nil {
					return err
				}
			}
			if deleted < len(keys) {
				return fmt.Errorf("del: %d deleted, %d absent: %w", deleted, len(keys)-deleted,
					kv.ErrNotFound)
			}
			return nil
		},
	}
}
