package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table prints for each number of rows: our figures beside the best peer's and the limit, then memory
// and disk, then what pauses come from, then rows with a limit of memory, then what failed. If there
// are several numbers of rows, a table with a column for each is the last.
func (rep *Report) Table(w io.Writer) error {
	var b strings.Builder
	for i := range rep.Sizes {
		size := &rep.Sizes[i]
		fmt.Fprintf(&b, "%d rows of 16 + 100 bytes, median of %d; %s/%s, %d CPUs, %s\n\n", size.N, rep.Rounds,
			rep.Machine.OS, rep.Machine.Arch, rep.Machine.CPUs, rep.Machine.Go)
		size.table(&b)
		b.WriteString("\n")
	}
	if len(rep.Sizes) > 1 {
		rep.bySize(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (size *Size) table(b *strings.Builder) {
	size.speed(b)
	b.WriteString("\n")
	size.space(b)
	size.pauses(b)
	size.limited(b)
	for _, row := range size.Rows {
		for _, f := range row.Figures {
			if f.Failure != "" {
				fmt.Fprintf(b, "\nFAILED: %s on %s: %s\n", row.Workload, f.Engine, f.Failure)
			}
		}
	}
}

// bySize prints how many times as good as the best peer we are, with a column for each number of rows.
func (rep *Report) bySize(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	head, names := "times the best peer\tgoal\t", []string{}
	ratios, goals := map[string][]string{}, map[string]string{}
	for i := range rep.Sizes {
		size := &rep.Sizes[i]
		head += fmt.Sprintf("%d rows\t\t", size.N)
		for _, row := range size.Rows {
			if goals[row.Workload] == "" {
				names, goals[row.Workload] = append(names, row.Workload), times(row.Goal)
			}
			cells := ratios[row.Workload]
			for len(cells) < 2*i {
				cells = append(cells, "-", "")
			}
			own, peer := row.find(ours), row.bestPeer()
			cells = append(cells, times(row.advantage(own, peer)), peer.name())
			ratios[row.Workload] = cells
		}
	}
	fmt.Fprintln(t, head)
	for _, name := range names {
		fmt.Fprintf(t, "%s\t%s\t%s\t\n", name, goals[name], strings.Join(ratios[name], "\t"))
	}
	t.Flush()
}

// name is the name of the engine; "" if there is none.
func (f *Figure) name() string {
	if f == nil {
		return ""
	}
	return f.Engine
}

func (size *Size) speed(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "workload\tebb\tmin\tmax\tbest peer\t\tratio\tgoal\tlimit\tof limit\t"+
		"p50 us\tp99 us\tp99.9 us\tpeer's p99\tp99.9\t")
	for _, row := range size.Rows {
		own, peer, limit := row.find(ours), row.bestPeer(), row.find(limitName)
		cells := []string{row.Workload + ", " + row.Unit}
		cells = append(cells, own.cells()...)
		if peer == nil {
			cells = append(cells, "-", "")
		} else {
			cells = append(cells, number(peer.Median), peer.Engine)
		}
		cells = append(cells, times(row.advantage(own, peer)), times(row.Goal))
		if limit == nil || limit.Failure != "" {
			cells = append(cells, "-", "-")
		} else {
			cells = append(cells, number(limit.Median), times(row.advantage(own, limit)))
		}
		cells = append(cells, own.latency()...)
		cells = append(cells, peer.latency()[1:]...)
		fmt.Fprintln(t, strings.Join(cells, "\t")+"\t")
	}
	t.Flush()
}

// cells are median, min and max.
func (f *Figure) cells() []string {
	switch {
	case f == nil:
		return []string{"-", "", ""}
	case f.Failure != "":
		return []string{"failed", "", ""}
	}
	return []string{number(f.Median), number(f.Min), number(f.Max)}
}

// latency are p50, p99 and p99.9, where they were taken.
func (f *Figure) latency() []string {
	if f == nil || f.P99us == 0 {
		return []string{"", "", ""}
	}
	return []string{number(f.P50us), number(f.P99us), number(f.P999us)}
}

// space prints what else it took, processor, memory and disk, beside the peer that needed least.
func (size *Size) space(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(
		t,
		"workload\tCPU us/op\tleast\t\tpeak RSS MB\tleast\t\twritten per user byte\tleast\t\t"+
			"disk MB\tleast\t\tdisk per live byte\tat any moment\t",
	)
	for _, row := range size.Rows {
		cells := []string{row.Workload}
		for _, c := range []struct {
			of    func(*Figure) float64
			scale float64
		}{
			{func(f *Figure) float64 { return f.CPU }, 1},
			{func(f *Figure) float64 { return f.Peak }, 1e-6},
			{func(f *Figure) float64 { return f.PerByte }, 1},
			{func(f *Figure) float64 { return f.Disk }, 1e-6},
		} {
			own, least, name := row.least(c.of)
			cells = append(cells, known(own*c.scale), known(least*c.scale), name)
		}
		perLive, anyTime := 0.0, 0.0
		if own := row.find(ours); own != nil {
			perLive, anyTime = own.PerLive, own.AnyTime
		}
		fmt.Fprintln(t, strings.Join(append(cells, known(perLive), known(anyTime)), "\t")+"\t")
	}
	t.Flush()
}

// pauses prints what is behind a multiple of p99, for everyone: a store may pause little because
// what it does in the background takes long.
func (size *Size) pauses(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	headed := false
	for _, row := range size.Rows {
		for _, f := range row.Figures {
			if f.IdleP99 == 0 {
				continue
			}
			if !headed {
				fmt.Fprintln(t, "\nworkload\tengine\tratio\tp99 us\tidle\tputs beside\tseconds of work\t")
				headed = true
			}
			cells := []string{
				row.Workload,
				f.Engine,
				times(f.Median),
				number(f.P99us),
				number(f.IdleP99),
				number(f.Beside),
				number(f.Seconds),
			}
			fmt.Fprintln(t, strings.Join(cells, "\t")+"\t")
		}
	}
	t.Flush()
}

// limited prints the figures of all engines in rows with a limit of memory, with the rows that a
// store held where the time for its load may have been over before.
func (size *Size) limited(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	headed := false
	for _, row := range size.Rows {
		for _, f := range row.Figures {
			if f.OpenSeconds == 0 {
				continue
			}
			if !headed {
				fmt.Fprintln(t, "\nworkload\tengine\tmedian\trows held\topen s\tclose s\tmajor faults/op\t")
				headed = true
			}
			held := "all"
			if f.Rows > 0 {
				held = number(f.Rows)
			}
			cells := []string{
				row.Workload, f.Engine, number(f.Median), held, number(f.OpenSeconds),
				number(f.CloseSeconds), number(f.Faults),
			}
			fmt.Fprintln(t, strings.Join(cells, "\t")+"\t")
		}
	}
	t.Flush()
}

// least returns our number, and the smallest of a peer. 0 is not known.
func (row *Row) least(of func(*Figure) float64) (own, least float64, name string) {
	for i := range row.Figures {
		f := &row.Figures[i]
		switch x := of(f); {
		case x == 0 || f.Failure != "" || f.Engine == limitName:
		case f.Engine == ours:
			own = x
		case name == "" || x < least:
			least, name = x, f.Engine
		}
	}
	return own, least, name
}

// number prints three digits or all that stand before the point.
func number(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.2fM", x/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.1fk", x/1e3)
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

func known(x float64) string {
	if x == 0 {
		return "n/a"
	}
	return number(x)
}

func times(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", x)
}
