package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
	"github.com/ebbkv/ebb/wal"
)

func walCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "wal STORE",
		Short: "List the segments and commits of the log",
		Long: `Wal lists what is in the log beside the main file, without opening the store: the
segments, then each commit with its position (LSN) and size, from where the newest meta page says
that replay begins. After a clean close there is no log. Damage is named with its place, and the
exit code is 1; a torn end, such as a crash leaves, is none.`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.listLog(cmd.Context(), args[0]); err != nil {
				return fmt.Errorf("wal: %w", err)
			}
			return nil
		},
	}
}

// listLog holds the shared lock of the store while it reads.
func (a *app) listLog(ctx context.Context, path string) (err error) {
	path = vfs.Follow(path)
	pgr, metas, err := openPager(ctx, path, a.wait)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pgr.Close()) }()
	meta := newestMeta(metas)
	found, err := wal.Scan(
		wal.Options{FS: vfs.OS, Path: path, StoreID: meta.StoreID, SegmentSize: meta.SegmentSize},
	)
	if err != nil {
		return err
	}
	if err := a.printSegments(meta, found); err != nil {
		return err
	}
	if len(found.Segments()) == 0 && meta.Clean {
		return nil // the meta page needs no log
	}
	start := wal.LSN(meta.LogStart)
	if err := found.Chain(start); err != nil {
		return unopened(err, true)
	}
	if !a.json {
		fmt.Fprintf(a.out, "%20s %12s\n", "commit at LSN", "bytes")
	}
	n := 0 // bytes of the commit so far
	tail, err := found.Replay(start, wal.LSN(meta.LogDurable), func(p wal.Part) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.First {
			n = 0
		}
		if n += len(p.Payload); !p.Last {
			return nil
		}
		if a.json {
			return a.printJSON(map[string]any{"type": "commit", "lsn": uint64(p.Commit), "bytes": n})
		}
		_, err := fmt.Fprintf(a.out, "%20d %12d\n", uint64(p.Commit), n)
		return err
	})
	if err != nil {
		return unopened(err, true)
	}
	if a.json {
		return a.printJSON(
			map[string]any{
				"type":       "end",
				"lsn":        uint64(tail.End),
				"commits":    tail.Commits,
				"torn_bytes": tail.Dropped,
			},
		)
	}
	fmt.Fprintf(a.out, "%s, the log ends at LSN %d", plural(tail.Commits, "commit"), uint64(tail.End))
	if tail.Dropped > 0 {
		fmt.Fprintf(a.out, " with a torn tail of %s", size(tail.Dropped))
	}
	_, err = fmt.Fprintln(a.out)
	return err
}

func (a *app) printSegments(meta *pager.Meta, found *wal.ScanResult) error {
	if a.json {
		for _, s := range found.Segments() {
			if err := a.printJSON(map[string]any{
				"type": "segment", "number": s.Number, "file": s.File,
				"salt": fmt.Sprintf("%016x", s.Salt), "follows": s.Follows,
			}); err != nil {
				return err
			}
		}
		for _, name := range found.Foreign() {
			if err := a.printJSON(map[string]any{"type": "stranger", "file": name}); err != nil {
				return err
			}
		}
		for _, s := range found.OfOtherStores() {
			if err := a.printJSON(map[string]any{
				"type": "foreign", "file": s.File, "store": fmt.Sprintf("%x", s.StoreID),
			}); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Fprintf(
		a.out,
		"replay begins at LSN %d; segments of %s, written after checkpoint %d (meta page %d, clean: %t)\n",
		meta.LogStart,
		size(meta.SegmentSize),
		meta.Epoch,
		meta.Slot,
		meta.Clean,
	)
	rows := []string{"segment\tsalt\tfollows checkpoint\tfile"}
	for _, s := range found.Segments() {
		rows = append(rows, fmt.Sprintf("%d\t%016x\t%d\t%s", s.Number, s.Salt, s.Follows, s.File))
	}
	if len(rows) == 1 {
		rows = []string{"no segments"}
	}
	for _, name := range found.Foreign() {
		rows = append(rows, fmt.Sprintf("-\t-\t-\t%s (no segment of this store, or damaged)", name))
	}
	for _, s := range found.OfOtherStores() {
		rows = append(rows, fmt.Sprintf("-\t-\t-\t%s (a segment of another store, %x)", s.File, s.StoreID))
	}
	return table(a.out, rows...)
}
