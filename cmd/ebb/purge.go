package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

func purgeCommand(a *app) *cobra.Command {
	var o kv.PurgeOptions
	cmd := &cobra.Command{
		Use:   "purge STORE",
		Short: "Delete the keys that have expired, in batches",
		Long: `Purge deletes the expired keys of all families, or of the one that --family names, in
batches: one durable transaction each. What was purged before an interrupt stays so. Expired keys
are hidden from every reader anyway; purging gives their space back.`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.Limit < 0:
				return usageError{cmd, errors.New("--limit is negative")}
			case o.Batch < 0:
				return usageError{cmd, errors.New("--batch is negative")}
			}
			db, err := a.openToWrite(cmd.Context(), args[0], true)
			if err != nil {
				return err
			}
			family := ""
			if cmd.Flags().Changed("family") {
				family = a.family
			}
			return errors.Join(a.purge(cmd.Context(), db, family, o), a.closeWritten(db, false))
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Limit, "limit", 0, "at most so many keys; 0: all that are due")
	f.IntVar(&o.Batch, "batch", 0, "keys of one transaction; 0: 256")
	f.BoolVar(&o.Force, "force", false, "also if the clock has jumped forward")
	return cmd
}

// purgeSummary is what purge answers.
type purgeSummary struct {
	kv.PurgeResult
	BytesReclaimed int64 `json:"bytes_reclaimed"` // keys and values
}

// purge deletes what is due in the family, "" meaning all of them. The answer is printed also if an
// error ended it.
func (a *app) purge(ctx context.Context, db *kv.DB, family string, o kv.PurgeOptions) error {
	total := due(db, family)
	if o.Limit > 0 {
		total = min(total, int64(o.Limit))
	}
	p := a.newProgress("purge", total, false)
	last := int64(0)
	o.Progress = func(done int64) {
		p.add(done - last)
		last = done
	}
	var s purgeSummary
	var err error
	if family == "" {
		s.PurgeResult, err = db.PurgeExpired(ctx, o)
	} else {
		s.PurgeResult, err = db.CF(family).PurgeExpired(ctx, o)
	}
	p.end()
	for _, f := range db.Stats().Families {
		s.BytesReclaimed += f.BytesReclaimed
	}
	if err != nil {
		err = fmt.Errorf("purge: %w", err)
		if s.Purged == 0 {
			return err
		}
	}
	return errors.Join(err, a.printPurge(s))
}

// due counts the expired keys of the family, "" meaning all of them.
func due(db *kv.DB, family string) (keys int64) {
	for name, f := range db.Stats().Families {
		if family == "" || family == name {
			keys += f.Due
		}
	}
	return keys
}

func (a *app) printPurge(s purgeSummary) error {
	if a.json {
		return a.printJSON(s)
	}
	more := ""
	if s.More {
		more = "; more are due"
	}
	_, err := fmt.Fprintf(
		a.out,
		"%s purged in %s, %s%s\n",
		plural(s.Purged, "key"),
		plural(s.Batches, "batch"),
		size(s.BytesReclaimed),
		more,
	)
	return err
}
