package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/internal/openfs"
	"github.com/ebbkv/ebb/internal/salvage"
	"github.com/ebbkv/ebb/internal/vfs"
	"github.com/ebbkv/ebb/pager"
)

func salvageCommand(a *app) *cobra.Command {
	o := salvage.Options{FS: vfs.OS}
	cmd := &cobra.Command{
		Use:   "salvage STORE OUT",
		Short: "Make a new store of the rows that a damaged one still has",
		Long: `Salvage reads the pages of a store that is damaged, also of one that cannot be opened,
and makes the new store OUT of all rows that were in a committed state. It never writes to the
damaged store: keep its files. A damaged leaf loses its own rows only; damaged branches, free maps
and meta pages lose none. Expiries, settings and sequences are kept. A family whose name is lost
becomes tree-17.

It then tells for each family how many rows were saved, which ranges of keys are missing rows, how
many, and why. The exit code is 1 if anything is missing.

Rows whose family is unknown are saved in families lost+found-1, lost+found-2 ... With --stale those
of pages are too of which nothing says that they are in use: rows that were deleted, or never
committed, may be among them, and rows of Ebb's own trees.

With --log the commits behind the last checkpoint are applied too, up to damage in the log.`,
		Example: `  ebb salvage damaged.ebb rescued.ebb --log
  ebb salvage damaged.ebb rescued.ebb --log --stale --json`,
		Args: args(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := a.salvage(cmd.Context(), args[0], args[1], o)
			if err != nil {
				return fmt.Errorf("salvage: %w", err)
			}
			if err := printSalvage(a, args[0], args[1], report); err != nil {
				return err
			}
			if !report.Whole {
				return errSaid
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Log, "log", false, "also apply the commits of the log")
	f.BoolVar(&o.Stale, "stale", false, "also save rows of pages of which nothing says that they are in use")
	f.BoolVar(&o.NoLock, "no-lock", false, "do not lock the damaged store: its file system has no locks")
	return cmd
}

// salvage waits for a process that has the damaged store open, as long as --wait says.
func (a *app) salvage(ctx context.Context, from, to string, o salvage.Options) (*salvage.Report, error) {
	from, to = vfs.Follow(from), vfs.Follow(to)
	var p *progress
	before := int64(0)
	o.Progress = func(done, total int64) {
		if before == 0 {
			p = a.newProgress("salvage", total, true)
		}
		if done-before >= 1<<20 || done == total {
			p.add(done - before)
			before = done
		}
	}
	defer func() { p.end() }()
	for began := time.Now(); ; {
		report, err := salvage.Run(ctx, from, to, o)
		switch {
		case errors.Is(err, vfs.ErrLocked) && time.Since(began) < a.wait && ctx.Err() == nil:
			time.Sleep(10 * time.Millisecond)
			continue
		case err == nil || errors.Is(err, fs.ErrExist):
			return report, err
		case report == nil:
			return nil, openfs.OpenError(from, err)
		case pager.NoSpace(err):
			return report, openfs.OpenError(to, err)
		}
		return report, err
	}
}

func printSalvage(a *app, from, to string, r *salvage.Report) error {
	if a.json {
		return printSalvageJSON(a, from, to, r)
	}
	fmt.Fprintf(a.out, "%s: checkpoint %d, %d of 2 meta pages, pages of %d bytes\n",
		from, r.Checkpoint, r.MetaPages, r.PageSize)
	rows := []string{"family\trows saved\trows missing"}
	for _, f := range r.Families {
		rows = append(rows, fmt.Sprintf("%s\t%d\t%d", a.show([]byte(f.Name)), f.Saved, f.Missing))
	}
	if err := table(a.out, rows...); err != nil {
		return err
	}
	for _, f := range r.Families {
		if f.Older != 0 {
			fmt.Fprintf(a.out, "family %s: as of the older checkpoint %d, its newest root is lost\n",
				a.show([]byte(f.Name)), f.Older)
		}
		for _, g := range f.Gaps {
			fmt.Fprintf(a.out, "missing: family %s: %s\n", a.show([]byte(f.Name)),
				printable(gapText(a, g), ""))
		}
		if f.More > 0 {
			fmt.Fprintf(a.out, "missing: family %s: and %s\n", a.show([]byte(f.Name)),
				plural(f.More, "more range"))
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(a.out, "lost: %s\n", printable(note, ""))
	}
	printUnknown(a, r)
	verdict := "nothing is missing"
	if !r.Whole {
		verdict = "not everything could be saved"
	}
	_, err := fmt.Fprintf(a.out, "%s: %s\n", to, verdict)
	return err
}

func printUnknown(a *app, r *salvage.Report) {
	if r.LostFound > 0 {
		fmt.Fprintf(a.out, "%s whose family is unknown, in families lost+found-N\n",
			plural(r.LostFound, "row"))
	}
	if r.UnknownRows > 0 {
		fmt.Fprintf(a.out, "%s on pages in use of unknown trees, perhaps Ebb's own: see --stale\n",
			plural(r.UnknownRows, "row"))
	}
	if r.StaleRows > 0 {
		fmt.Fprintf(a.out, "%s on pages of which nothing says that they are in use: see --stale\n",
			plural(r.StaleRows, "row"))
	}
	switch l := r.Log; {
	case l.Taken && l.Commits > 0:
		fmt.Fprintf(a.out, "log: %s applied\n", plural(l.Commits, "commit"))
	case l.Commits > 0:
		fmt.Fprintf(a.out, "log: %s not applied, see --log\n", plural(l.Commits, "commit"))
	}
	if r.Log.Why != "" {
		fmt.Fprintf(a.out, "log: %s\n", printable(r.Log.Why, ""))
	}
}

// gapText puts a gap on one line.
func gapText(a *app, g salvage.Gap) string {
	if g.Key != nil {
		return fmt.Sprintf("the row of %s: %s", a.show(g.Key), g.Why)
	}
	text := plural(g.Rows, "row")
	if g.Lower != nil {
		text += " from " + a.show(g.Lower)
	}
	if g.Upper != nil {
		text += " up to " + a.show(g.Upper)
	}
	return text + ": " + g.Why
}

func printSalvageJSON(a *app, from, to string, r *salvage.Report) error {
	type family struct {
		salvage.Family
		Gaps []map[string]any `json:"gaps"`
	}
	families := []family{}
	for _, f := range r.Families {
		gaps := []map[string]any{}
		for _, g := range f.Gaps {
			object := map[string]any{"rows": g.Rows, "page": g.Page, "why": g.Why}
			for name, key := range map[string][]byte{"from": g.Lower, "to": g.Upper, "key": g.Key} {
				if key != nil {
					a.setBytes(object, name, key)
				}
			}
			gaps = append(gaps, object)
		}
		families = append(families, family{f, gaps})
	}
	return a.printJSON(struct {
		Store string `json:"store"`
		Out   string `json:"out"`
		*salvage.Report
		Families []family `json:"families"`
	}{from, to, r, families})
}
