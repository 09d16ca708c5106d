package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

func countCommand(a *app) *cobra.Command {
	var prefix, from, to string
	var live bool
	cmd := &cobra.Command{
		Use:   "count STORE",
		Short: "Count the rows of a family, or of a range of it, without reading them",
		Long: `Count prints the number of rows that are stored in a family, expired ones that are not deleted
yet included. It takes as long for a million rows as for one: the pages above the rows know how many
are below. --live leaves expired rows out; it counts the whole family.`,
		Example: `  ebb count my.ebb --family sessions --live
  ebb count my.ebb --prefix order:2030-
  ebb count my.ebb --from a --to n`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, other := range []string{"prefix", "from", "to"} {
				if err := exclusive(cmd, "live", other); err != nil {
					return err
				}
				if other != "prefix" {
					if err := exclusive(cmd, "prefix", other); err != nil {
						return err
					}
				}
			}
			var bounds [2][]byte
			for i, arg := range []string{from, to} {
				var err error
				if bounds[i], err = a.key(arg); err != nil {
					return err
				}
			}
			if prefix != "" {
				p, err := a.key(prefix)
				if err != nil {
					return err
				}
				bounds = [2][]byte{p, behind(p)}
			}
			var n int64
			err := a.view(cmd.Context(), args[0], func(tx *kv.Tx) (err error) {
				switch f := tx.CF(a.family); {
				case live:
					n, err = f.CountLive()
				case bounds[0] == nil && bounds[1] == nil: // of a time-partitioned family, too
					n, err = f.Count()
				default:
					n, err = f.CountRange(bounds[0], bounds[1])
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("count: %w", err)
			}
			if a.json {
				return a.printJSON(map[string]any{"family": a.family, "rows": n})
			}
			_, err = fmt.Fprintln(a.out, n)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&prefix, "prefix", "", "only keys that begin with this")
	f.StringVar(&from, "from", "", "only keys >= this")
	f.StringVar(&to, "to", "", "only keys < this")
	f.BoolVar(&live, "live", false, "leave out expired rows")
	return cmd
}

// behind is the first key behind those that begin with p; nil if there is none.
func behind(p []byte) []byte {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] < 0xff {
			return append(p[:i:i], p[i]+1)
		}
	}
	return nil
}
