package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/kv"
)

func compactCommand(a *app) *cobra.Command {
	fill := false
	cmd := &cobra.Command{
		Use:   "compact STORE",
		Short: "Make the file shorter: move its pages down and cut off the free end",
		Long: `Compact moves pages from the end of the file to free space before them, and gives the
free end back to the file system. With --fill it first joins neighbouring pages whose rows fit into
fewer, which deletes have left half empty. The rows do not change. An interrupt leaves a store that is
partly compacted; the answer says how far, the exit code is 1, and another run goes on from there.

A program that has the store open compacts it itself: see Compact of package kv. For a copy with full
pages, as small as can be, use: ebb dump --json STORE | ebb load NEW.`,
		Example: `  ebb compact my.ebb
  ebb compact my.ebb --fill --json --progress=lines`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.compact(cmd.Context(), args[0], fill)
			if err != nil {
				err = fmt.Errorf("compact: %w", err)
				if r.MovedBytes+r.SavedBytes == 0 {
					return err
				}
			}
			return errors.Join(err, printCompact(a, args[0], r))
		},
	}
	cmd.Flags().BoolVar(&fill, "fill", false, "join neighbouring pages whose rows fit into fewer")
	return cmd
}

// compact compacts a store. The result is also that of a call that an error ended.
func (a *app) compact(ctx context.Context, store string, fill bool) (r kv.CompactResult, err error) {
	db, err := a.openToWrite(ctx, store, true)
	if err != nil {
		return r, err
	}
	var p *progress
	last := int64(0)
	err = db.Compact(ctx, kv.CompactOptions{Fill: fill, Result: &r, Progress: func(done, total int64) {
		if last == 0 {
			p = a.newProgress("compact", total, true)
		}
		p.add(done - last)
		last = done
	}})
	p.end()
	err = errors.Join(err, a.closeWritten(db, err != nil))
	if info, statErr := os.Stat(vfs.Follow(store)); statErr == nil { // Close has cut the file exactly
		r.BytesAfter = info.Size()
	}
	return r, err
}

func printCompact(a *app, store string, r kv.CompactResult) error {
	if a.json {
		return a.printJSON(struct {
			Store string `json:"store"`
			kv.CompactResult
		}{store, r})
	}
	saved := ""
	if r.SavedBytes > 0 {
		saved = fmt.Sprintf(", %s saved", size(r.SavedBytes))
	}
	_, err := fmt.Fprintf(a.out, "%s: %s, was %s; %s moved%s\n",
		store, size(r.BytesAfter), size(r.BytesBefore), size(r.MovedBytes), saved)
	if err == nil && r.LimitedBy != "" {
		_, err = fmt.Fprintf(a.out, "limited by %s\n", r.LimitedBy)
	}
	return err
}
