package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ebbkv/ebb/kv"
)

// Commands on time-partitioned families.

// pastInstant is a flag or argument whose value is any time, "now", or a duration before now.
type pastInstant struct {
	text string
}

// Set keeps the text: it is resolved against the clock of the command.
func (p *pastInstant) Set(s string) error {
	p.text = s
	_, err := p.at(time.Unix(0, 0))
	return err
}

func (p *pastInstant) String() string { return p.text }

// Type is the name of the value in the help.
func (p *pastInstant) Type() string { return "time" }

// at returns the instant; the zero Time if the flag is not set.
func (p *pastInstant) at(now time.Time) (time.Time, error) {
	switch {
	case p.text == "":
		return time.Time{}, nil
	case p.text == "now":
		return now, nil
	case p.text[0] == '-':
		if d, err := parseDuration(p.text[1:]); err == nil {
			return now.Add(-d), nil
		}
	}
	var i instant
	if err := i.Set(p.text); err == nil {
		return i.Time, nil
	}
	return time.Time{}, fmt.Errorf("%q is neither RFC 3339, as 2030-01-31T12:00:00Z, nor milliseconds "+
		"since 1970, nor now, nor -1h for an hour ago", p.text)
}

func appendCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "append STORE KEY VALUE|-|@FILE",
		Short: "Store a row of a time-partitioned family",
		Long: `Append stores a row under a timestamp and a key, in one durable transaction. The family must be
time-partitioned: see ebb family --retention. A row with that timestamp and key is replaced. The
timestamp must not be older than the retention of the family, and at most one partition ahead.`,
		Example: `  ebb append my.ebb --family cpu host-7 12.5
  ebb append my.ebb --family cpu host-7 11 --at 2030-01-31T12:00:00Z`,
		Args: args(3, 3),
	}
	at := pastInstant{text: "now"}
	cmd.Flags().Var(&at, "at", "timestamp of the row: a time, or -1h for an hour ago")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := a.key(args[1])
		if err != nil {
			return err
		}
		value, err := a.value(cmd.Context(), args[2])
		if err != nil {
			return err
		}
		var ts time.Time
		err = a.update(cmd, args[0], true, func(tx *kv.Tx) (err error) {
			if ts, err = at.at(tx.Now()); err != nil {
				return err
			}
			return tx.CF(a.family).Append(ts, key, value)
		})
		if err != nil {
			return fmt.Errorf("append: %w", err)
		}
		if !a.json {
			return nil
		}
		object := map[string]any{"family": a.family, "time": showInstant(ts), "size": len(value)}
		a.setBytes(object, "key", key)
		return a.printJSON(object)
	}
	return cmd
}

func scanTimeCommand(a *app) *cobra.Command {
	var from, to pastInstant
	var o kv.ScanOptions
	cmd := &cobra.Command{
		Use:   "scan-time STORE",
		Short: "List the rows of a time-partitioned family in the order of time",
		Long: `Scan-time lists the live rows of a time-partitioned family: time, tab, key, tab, value. It
reads only the partitions of the times that are asked for. With --json each row is one object on a
line.`, Example: `  ebb scan-time my.ebb --family cpu --from -1h
  ebb scan-time my.ebb --family cpu --to 2030-01-31T12:00:00Z --reverse --limit 10`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Limit < 0 {
				return usageError{cmd, errors.New("--limit is negative")}
			}
			err := a.view(cmd.Context(), args[0], func(tx *kv.Tx) error {
				lo, err1 := from.at(tx.Now())
				hi, err2 := to.at(tx.Now())
				if err := errors.Join(err1, err2); err != nil {
					return err
				}
				return a.printTimes(cmd.Context(), tx, a.family, lo, hi, o)
			})
			if err != nil {
				return fmt.Errorf("scan-time: %w", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.Var(&from, "from", "only timestamps at or after this: a time, or -1h for an hour ago")
	f.Var(&to, "to", "only timestamps before this")
	f.BoolVar(&o.Reverse, "reverse", false, "newest row first")
	f.IntVar(&o.Limit, "limit", 0, "end after this many rows; 0: no limit")
	return cmd
}

// printTimes prints rows of a time-partitioned family.
func (a *app) printTimes(
	ctx context.Context, tx *kv.Tx, family string, from, to time.Time, o kv.ScanOptions,
) error {
	n, m := 0, missing{app: a}
	m.watch(tx, nil)
	for k, v := range tx.CF(family).ScanTime(from, to, o.Reverse) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := a.printRow(row{ts: k.Time, key: k.Key, value: v, lost: v == nil}); err != nil {
			return err
		}
		if n++; n == o.Limit {
			break
		}
	}
	return errors.Join(tx.Err(), m.err())
}

// printPartitions prints one row for each partition of each time-partitioned family.
func (a *app) printPartitions(stats kv.Stats, families []string) error {
	rows := []string{"family\tfrom\tto\trows\tbytes"}
	for _, name := range families {
		for _, p := range stats.Partitions[name] {
			rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%d\t%s",
				a.show([]byte(name)), showInstant(p.From), showInstant(p.To), p.Rows, size(p.Bytes)))
		}
	}
	if len(rows) == 1 {
		return nil
	}
	fmt.Fprintln(a.out)
	return table(a.out, rows...)
}
